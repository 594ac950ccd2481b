"""Compilers of C, and the options with which files are compiled."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from shutil import which

import pytest

from concord.derive.c.program import compiler

#: By name; zig is the clang of the package ziglang, which has the C libraries of other machines, too. Programs of the
#: last one run on an emulated processor.
COMMANDS = {
    "gcc": ["gcc"],
    "clang": ["clang"],
    "zig": [sys.executable, "-m", "ziglang", "cc"],
    "cortex-m4": [sys.executable, str(Path(__file__).parent / "cortex_m4" / "cc.py")],
}
SLOW = (("-O0",), ("-O3", "-DCONCORD_PORTABLE"))
SANITIZED = ("-O1", "-g", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")
IN_32_BITS = ("-O2", "-target", "x86-linux-musl")
#: A program of 32 bits that runs here, and checks of undefined behaviour, of the package.
ZIG_WAYS = (
    *SLOW,
    ("-O3",),
    IN_32_BITS,
    ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"),
)
CORTEX_M4_WAYS = (("-O0",), ("-Os",), ("-O3",))


def zig(*options):
    """A case of the package's compiler."""
    return _of_packages("zig", options, "ziglang")


def cortex_m4(*options):
    """A case whose programs run on a Cortex-M4 that is emulated."""
    return _of_packages("cortex-m4", options, "ziglang", "unicorn")


def _of_packages(name, options, *packages):
    marks = [pytest.mark.slow, *(needs(package) for package in packages)]
    return pytest.param(name, options, marks=marks, id=f"{name} {' '.join(options)}")


def needs(package):
    """The mark of tests that need a package."""
    return pytest.mark.skipif(find_spec(package) is None, reason=f"needs the package {package}")


def words(name):
    """The command of a compiler; that of this machine without a name."""
    return COMMANDS[name] if name else [compiler()]


def links(command, *options):
    """Whether a compiler makes programs with some options."""
    text = b"int main(void) { return 0; }"
    line = [command, "-x", "c", "-", *options, "-o", "/dev/null"]
    return not subprocess.run(line, input=text, capture_output=True, check=False).returncode


def ways():
    """Compilers with options, and why some are left out."""
    for name in ("gcc", "clang"):
        for options in (("-O0",), ("-O3",), ("-O3", "-DCONCORD_PORTABLE"), ("-O2", "-m32"), SANITIZED):
            marks = []
            if not which(name):
                marks.append(pytest.mark.skip(reason=f"needs {name}"))
            elif not links(name, *options):
                marks.append(pytest.mark.skip(reason=f"{name} does not link with {' '.join(options)}"))
            marks += [pytest.mark.slow] * (options in SLOW)
            yield pytest.param(
                name,
                options,
                marks=marks,
                id=f"{name} {options[-1 if '-m32' in options else 0]}"
                + " portable" * ("-DCONCORD_PORTABLE" in options)
                + " checked" * (options == SANITIZED),
            )
    for options in ZIG_WAYS:
        yield zig(*options)
    for options in CORTEX_M4_WAYS:
        yield cortex_m4(*options)


every_way = pytest.mark.parametrize(("command", "options"), list(ways()))
