"""What was there before: removed presets, and folders of networks whose configuration no preset has today."""

import json
import shutil

import numpy as np
import pytest

import concord
from concord.cli.main import main
from concord.frontend import import_model
from concord.graph import execute
from concord.host import serial_port
from concord.image.container import read_file, write_file
from concord.networks.folder import NETWORK_FOLDER
from concord.spec.presets import TINY, UP5K
from concord.spec.stored import IMAGE
from concord_bench.link_rates import main as link_rates
from concord_rtl.build import main as build
from concord_rtl.flow.verilate import main as verilate
from support.commands import run, two_products
from support.link_model import DeviceModel, ModelTransport

REMOVED = "preset 'ecp5-85f-int8' was removed: ecp5-85f takes its place"


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (main, ["compile", "{model}"]),
        (main, ["flash"]),
        (main, ["demo"]),
        (main, ["types", "{model}"]),
        (main, ["train", "{model}", "-o", "{model}.out", "--on", "emulator"]),
        (build, ["verilog"]),
        (build, ["bitstream", "--board", "ulx3s-85f"]),
        (build, ["area", "--board", "ulx3s-85f"]),
        (build, ["code-scaling", "--board", "ulx3s-85f"]),
        (verilate, []),
        (link_rates, []),
    ],
    ids=lambda value: value[0] if value and isinstance(value, list) else None,
)
def test_commands_answer_with_the_successor(command, words, tmp_path):
    model = tmp_path / "net.onnx"
    model.write_bytes(b"")
    code, output = run(*(word.format(model=model) for word in words), "--preset", "ecp5-85f-int8", command=command)
    assert code == 2 and REMOVED in " ".join(output.split())


def test_python_answers_with_the_successor(tmp_path):
    with pytest.raises(ValueError, match=f"^{REMOVED}$"):
        concord.compile(tmp_path / "net.onnx", preset="ecp5-85f-int8")


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """``old``, a network for a removed preset, ``changed``, for another ``tiny``, and ``net.onnx`` and ``x.npz``."""
    place = two_products(tmp_path_factory.mktemp("before"))
    configs = {"old": TINY.replace(name="ecp5-85f-int8", board="ulx3s-25f"), "changed": TINY.replace(narrow_depth=128)}
    for name, config in configs.items():
        concord.compile(place / "net.onnx", config=config).save(place / name)
    return place


def words(output):
    return " ".join(output.split())


@pytest.mark.parametrize(
    ("name", "on"), [("old", "emulator"), ("changed", "emulator"), pytest.param("old", "rtl", marks=pytest.mark.slow)]
)
def test_a_folder_of_before_runs_with_its_configuration(before, name, on, tmp_path):
    code, output = run("run", before / name, "-i", before / "x.npz", "-o", tmp_path / "y.npz", "--on", on)
    assert code == 0, output
    model = import_model(before / "net.onnx")
    want = execute.run(model, dict(np.load(before / "x.npz")))["y"]
    assert np.abs(np.load(tmp_path / "y.npz")["y"] - want).max() < 0.1
    assert run("inspect", before / name)[0] == 0


