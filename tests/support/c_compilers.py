"""Compilers of C, and the options with which files are compiled."""

import subprocess
import sys
from functools import cache
from pathlib import Path
from shutil import which

import pytest

from concord.derive.c.program import compiler
from support.frameworks import needs

#: By name; zig is the clang of the package ziglang, which has the C libraries of other machines, too. Programs of the
#: last one run on an emulated processor.
COMMANDS = {
    "gcc": ["gcc"],
    "clang": ["clang"],
    "zig": [sys.executable, "-m", "ziglang", "cc"],
    "cortex-m4": [sys.executable, str(Path(__file__).parent / "cortex_m4" / "cc.py")],
}
#: At ``-O0`` programs are compiled in the shortest time, and whatever sanitizers look for is still there.
SANITIZERS = ("-fsanitize=undefined,address", "-fno-sanitize-recover=all")
#: By name options of the compilers of this machine, and those that only deep tests use.
WAYS = {
    "-O0 checked": ("-O0", *SANITIZERS),
    "-O3": ("-O3",),
    "-m32": ("-O2", "-m32"),
    "-O0": ("-O0",),
    "-O1 checked": ("-O1", "-g", *SANITIZERS),
    "-O3 portable": ("-O3", "-DCONCORD_PORTABLE"),
}
DEEP = ("-O0", "-O1 checked", "-O3 portable")
IN_32_BITS = ("-O2", "-target", "x86-linux-musl")
#: A program of 32 bits that runs here, and checks of undefined behaviour, of the package.
ZIG_WAYS = (
    ("-O0",),
    ("-O3", "-DCONCORD_PORTABLE"),
    ("-O3",),
    IN_32_BITS,
    ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"),
)
CORTEX_M4_WAYS = (("-O0",), ("-Os",), ("-O3",))


def zig(*options, deep=True):
    """A case of the package's compiler."""
    return _cross("zig", options, deep)


def cortex_m4(*options, deep=True):
    """A case whose programs run on a Cortex-M4 that is emulated."""
    return _cross("cortex-m4", options, deep)


def _cross(name, options, deep):
    marks = [needs(name), pytest.mark.deep if deep else pytest.mark.slow]
    return pytest.param(name, options, marks=marks, id=f"{name} {' '.join(options)}")


def words(name):
    """The command of a compiler; that of this machine without a name."""
    return COMMANDS[name] if name else [compiler()]


@cache
def links(command, *options):
    """Whether a compiler is there and makes programs with some options."""
    if not which(command):
        return False
    text = b"int main(void) { return 0; }"
    line = [command, "-x", "c", "-", *options, "-o", "/dev/null"]
    return not subprocess.run(line, input=text, capture_output=True, check=False).returncode


def ways():
    """Compilers with options, and why some are left out."""
    there = [name for name in ("gcc", "clang") if which(name)]
    for name in ("gcc", "clang"):
        for label, options in WAYS.items():
            deep = name in there[1:] or (label in DEEP and (label != "-O0" or links(name, *SANITIZERS)))
            marks = [pytest.mark.deep if deep else pytest.mark.slow]
            if name not in there:
                marks.append(pytest.mark.skip(reason=f"needs {name}"))
            elif not links(name, *(option for option in options if option.startswith(("-f", "-m")))):
                marks.append(pytest.mark.skip(reason=f"{name} does not link with {' '.join(options)}"))
            yield pytest.param(name, options, marks=marks, id=f"{name} {label}")
    for options in ZIG_WAYS:
        yield zig(*options)
    for options in CORTEX_M4_WAYS:
        yield cortex_m4(*options)


every_way = pytest.mark.parametrize(("command", "options"), list(ways()))


#: Levels of optimisation for networks that compile, and run, for seconds.
LEVELS = [
    pytest.param(None, ("-O0",), marks=pytest.mark.slow, id="-O0"),
    pytest.param(None, ("-O3",), marks=pytest.mark.deep, id="-O3"),
]
every_level = pytest.mark.parametrize(("command", "options"), LEVELS)


def random_networks(few, many):
    """The mark of a test of random networks, ``count`` of them in a unit with ``options``."""
    command = compiler()
    unchecked = pytest.mark.skipif(not command or not links(command, *SANITIZERS), reason="needs sanitizers")
    cases = [
        pytest.param(("-O0",), few, marks=pytest.mark.slow, id="-O0"),
        pytest.param(WAYS["-O0 checked"], many, marks=[pytest.mark.deep, unchecked], id="checked"),
        pytest.param(("-O3",), many, marks=pytest.mark.deep, id="-O3"),
    ]
    return pytest.mark.parametrize(("options", "count"), cases)
