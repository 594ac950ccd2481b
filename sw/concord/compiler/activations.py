"""Tables of activation functions, the hardware's and composed ones alike [transfer-lut]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

from concord.compiler.layers import Curve, Domain, Functions, Proven
from concord.parts import LEAST, Part
from concord.spec.config import NpuConfig
from concord.tables import Table, round_to_half, standard_range
from concord.transfer import Binary16, TableIndex, transfer_table

#: Functions that come to rest inside of the default range of their tables; what lies beyond it changes nothing.
_SETTLING = ("sigmoid", "tanh", "erf", "hardsigmoid")
#: Functions with one value at zero and below.
_POSITIVE = ("sqrt", "rsqrt", "log")
#: Part of the range of the calibration data that is added at both ends.
_MARGIN = 0.125


def depends(functions: Functions) -> bool:
    """Whether the inputs that a table has to cover depend on those there are."""
    return functions[0][0] not in _SETTLING


def domain_of(functions: Functions, values: Domain | None) -> Domain | None:
    """Inputs that a table has to cover, ``None``: the default of its first function.

    Parameters
    ----------
    functions : Functions
        What it holds.
    values : Domain or None
        Least and greatest input there is; ``None`` behind a part of the network that the compiler itself has made.
    """
    if values is None or not depends(functions):
        return None
    margin = max(_MARGIN * (values[1] - values[0]), 2.0**-10)
    low = values[0] - margin
    positive = values[0] >= 0 or (functions[0][0] in _POSITIVE and values[1] > 0)
    return (max(low, 0.0) if positive else low), values[1] + margin


def shared(curves: Sequence[Curve], most: int) -> dict[Curve, Curve]:
    """What the tables of curves hold, if there may be ``most`` of them.

    Where there are more, curves of the same functions get one that covers both ranges: first those that grow least.
    """
    held = {curve: curve for curve in curves}
    while len(set(held.values())) > most:
        choices = [
            (_growth(first, second), first, second)
            for first, second in combinations(dict.fromkeys(held.values()), 2)
            if first[0] == second[0] and isinstance(first[1], tuple) and isinstance(second[1], tuple)
        ]
        if not choices:
            break
        _, first, second = min(choices)
        both = (first[0], _union(first, second))
        held = {curve: both if one in (first, second) else one for curve, one in held.items()}
    return held


def _union(first: Curve, second: Curve) -> Domain:
    assert isinstance(first[1], tuple) and isinstance(second[1], tuple)
    both = min(first[1][0], second[1][0]), max(first[1][1], second[1][1])
    return Proven(both) if isinstance(first[1], Proven) and isinstance(second[1], Proven) else both


def _growth(first: Curve, second: Curve) -> float:
    """How much more than the smaller one of two ranges both together cover."""
    assert isinstance(first[1], tuple) and isinstance(second[1], tuple)
    low, high = _union(first, second)
    return (high - low) / min(end - begin for begin, end in (first[1], second[1]))


def others_share(others: Sequence[Curve], parts: Sequence[Curve], config: NpuConfig) -> int:
    """Entries that a table may have beside those that are parts of functions."""
    taken = sum(part.entries for _, part in parts if isinstance(part, Part))
    count = len(set(shared(others, config.table_slots - len(parts)).values()))
    return (config.table_depth - taken) // max(count, 1)


def activation_table(functions: Functions, domain: Domain | Part | None, config: NpuConfig, entries: int) -> Table:
    """A table of functions applied one after the other.

    Parameters
    ----------
    functions : Functions
        In the order of application; only the last result is rounded.
    domain : Domain, Part or None
        Inputs covered, as :func:`domain_of` gives them; what lies beyond has the value of the nearest end. A part has
        the entries that it says.
    config : NpuConfig
        Its table memory limits the codes.
    entries : int
        Greatest number of entries.
    """
    operators = [(name, dict(parameters)) for name, parameters in functions]
    if not isinstance(domain, Part):
        source = TableIndex(*standard_range(functions[0][0], config, entries, domain))
        table = transfer_table(source, operators, Binary16()).npu_table()
        return replace(table, settled=(True, True)) if isinstance(domain, Proven) else table
    table = transfer_table(TableIndex(domain.low, domain.high, domain.scale), operators, Binary16()).npu_table()
    contents = list(table.entries)
    if domain.least is not None:
        contents[domain.least] = round_to_half(LEAST)
    # Where another part begins, that one counts.
    low, high = (
        beside is not None or end for beside, end in zip((domain.start, domain.stop), table.settled, strict=True)
    )
    return replace(table, entries=tuple(contents), settled=(low, high))
