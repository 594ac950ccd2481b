# amaranth: UnusedElaboratable=no
"""The compiled simulation of a small design, and the driver on it."""

import random
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from amaranth.back import verilog
from click.testing import CliRunner

from concord.host import MismatchError, connect, rtl
from concord.host.rtl import CYCLES_PER_SECOND, RtlTransport
from concord.image.words import to_bytes
from concord.spec.links import LinkKind
from concord.spec.memmap import Reg
from concord.spec.presets import TINY, UP5K
from concord.utils.simulations import LIBRARY, simulation_entry
from concord_rtl.flow import verilate
from support.memory_top import MemoryTop

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def library():
    return verilate.build(MemoryTop(TINY), "memory_top")


def test_words_there_and_back(library):
    rng = random.Random(1)
    with connect("rtl", TINY, library=library) as device:
        for name in ("PROGRAM", "MATRIX", "NARROW", "WIDE", "TABLE", "FLAGS"):
            region = device._region(name)
            words = [rng.getrandbits(region.word.width) for _ in range(min(region.depth, 100))]
            device.link.write(region, region.depth - len(words), to_bytes(words, region.nbytes).tobytes())
            assert device.read(name, region.depth - len(words), len(words)) == words
        assert device.read("REGS", Reg.LINK_ERRORS) == [0]


def test_wait_until_a_run_has_ended(library):
    with connect("rtl", TINY, library=library) as device:
        before = device.link.transport.cycles
        device.start(100)
        device.wait()
        device.read("WIDE", 0)
        assert 100 < device.link.transport.cycles - before < 1200


def test_time_only_passes_while_someone_reads(library):
    transport = RtlTransport(library)
    before = transport.cycles
    transport.write(b"\x7e\x7e")
    assert transport.cycles == before
    assert transport.read(10, 0.002) == b""
    assert transport.cycles == before + 0.002 * CYCLES_PER_SECOND
    transport.close()
    with pytest.raises(RuntimeError, match="the simulation was closed"):
        transport.write(b"")


def test_two_simulations_do_not_share_anything(library):
    with connect("rtl", TINY, library=library) as one, connect("rtl", TINY, library=library) as two:
        one.write("WIDE", 0, [1])
        two.write("WIDE", 0, [2])
        assert one.read("WIDE", 0) + two.read("WIDE", 0) == [1, 2]


def test_another_configuration_is_refused(library):
    with pytest.raises(MismatchError, match="it is a tiny; expected / device: "):
        connect("rtl", UP5K, library=library)


def test_waveforms(library, tmp_path):
    with pytest.raises(ValueError, match="library must have been built for waveforms"):
        RtlTransport(library, trace=tmp_path / "none.vcd")
    traced = verilate.build(MemoryTop(TINY), "memory_top", trace=True)
    with connect("rtl", TINY, library=traced, trace=tmp_path / "some.vcd") as device:
        device.read("WIDE", 0)
    assert "rx___05Fpayload" in (text := (tmp_path / "some.vcd").read_text()) or "rx__payload" in text


def test_the_library_is_kept(library, monkeypatch):
    def fail(*args):
        raise AssertionError("compiled again")

    monkeypatch.setattr(verilate, "_call", fail)
    text = verilog.convert(MemoryTop(TINY), name="memory_top", emit_src=False)
    assert verilate.compile_verilog(text, "memory_top") == library
    with pytest.raises(AssertionError, match="compiled again"):
        verilate.compile_verilog(text + "\n", "memory_top")


def test_what_the_hardware_has_built_the_software_finds(monkeypatch, tmp_path):
    """For each configuration, link, and waveforms or none; the command is called for what is not there."""
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path))
    made, called = [], []

    def build(top, name, *, trace, wrapper):
        made.append((trace, wrapper))
        folder = simulation_entry(f"{len(made)}").made(lambda folder: (folder / LIBRARY).touch())
        return folder / LIBRARY

    def command(words, **options):
        called.append(words)
        return subprocess.CompletedProcess(words, 0, stdout="built\n")

    monkeypatch.setattr(verilate, "_simulated", lambda *_: None)
    monkeypatch.setattr(verilate, "build", build)
    monkeypatch.setattr(rtl.subprocess, "run", command)
    for config, trace, link in [
        (TINY, False, "uart"),
        (UP5K, False, "uart"),
        (TINY, True, "uart"),
        (TINY, False, "spi"),
    ]:
        kind = LinkKind(link)
        assert rtl.find_library(config, trace=trace, link=kind) == Path("built")
        path = verilate.npu_library(config, trace=trace, link=kind)
        assert rtl.find_library(config, trace=trace, link=kind) == path
        assert made[-1] == (trace, verilate.WRAPPERS[kind])
    assert len(made) == len(called) == 4


