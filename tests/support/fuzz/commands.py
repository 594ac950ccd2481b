"""The command line: words of all kinds in all places, and text for the assembler."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from concord.cli.main import main
from support.fuzz.ends import End, of_command

_WORDS = (
    "", "-", "--", "-1", "0", "1", "2", "1e9", "99999999999999999999", "nan", "inf", "5%", "auto", "fc=4", "=", "a=b=c",
    "x" * 5000, "é", "../..", "/", "/dev/null", "/dev/zero/x", ".", "~", "$HOME", "*.onnx", "tiny",
    "ecp5-85f", "emulator",
    "Emulator", "emulater", "COM99", "/dev/ttyNONE", "layers", "program", "x=-1:1", "x=1:-1", "x=a:b", "-1:1",
)  # fmt: skip
_COMMANDS = {
    "compile": ("--preset", "--board", "--calibrate", "--mantissa", "--budget", "--batch", "--input-range", "-o"),
    "run": ("-i", "-o", "--on", "--strict"),
    "inspect": ("--only",),
    "report": ("-i", "-o", "--samples"),
    "asm": ("-o",),
    "disasm": ("-o",),
    "presets": (),
    "nothing": ("-x",),
}
_FLAGS = ("-h", "--help", "--version", "--strict")


def call(*words: object) -> tuple[int, str, BaseException | None]:
    """Run the command; exit code, everything it printed, and what it raised."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    return result.exit_code, result.output, result.exception


def damaged(rng: random.Random, data: bytes) -> bytes:
    """Bytes with some of them changed, cut out, repeated or added."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 3, 8))):
        at = rng.randrange(len(changed) + 1)
        size = rng.choice((1, 1, 2, 4, 8, 64))
        kind = rng.randrange(6)
        if kind == 0 and at < len(changed):
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and at < len(changed):
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 2:
            del changed[at : at + size]
        elif kind == 3:
            changed[at:at] = rng.randbytes(size)
        elif kind == 4:
            changed[at:at] = changed[at : at + size]
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def _files(rng: random.Random, folder: Path, given: Path) -> list[Path]:
    """Good and bad files of every kind."""
    given = shutil.copytree(given, folder / "given")
    (folder / "empty").write_bytes(b"")
    (folder / "noise").write_bytes(rng.randbytes(rng.randrange(1, 400)))
    (folder / "text").write_text("halt\n")
    (folder / "words").write_text("0\nffffffffffffffff\n12\n")
    np.savez(folder / "x.npz", x=np.random.default_rng(rng.randrange(99)).normal(0, 1, (3, 6)))
    (folder / "bad.npz").write_bytes(damaged(rng, (folder / "x.npz").read_bytes()))
    kinds = {
        "n": np.zeros((0, 6)),
        "s": np.array(["a"]),
        "o": np.array(3),
        "c": np.zeros((2, 6), complex),
        "b": np.zeros((2, 6), bool),
    }
    np.savez(folder / "odd.npz", **{rng.choice(("x", "y", "")) or "arr": rng.choice(list(kinds.values()))})
    own = [
        folder / name
        for name in ("empty", "noise", "text", "words", "x.npz", "bad.npz", "odd.npz", "none", "net", "out")
    ]
    return [*own, folder, *(given / name for name in ("net.onnx", "net", "net/npu.image", "net/network.npz", "x.npz"))]


def line(rng: random.Random, folder: Path, given: Path) -> End:
    """A command with words that may or may not suit it."""
    files = [str(path) for path in _files(rng, folder, given)]
    command = rng.choice(list(_COMMANDS))
    words = [command] if rng.random() < 0.98 else []
    if rng.random() < 0.95:
        words.append(rng.choice(files))
    for option in rng.sample(_COMMANDS[command], rng.randrange(len(_COMMANDS[command]) + 1)):
        words += [option, rng.choice(files if rng.random() < 0.6 else _WORDS)]
    if command == "compile" and "-o" not in words:
        words += ["-o", str(folder / "out")]
    if command == "report" and "-o" not in words:
        words += ["-o", str(folder / "page.html")]
    if rng.random() < 0.1:
        words.insert(rng.randrange(len(words) + 1), rng.choice((*_WORDS, *_FLAGS)))
    return of_command(*call(*words))


_ASM = (
    "set_shape rows=1 cols=1", "v_rd narrow,2", "v_rd wide,0,row=1", "mv_mul 0", "v_relu", "v_tbl 0", "vv_add 3",
    "v_wr wide,1",
    "v_max",     "set_window kh=2 kw=2", "loop 3", "end_loop", "halt", "set_iters inner=4", "# words", "label:",
    "set_quant exp=1",
    "inc_addr 1,-1",
)  # fmt: skip
_TOKENS = (
    ",",
    "=",
    "-",
    "rows",
    "wide",
    "narrow",
    "0x10",
    "99999999999",
    "-1",
    "1.5",
    "é",
    "\t",
    "#",
    ":",
    "row",
    "cols",
    "\x00",
    "\n",
)


def assembler(rng: random.Random, folder: Path, given: Path) -> End:
    """Text that is nearly a program, and words that are nearly instructions."""
    path = folder / "text"
    if rng.random() < 0.3:
        path.write_text(
            "\n".join(f"{rng.getrandbits(rng.choice((8, 32, 64, 65))):x}" for _ in range(rng.randrange(1, 9)))
        )
        return of_command(*call("disasm", path))
    lines = [rng.choice(_ASM) for _ in range(rng.randrange(1, 8))]
    text = "\n".join(lines)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(_TOKENS) + text[at + rng.randrange(4) :]
    data = text.encode()
    path.write_bytes(damaged(rng, data) if rng.random() < 0.2 else data)
    return of_command(*call("asm", path))
