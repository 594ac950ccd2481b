"""Memories of a Verilated design, as its wrapper reaches them.

They are members of the class of the design with or without marks such as ``public_flat_rw``, which would keep wires
and registers from being optimised.
"""

from __future__ import annotations

import re
from pathlib import Path

_ARRAY = re.compile(r"VlUnpacked<\w+(?:<\d+>)?/\*(\d+):0\*/, (\d+)> (\w+__DOT__\w+);")


def banks_header(folder: Path) -> str:
    """C++ with the macro ``BANKS(bank)``, which gives ``bank(member, bits of a word, words)`` for every memory.

    Parameters
    ----------
    folder : Path
        With what Verilator made of a design, its prefix ``Vdesign``.
    """
    text = (folder / "Vdesign___024root.h").read_text()
    banks = [f"    bank({name}, {int(last) + 1}, {depth})" for last, depth, name in _ARRAY.findall(text)]
    return '#include "Vdesign___024root.h"\n' + " \\\n".join(["#define BANKS(bank)", *banks]) + "\n"