def test_two_that_need_the_same_build_it_once(monkeypatch, tmp_path):
    """A thread has files of its own, and waits as a process does."""
    called = []

    def command(words, folder, env=None):
        called.append(words[0])
        time.sleep(0.1)
        (folder / "Vdesign___024root.h").touch()
        if LIBRARY in words:
            (folder / LIBRARY).write_text("")

    monkeypatch.setattr(verilate, "_call", command)
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path))
    with ThreadPoolExecutor(3) as pool:
        texts = ["one design", "one design", "another"]
        one, again, other = pool.map(lambda text: verilate.compile_verilog(text, "m"), texts)
    assert one == again != other and one.exists() and other.exists()
    tools = Counter(Path(program).name.partition("_")[0] for program in called)
    assert tools.pop("verilator") == 2  # of two designs
    assert sum(tools.values()) == 2 + 2 + 2  # their C++, their links, and the library of Verilator of two files


def test_files_are_shared_out(tmp_path, monkeypatch):
    """Each file in one piece, no piece far above its share, and a small design in one."""
    monkeypatch.setattr(verilate.os, "cpu_count", lambda: 3)
    files = [tmp_path / f"{k}.cpp" for k in range(12)]
    for k, path in enumerate(files):
        path.write_text("x" * (verilate.PIECE // 12 * (k + 1)))
    texts = [path.read_text().splitlines() for path in verilate._pieces(files, tmp_path)]
    found = sorted(line for text in texts for line in text)
    assert len(texts) == 3 and found == sorted(f'#include "{path}"' for path in files)
    sizes = [sum(Path(line.split('"')[1]).stat().st_size for line in text) for text in texts]
    assert max(sizes) - min(sizes) <= verilate.PIECE // 6
    assert len(verilate._pieces(files[:3], tmp_path)) == 1


def test_compilers(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "my-compiler --option")
    assert verilate.find_compiler() == ["my-compiler", "--option"]
    monkeypatch.delenv("CXX")
    monkeypatch.setattr(verilate.shutil, "which", lambda name: None)
    monkeypatch.setattr(verilate.util, "find_spec", lambda name: name)
    assert verilate.find_compiler()[1:] == ["-m", "ziglang", "c++"]
    monkeypatch.setattr(verilate.util, "find_spec", lambda name: None)
    with pytest.raises(verilate.SimulationError, match=r"a C\+\+ compiler is needed"):
        verilate.find_compiler()


def test_a_compiler_that_fails(monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path))
    with pytest.raises(verilate.SimulationError, match="false failed with code 1"):
        verilate.compile_verilog("module m(input clk); endmodule", "m")
    assert not list(tmp_path.rglob("*.so"))
    with pytest.raises(verilate.SimulationError, match="verilator_bin failed"):
        verilate.compile_verilog("modul m", "m")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either --preset or --config"),
        (["--preset", "tiny", "--config", "{}"], "give either --preset or --config"),
        (["--config", "{"], "--config is not valid"),
        (["--config", '{"native": 4}'], "--config is not valid"),
        (["--preset", "huge"], "not 'huge'"),
    ],
)
def test_command_line_refuses(arguments, message):
    result = CliRunner().invoke(verilate.main, arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_other_c_functions_make_another_library(tmp_path, monkeypatch):
    """Those of the link, and those that all of them share."""
    monkeypatch.setenv("CONCORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(verilate, "_call", lambda words, folder, env=None: (folder / "Vdesign___024root.h").touch())
    other = tmp_path / "other.cpp"
    other.write_text("// something else")
    paths = [verilate.compile_verilog("text", "m"), verilate.compile_verilog("text", "m", wrapper=other)]
    monkeypatch.setattr(verilate, "SHARED", other)
    assert len({*paths, verilate.compile_verilog("text", "m")}) == 3


def test_the_name_that_the_folder_had_is_answered(monkeypatch):
    monkeypatch.setenv("CONCORD_BUILD", "build")
    result = CliRunner().invoke(verilate.main, ["--preset", "tiny"])
    assert result.exit_code == 1 and "the folder is named by CONCORD_CACHE now, not 'build'" in result.output
