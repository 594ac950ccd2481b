"""Sites of multipliers and block RAMs on an ECP5-85F: those of two rows side by side, not all over the device.

The placer of nextpnr puts a multiplier or block RAM that finds its place taken wherever one is free. Where nearly all
are used, the operands and products of a row then cross the device.

Multipliers are in three rows of the device, block RAMs in four, each in thirteen groups of four. Two matrix rows get
four groups of each, one above the other: three pairs of them share a row of multipliers. The multifunction units, which
exchange vectors with all rows, have a place in the middle, and the vector memories are beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, product

#: Columns at which the groups begin, and those of the multipliers and block RAMs within one.
GROUPS = (4, 13, 22, 31, 40, 49, 58, 69, 78, 87, 96, 105, 114)
MULTIPLIERS, BLOCK_RAMS = (0, 1, 4, 5), (0, 2, 4, 6)
#: Groups of a third of the device.
_LEFT, _MIDDLE, _RIGHT = range(4), range(4, 8), range(8, 12)
#: For every two matrix rows their groups, and its rows of multipliers and of block RAMs: of rows that share their
#: multipliers, and of rows whose lanes are in memories of their own, which are nearer to their multipliers.
_PAIRS = (
    (_LEFT, 10, 22), (_MIDDLE, 10, 22), (_RIGHT, 10, 22), (_RIGHT, 34, 46), (_LEFT, 34, 46),
    (_LEFT, 58, 82), (_MIDDLE, 58, 82), (_RIGHT, 58, 82),
)  # fmt: skip
_LANES = (
    (_LEFT, 10, 22), (_MIDDLE, 10, 22), (_RIGHT, 10, 22), (_RIGHT, 34, 46), (_LEFT, 34, 46),
    (_LEFT, 58, 70), (_MIDDLE, 34, 46), (_RIGHT, 58, 70),
)  # fmt: skip
#: Rows of block RAMs below the matrix rows that have their block RAMs above.
_INNER, _OUTER = 70, 82
#: Names of the block RAMs of vectors and of the program.
_NARROW, _WIDE, _PROGRAM = (rf"core\.core\.{memory}\.bank0\.column(\d+)" for memory in ("narrow", "wide", "program"))


def multipliers(groups: Iterable[int], row: int) -> list[str]:
    """Sites of the multipliers of some groups in a row of the device, as nextpnr names them."""
    return [f"X{GROUPS[group] + k}/Y{row}/MULT18_{k}" for group in groups for k in MULTIPLIERS]


def block_rams(groups: Iterable[int], row: int) -> list[str]:
    """Sites of the block RAMs of some groups in a row of the device, as nextpnr names them."""
    return [f"X{GROUPS[group] + k}/Y{row}/EBR{k // 2}" for group in groups for k in BLOCK_RAMS]


#: Patterns of names of cells, and the sites of those that match, in the order of the numbers in their names.
Rules = Iterator[tuple[str, Sequence[str]]]


def pairs() -> Rules:
    """Rules of rows that share their multipliers. Columns of both take turns, as lanes lie from left to right."""
    for pair, (groups, dsp, ram) in enumerate(_PAIRS):
        yield rf"core\.core\.pipe\.mvm\.pair{pair}\.mul(\d+)\.shared\.mult", multipliers(groups, dsp)
        for row in range(2):
            name = rf"core\.core\.matrix\.row{2 * pair + row}\.bank0\.column(\d+)"
            yield name, block_rams(groups, ram)[row::2]
    yield from _units(multipliers(_MIDDLE, 34), block_rams((4, 5), 46))
    yield _PROGRAM, block_rams((6,), 46)
    vectors = block_rams(range(12), _INNER)
    yield _NARROW, vectors[1::3]
    yield _WIDE, [site for k, site in enumerate(vectors) if k % 3 != 1]


def lanes() -> Rules:
    """Rules of rows whose lanes are in memories of their own, side by side, and of all that codes and training need."""
    for pair, (groups, dsp, ram) in enumerate(_LANES):
        for row in range(2):
            number, half = 2 * pair + row, groups[2 * row :][:2]
            yield rf"core\.core\.pipe\.mvm\.row{number}\.mul(\d+)\.mult", multipliers(half, dsp)
            name = rf"core\.core\.matrix\.row{number}\.lane(\d+)\.bank0\.column(\d+)"
            yield name, block_rams(half, ram)
    middle = multipliers(_MIDDLE, 58)
    yield from _units(middle[:8], block_rams((5,), _INNER))
    for k, (unit, part) in enumerate(product((r"engine\.lane", r"mfu0\.scale_"), ("low", "high"))):
        yield rf"core\.core\.pipe\.{unit}(\d+)\.{part}\.mult", middle[8 + k :: 4]
    yield _PROGRAM, block_rams((4,), _INNER)
    inner = block_rams((6, 7), _INNER)
    yield r"core\.core\.pipe\.engine\.tensors\.tensors\.store(\d+)\.0\.(\d+)", inner[:3]
    outer = block_rams(range(1, 12), _OUTER)
    mixed = outer[1::4]
    yield _NARROW, [*mixed[:5], *inner[3:], *mixed[5:]]
    yield _WIDE, [site for k, site in enumerate(outer) if k % 4 != 1]


def _units(sites: Sequence[str], tables: Sequence[str]) -> Rules:
    """Rules of the multipliers and tables of the multifunction units."""
    for unit in range(2):
        yield rf"core\.core\.pipe\.mfu{unit}\.mul_(\d+)\.multiplier\.mult", sites[unit::2]
    for unit in range(2):
        name = rf"core\.core\.pipe\.mfu{unit}\.tables\.table_(\d+)\.bank0\.column(\d+)"
        yield name, tables[unit::2]


def places(names: Iterable[str], rows: Callable[[], Rules] = pairs) -> dict[str, str]:
    """Sites by name of a cell, for those of the cells that have one.

    A kind of cells of which there are more than sites is left to the placer.
    """
    names = list(names)
    places: dict[str, str] = {}
    for pattern, sites in rows():
        cells = _matching(pattern, names)
        if len(cells) <= len(sites):
            places |= dict(zip(cells, sites, strict=False))
    return places


def sites(names: Iterable[str], rows: Callable[[], Rules]) -> dict[str, str]:
    """Sites by name of a cell, for the cells of a whole netlist that have one, as :func:`places` gives them.

    Raises
    ------
    ValueError
        If the netlist has no cell of some kind: cells with other names would be placed anywhere.
    """
    names = list(names)
    for pattern, _ in rows():
        if not _matching(pattern, names):
            raise ValueError(f"cells of the netlist must have names like {pattern}, and none has")
    return places(names, rows)


def _matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Names that a pattern matches, in the order of their numbers."""
    matches = (match for name in names if (match := re.fullmatch(pattern, name)))
    return [match[0] for match in sorted(matches, key=lambda match: tuple(map(int, match.groups())))]


def all_sites(rows: Callable[[], Rules] = pairs) -> list[str]:
    """Every site that a cell can be given."""
    return list(chain.from_iterable(sites for _, sites in rows()))