FATES = [
    ("old", f"ecp5-85f-int8 with fingerprint {TINY.fingerprint:016x} is of a preset that was removed: ecp5-85f takes",
     "--board ulx3s-25f"),
    ("changed", "is not the preset tiny of today; then / today: narrow_depth: 128 / 64", "--preset tiny"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fate", "options"), FATES)
def test_what_needs_a_bitstream_names_the_command(before, name, fate, options, monkeypatch, tmp_path):
    again = f"`concord compile {before / name}/model.onnx {options} -o {before / name}`, with the options of then"
    code, output = run("flash", before / name, "--board", "ulx3s-25f", "--build", tmp_path)
    assert code == 1 and f"no ready bitstream fits {'tiny' if name == 'changed' else ''}" in output
    assert fate in words(output) and again in words(output)
    monkeypatch.setattr(serial_port, "SerialTransport", lambda port, link: ModelTransport(DeviceModel(UP5K)))
    ports = ("-i", before / "x.npz", "-o", tmp_path / "y.npz", "--on", "/dev/ttyNone")
    code, output = run("run", before / name, *ports)
    assert code == 1 and "device must have fingerprint" in output and "it is a up5k" in output
    assert fate in words(output) and again in words(output) and not (tmp_path / "y.npz").exists()


def test_a_network_of_today_has_no_such_advice(before, monkeypatch, tmp_path):
    concord.compile(before / "net.onnx", preset="tiny").save(before / "today")
    monkeypatch.setattr(serial_port, "SerialTransport", lambda port, link: ModelTransport(DeviceModel(UP5K)))
    ports = ("-i", before / "x.npz", "-o", tmp_path / "y.npz", "--on", "/dev/ttyNone")
    for name, answer in (("today", "device must have fingerprint"), ("old", "no ready bitstream")):
        code, output = run("run", before / name, *ports)
        assert code == 1 and answer in output and ("compiles it again" in output) == (name == "old")
    code, output = run("flash", before / "today", "--board", "ulx3s-25f", "--build", tmp_path)
    assert code == 1 and "there is no bitstream of tiny" in output and "no ready bitstream" not in output


@pytest.mark.parametrize(
    ("values", "why"),
    [({"integer_loss": True}, "integer_loss must be left out: it was removed, and the host computes the loss"),
     ({"native": 5}, "native must be a power of two"),
     ({"integer_loss": False}, None)],
    ids=["on", "none", "off"],
)  # fmt: skip
def test_a_folder_that_cannot_be_read_any_more(before, values, why, tmp_path):
    folder = tmp_path / "net"
    shutil.copytree(before / "old", folder)
    header, arrays = read_file(folder / IMAGE)
    del header["sha256"]
    header["config"] |= values
    write_file(folder / IMAGE, header, arrays)
    NETWORK_FOLDER.seal(folder)
    code, output = run("run", folder, "-i", before / "x.npz", "-o", tmp_path / "y.npz")
    assert (code, "Error" in output) == ((0, False) if why is None else (1, True)), output
    if why is not None:
        again = f"make it again: concord compile {folder}/model.onnx --board ulx3s-25f -o {folder}"
        assert why in words(output) and again in words(output)


def test_a_file_with_a_removed_parameter_names_the_command(before, tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('preset = "tiny"\ninteger_loss = true\n')
    code, output = run("compile", before / "net.onnx", "--config", file, "-o", tmp_path / "net")
    assert code == 1 and "integer_loss must be left out" in output
    assert f"`concord compile MODEL --config {file}` then compiles its networks again" in words(output)


@pytest.mark.slow
def test_a_configuration_without_a_ready_bitstream_names_the_command(before, tmp_path):
    model, net = before / "net.onnx", tmp_path / "net"
    building = f"--image {net}/npu.image"
    for options, line in (
        (("--preset", "tiny"), None),
        (("--preset", "tiny", "--mantissa", 8), None),
        (("--preset", "tiny", "--mantissa", 5), f'tiny-m5: make bitstream BOARD=BOARD ARGS="{building}" builds one'),
        (("--preset", "ecp5-25f", "--mantissa", 5, "--link", "usb"),
         f'ecp5-25f-m5: make bitstream BOARD=ulx3s-25f ARGS="{building} --link usb" builds one'),
        (("--board", "icebreaker", "--mantissa", 5),
         f'up5k-m5: make bitstream BOARD=icebreaker ARGS="{building} --partial" builds one'),
        (("--board", "icebreaker", "--mantissa", 8), None),
        (("--preset", "tiny", "--accumulator", 40, "--calibrate", before / "x.npz"),
         f'tiny-a40: make bitstream BOARD=BOARD ARGS="{building}" builds one'),
    ):  # fmt: skip
        code, output = run("compile", model, "-o", net, "--quick" if "--calibrate" in options else "--check", *options)
        assert code == 0, output
        assert ("no ready bitstream fits" in output) == (line is not None), options
        assert line is None or f"no ready bitstream fits {line}" in words(output)
    facts = json.loads(
        run("compile", model, "-o", net, "--preset", "tiny", "--mantissa", 5, "--json")[1].split("\nwarning")[0]
    )
    assert [text for text in facts["warnings"] if text.startswith("no ready bitstream fits tiny-m5: make bitstream")]
