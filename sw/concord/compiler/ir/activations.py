"""Tables of activation functions, the hardware's and composed ones alike [transfer-lut]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from concord.compiler.ir.table_specs import Domain, Functions, InputSpan, Proven, TableSpec, WholeEntries
from concord.functions import evaluate, function
from concord.functions.segmented import LEAST, TableSegment
from concord.functions.tables import Table, round_to_binary16, standard_range
from concord.golden import binary16
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_FRAC, BINARY16_MAX
from concord.transfer import Binary16, table_index, transfer_table

#: Part of the range of the calibration data that is added at both ends.
_MARGIN = 0.125


def depends(functions: Functions) -> bool:
    """True if the inputs that a table has to cover depend on the inputs that there are."""
    return not function(functions[0][0]).constant_ends


def domain_of(functions: Functions, values: Domain | None) -> Domain | None:
    """Inputs that a table has to cover, ``None``: the default of its first function.

    Parameters
    ----------
    functions : Functions
        Functions in the table.
    values : Domain or None
        Least and greatest input there is; ``None`` after a part of the network that the compiler itself has made.
    """
    if values is None or not depends(functions):
        return None
    margin = max(_MARGIN * (values[1] - values[0]), 2.0**-10)
    low, high = values[0] - margin, values[1] + margin
    positive = values[0] >= 0 or (function(functions[0][0]).constant_below_zero and values[1] > 0)
    if positive:  # at a pole there is no entry: half a step from it, the function is far from what it has there
        low = max(low, 2.0**-BINARY16_FRAC * high if has_pole(functions) else 0.0)
    return low, high


def has_pole(functions: Functions) -> bool:
    """True if the functions have a number at 0 that is beyond binary16."""
    with np.errstate(all="ignore"):
        (at_zero,) = evaluate([(name, dict(parameters)) for name, parameters in functions], np.zeros(1))
    return bool(abs(at_zero) >= BINARY16_MAX)


def shared(specs: Sequence[TableSpec], most: int) -> dict[TableSpec, TableSpec]:
    """Specification of the table that is stored, by specification of a table, if there may be ``most`` tables.

    Where there are more, two tables of the same functions become one that covers both ranges: first those that grow
    least.
    """
    held = {spec: spec for spec in specs}
    while len(set(held.values())) > most:
        choices = [
            (_growth(first, second), position, first, second)
            for position, (first, second) in enumerate(combinations(dict.fromkeys(held.values()), 2))
            if first[0] == second[0] and _kind(first) is not None and _kind(first) == _kind(second)
        ]
        if not choices:
            break
        *_, first, second = min(choices, key=lambda choice: choice[:2])
        both = _both(first, second)
        held = {spec: both if stored in (first, second) else stored for spec, stored in held.items()}
    return held


def _kind(spec: TableSpec) -> tuple[float | None, ...] | None:
    """Key, beside the functions, that tables share if they can become one; ``None`` for tables that cannot."""
    domain = spec[1]
    if isinstance(domain, InputSpan) and domain.scale is None:
        return domain.ends
    return () if isinstance(domain, tuple) else None


def _ends(spec: TableSpec) -> Domain:
    domain = spec[1]
    assert isinstance(domain, InputSpan | tuple)
    return (domain.low, domain.high) if isinstance(domain, InputSpan) else domain


def _both(first: TableSpec, second: TableSpec) -> TableSpec:
    """A table that covers the inputs of two."""
    (low, high), (bottom, top) = _ends(first), _ends(second)
    low, high = min(low, bottom), max(high, top)
    if isinstance(first[1], InputSpan):
        return first[0], replace(first[1], low=low, high=high)
    proven = isinstance(first[1], Proven) and isinstance(second[1], Proven)
    return first[0], Proven((low, high)) if proven else (low, high)


def _growth(first: TableSpec, second: TableSpec) -> float:
    """Factor by which both ranges together exceed the smaller one."""
    low, high = _ends(_both(first, second))
    return (high - low) / min(end - begin for begin, end in map(_ends, (first, second)))


def fixed_entries(spec: TableSpec) -> int | None:
    """Entries of a table that has as many whatever others there are; ``None`` if it has what they leave."""
    match spec[1]:
        case InputSpan() as span if span.scale is not None:
            return int(np.ldexp(span.high - span.low, span.scale))
        case WholeEntries(entries=entries):
            return len(entries)
        case TableSegment() as segment:
            return segment.entries
        case _:
            return None


def codes_of_table(spec: TableSpec, config: NpuConfig, entries: int) -> tuple[int, int, int]:
    """Least code, greatest code and scale of a table that may have so many entries."""
    functions, domain = spec
    match domain:
        case TableSegment() as segment:
            return segment.low, segment.high, segment.scale
        case WholeEntries() as whole:
            return whole.low, whole.high, 0
        case InputSpan(low=low, high=high):
            return standard_range(functions[0][0], config, fixed_entries(spec) or entries, (low, high))
        case _:
            return standard_range(functions[0][0], config, entries, domain)


def others_share(others: Sequence[TableSpec], segments: Sequence[TableSpec], config: NpuConfig) -> int:
    """Entries that a table may have beside segments of functions."""
    alone = [spec for spec in segments if _fixed_scale(spec) is None]
    taken = sum(fixed_entries(spec) or 0 for spec in (*alone, *joined(segments)))
    count = len(set(shared(others, config.table_slots - len(segments)).values()))
    return (config.table_depth - taken) // max(count, 1)


def activation_table(spec: TableSpec, config: NpuConfig, entries: int) -> Table:
    """A table of functions applied one after the other.

    Parameters
    ----------
    spec : TableSpec
        The functions in the order of application, of which only the last result is rounded; and the inputs covered, as
        :func:`domain_of` gives them: what lies beyond has the value of the nearest end.
    config : NpuConfig
        Its table memory limits the codes.
    entries : int
        Greatest number of entries, unless they are :func:`fixed_entries`.
    """
    functions, domain = spec
    if isinstance(domain, WholeEntries):
        patterns = tuple(binary16.encode(np.array(domain.entries, dtype=np.float64)).tolist())
        return Table(functions[0][0], domain.low, domain.high, 0, patterns, (True, True))
    operators = [(name, dict(parameters)) for name, parameters in functions]
    table = transfer_table(table_index(*codes_of_table(spec, config, entries)), operators, Binary16()).npu_table()
    stored = list(table.entries)
    constant_ends = table.constant_ends
    match domain:
        case TableSegment(start=start, stop=stop, least=least):
            if least is not None:
                stored[least] = round_to_binary16(LEAST)
            # Where another segment begins, that one counts.
            constant_ends = start is not None or constant_ends[0], stop is not None or constant_ends[1]
        case InputSpan(ends=ends):
            for index, value in zip((0, -1), ends, strict=True):
                if value is not None:
                    stored[index] = round_to_binary16(value)
            constant_ends = True, True
        case Proven():
            constant_ends = True, True
    return replace(table, entries=tuple(stored), constant_ends=constant_ends)


def joined(specs: Sequence[TableSpec]) -> list[TableSpec]:
    """Tables that hold the entries of several with the same function and scale, whose inputs meet or overlap."""
    spans: dict[tuple[Functions, int], list[InputSpan]] = {}
    for functions, domain in specs:
        if (scale := _fixed_scale((functions, domain))) is not None and isinstance(domain, InputSpan):
            spans.setdefault((functions, scale), []).append(domain)
    tables: list[TableSpec] = []
    for (functions, _), domains in spans.items():
        ordered = sorted(domains, key=lambda domain: domain.low)
        both = ordered[0]
        for domain in ordered[1:]:
            if domain.low > both.high:
                tables.append((functions, both))
                both = domain
            both = replace(both, high=max(both.high, domain.high))
        tables.append((functions, both))
    return tables


def _fixed_scale(spec: TableSpec) -> int | None:
    """The scale of a table of which others may have a part; ``None`` of all others."""
    domain = spec[1]
    return domain.scale if isinstance(domain, InputSpan) and domain.ends == (None, None) else None
