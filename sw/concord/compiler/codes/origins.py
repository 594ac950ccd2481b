"""Codes that are stored as 0: what an NPU holds of a tensor are its codes less that one, its origin.

The origin is the zero point where mantissas hold codes less their zero point, and else the nearest code with which they
hold them. They hold one number less than there are codes of as many bits; of a tensor that uses all of these, the code
at the end that is further from the zero point becomes its neighbour. Tensors between which codes only move have one
origin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from concord.integer.graph import IntegerGraph, IntegerOperation, readers
from concord.integer.operations import CodeMaximum, CodeMovement, CodeTable
from concord.integer.requantise import Requantiser
from concord.integer.wide_numbers import WideNumbers
from concord.utils.grouping import by_key

#: Codes less an origin that are held where no product reads them: those of a byte.
_BYTE = 255


@dataclass(frozen=True)
class Stored:
    """Codes of a tensor on an NPU.

    Parameters
    ----------
    origin : int
        The code that is stored as 0.
    low, high : int
        Least and greatest code.
    limited : bool
        Whether the network has one more.
    held : bool
        Whether mantissas hold the codes less the origin, or no product needs them to.
    """

    origin: int
    low: int
    high: int
    limited: bool = False
    held: bool = True

    @property
    def reach(self) -> int:
        """Largest magnitude of what is stored."""
        return max(self.high - self.origin, self.origin - self.low)


def stored_codes(graph: IntegerGraph, most: int) -> dict[str, Stored]:
    """By tensor of codes what an NPU holds of it whose mantissas are up to ``most`` in magnitude."""
    ends, group = _ends(graph), _groups(graph)
    users = readers(graph.operations)
    made: dict[str, Stored] = {}
    for members in _members(group).values():
        low, high = min(ends[name][0] for name in members), max(ends[name][1] for name in members)
        multiplied = any(not _only_reads(part) for name in members for part in users.get(name, []))
        zero = graph.schemes[members[0]].zero  # a code of padding, too, where products read it
        low, high = (min(low, zero), max(high, zero)) if multiplied else (low, high)
        stored = _stored(low, high, zero, most, multiplied)
        made |= dict.fromkeys(members, stored)
    return made


def _stored(low: int, high: int, zero: int, most: int, multiplied: bool) -> Stored:
    reach, count = max(high - zero, zero - low), high - low
    if reach <= most or (count <= _BYTE >= reach and not multiplied):
        return Stored(zero, low, high)
    if limited := count == 2 * most + 1:
        low, high = (low, high - 1) if high - zero >= zero - low else (low + 1, high)
    held = high - low <= 2 * most
    return Stored(min(max(zero, high - most), low + most) if held else zero, low, high, limited, held)


def _ends(graph: IntegerGraph) -> dict[str, tuple[int, int]]:
    """Least and greatest code of every tensor of codes."""
    tensors = {*graph.inputs.values(), *(part.output for part in graph.operations)}
    ends = {name: (scheme.low, scheme.high) for name in tensors
            if not isinstance(scheme := graph.schemes[name], WideNumbers)}  # fmt: skip
    for part in graph.operations:
        if part.output not in ends:
            continue
        of = [ends[name] for name in part.inputs if name in ends]
        limits = _limits(part)
        if _ties(part):
            low, high = limits or ends[part.output]
            least, greatest = min(end for end, _ in of), max(end for _, end in of)
            ends[part.output] = min(max(least, low), high), min(max(greatest, low), high)
        elif isinstance(part, CodeTable):
            codes = part.table.entries[of[0][0] - part.table.source.low : of[0][1] - part.table.source.low + 1]
            ends[part.output] = int(codes.min()), int(codes.max())
        elif limits is not None:
            ends[part.output] = limits
    return ends


def _limits(part: IntegerOperation) -> tuple[int, int] | None:
    """Least and greatest code that an operation makes, if it says so."""
    how = getattr(part, "requantisation", None)
    limits = how if isinstance(how, Requantiser) else part
    low, high = getattr(limits, "low", None), getattr(limits, "high", None)
    return None if low is None or high is None else (low, high)


def _ties(part: IntegerOperation) -> bool:
    """True if an operation gives codes as they are."""
    return isinstance(part, CodeMovement | CodeMaximum)


def _only_reads(part: IntegerOperation) -> bool:
    """True if an operation needs no mantissas of what it reads."""
    return _ties(part) or isinstance(part, CodeTable)


def _groups(graph: IntegerGraph) -> dict[str, str]:
    """By tensor of codes one that stands for all between which codes only move."""
    group = {name: name for name, scheme in graph.schemes.items() if not isinstance(scheme, WideNumbers)}

    def first(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for part in graph.operations:
        if _ties(part) and part.output in group:
            for name in part.inputs:
                group[first(name)] = first(part.output)
    live = {*graph.inputs.values(), *(part.output for part in graph.operations)}
    return {name: first(name) for name in group if name in live}


def _members(group: Mapping[str, str]) -> dict[str, list[str]]:
    return by_key((first, name) for name, first in group.items())
