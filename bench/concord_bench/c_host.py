"""The host in C: bytes of its code and of its memory."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory

from concord.compiler.model import compile_graph
from concord.derive.c_host.plan import plan
from concord.derive.c_host.source import LIBRARY, SPEC_HEADER, c_files
from concord.derive.c_host.spec_header import spec_header
from concord.spec.config import NpuConfig
from concord.spec.presets import ECP5_85F_256
from concord_bench.results import Results
from concord_bench.software import convolutions

GROUP = "Host in C"
#: Compilers with their options and what they compile for, the ones for microcontrollers first.
COMPILERS = (
    (("arm-none-eabi-gcc", "-mcpu=cortex-m0plus", "-mthumb"), "Cortex-M0+"),
    (("gcc", "-fno-asynchronous-unwind-tables"), "x86-64"),
    (("clang", "-fno-asynchronous-unwind-tables"), "x86-64"),
)
_OPTIONS = ("-std=c99", "-Os", "-fno-pic", "-c")


@dataclass(frozen=True)
class HostSizes:
    """Bytes of the library.

    Parameters
    ----------
    code, constants : int
        Instructions; texts and tables.
    state : int
        State of a connection, which a network adds its buffers to.
    stack : int
        The largest frame of a function.
    """

    code: int
    constants: int
    state: int
    stack: int


def find_compiler() -> tuple[tuple[str, ...], str] | None:
    """The first compiler that is there, with its options, and what it compiles for."""
    return next(((command, target) for command, target in COMPILERS if shutil.which(command[0])), None)


def host_sizes(command: Sequence[str]) -> HostSizes:
    """Compile the library with a compiler and measure it."""
    library = files("concord.derive.c_host") / "library"
    texts = {name: (library / name).read_text(encoding="utf-8") for name in LIBRARY}
    texts |= {SPEC_HEADER: spec_header(), "state.c": '#include "concord_host.h"\nchar state[sizeof(concord_device)];\n'}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in texts.items():
            (folder / file).write_text(text, encoding="utf-8")
        sections = {}
        for file in ("concord_host.c", "state.c"):
            subprocess.run([*command, *_OPTIONS, "-fstack-usage", file, "-o", f"{file}.o"], cwd=folder, check=True)
            sections[file] = _sections(folder / f"{file}.o", command[0])
        stack = max(int(line.split()[-2]) for line in (folder / "concord_host.c.su").read_text().splitlines())
    host = sections["concord_host.c"]
    constants = sum(size for part, size in host.items() if part.startswith((".rodata", ".data.rel.ro")))
    code = sum(size for part, size in host.items() if part.startswith(".text"))
    return HostSizes(code, constants, sections["state.c"][".bss"], stack)


def _sections(path: Path, compiler: str) -> dict[str, int]:
    """Bytes by section of an object."""
    prefix = compiler.removesuffix("gcc") if compiler.endswith("-gcc") else ""
    done = subprocess.run([f"{prefix}size", "-A", path], stdout=subprocess.PIPE, text=True, check=True)
    return {name: int(size) for name, size in re.findall(r"^(\.\S+)\s+(\d+)", done.stdout, re.MULTILINE)}


def buffer_bytes(config: NpuConfig) -> int:
    """Buffers of a network for a configuration: requests on the way and the last reply."""
    compiled = compile_graph(convolutions(), config)
    header = c_files(plan(compiled.image, compiled.package), "net")["net.h"]
    return sum(int(size) for size in re.findall(r"(?:slots|reply)\[(\d+)\]", header))


def measure_c_host(results: Results) -> None:
    """Code and memory of the library with the first compiler that is there."""
    compiler = find_compiler()
    if compiler is None:
        results.skip(GROUP, f"none of {', '.join(command[0] for command, _ in COMPILERS)} is installed")
        return
    command, target = compiler
    group, sizes = f"{GROUP}, {command[0]} -Os for {target}", host_sizes(command)
    results.add(group, "code", sizes.code, "bytes")
    results.add(group, "texts and tables", sizes.constants, "bytes")
    results.add(group, "state of a connection", sizes.state, "bytes")
    results.add(group, "largest frame on the stack", sizes.stack, "bytes")
    results.add(group, f"buffers for {ECP5_85F_256.name}", buffer_bytes(ECP5_85F_256), "bytes")
