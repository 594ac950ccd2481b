"""A C compiler whose programs run on an emulated Cortex-M4: the Clang of ziglang, with what a command line says.

What is linked has the functions of :file:`runtime.c` and no others, so a file that needs a library is an error. So is
one that has floating point: without its unit, as here, every operation is a call. Where the compiler checks for
undefined behaviour, as at ``-O0``, a program ends with an instruction that is none. A program is a script beside its
image, and may be called by a link to it.
"""

import shlex
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
COMMAND = [
    *(sys.executable, "-m", "ziglang", "cc", "-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4"),
    *("-ffreestanding", "-g0", "-fno-unwind-tables", "-fsanitize-trap=undefined", "-isystem", str(HERE / "include")),
]
LINKED = [str(HERE / "runtime.c"), "-nostdlib", "-T", str(HERE / "memory.ld"), "-Wl,-e,start"]


def main(words):
    """Compile with ``-c`` to an object, else to a program; the exit code of the compiler."""
    if "-c" in words:
        return subprocess.run([*COMMAND, *words], check=False).returncode
    program = Path(words[words.index("-o") + 1])
    image = program.with_suffix(".elf")
    words = [str(image) if word == str(program) else word for word in words]
    done = subprocess.run([*COMMAND, *words, *LINKED], check=False).returncode
    if not done:
        line = shlex.join([sys.executable, str(HERE / "machine.py")])
        program.write_text(f'#!/bin/sh\nexec {line} "$(readlink -f "$0").elf" "${{0##*/}}" "$@"\n')
        program.chmod(0o755)
    return done


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
