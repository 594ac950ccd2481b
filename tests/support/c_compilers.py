"""Compilers of C, and the options with which files are compiled."""

import subprocess
from shutil import which

import pytest

COMPILERS = [name for name in ("gcc", "clang") if which(name)]
SLOW = (("-O0",), ("-O3", "-DCONCORD_PORTABLE"))
SANITIZED = ("-O1", "-g", "-fsanitize=undefined,address", "-fno-sanitize-recover=all")


def links(command, *options):
    """Whether a compiler makes programs with some options."""
    text = b"int main(void) { return 0; }"
    words = [command, "-x", "c", "-", *options, "-o", "/dev/null"]
    return not subprocess.run(words, input=text, capture_output=True, check=False).returncode


def ways():
    """Compilers with options, and why some are left out."""
    for name in ("gcc", "clang"):
        for options in (("-O0",), ("-O3",), ("-O3", "-DCONCORD_PORTABLE"), ("-O2", "-m32"), SANITIZED):
            marks = []
            if name not in COMPILERS:
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


every_way = pytest.mark.parametrize(("command", "options"), list(ways()))
