"""Compilers of C, and the options with which files are compiled."""

import subprocess
import sys
from importlib.util import find_spec
from shutil import which

import pytest

from concord.derive.c.program import compiler

#: By name; the last one is the clang of the package ziglang, which has the C libraries of other machines, too.
COMMANDS = {"gcc": ["gcc"], "clang": ["clang"], "zig": [sys.executable, "-m", "ziglang", "cc"]}
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


def zig(*options):
    """A case of the package's compiler."""
    marks = [pytest.mark.slow]
    if find_spec("ziglang") is None:
        marks.append(pytest.mark.skip(reason="needs the package ziglang"))
    return pytest.param("zig", options, marks=marks, id=f"zig {' '.join(options)}")


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


every_way = pytest.mark.parametrize(("command", "options"), list(ways()))
