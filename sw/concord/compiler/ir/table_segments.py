"""Segmented tables, chosen by what a function reads on calibration data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from concord.compiler.ir.activations import codes_of_table, fixed_entries, has_pole, others_share, shared
from concord.compiler.ir.layers import AnyLayer
from concord.compiler.ir.table_specs import RELU, Functions, TableSpec
from concord.functions import evaluate
from concord.functions.segmented import TableSegment
from concord.functions.tables import SCALES
from concord.golden import binary16
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Values of a tensor that decide; more of them change nothing.
_SAMPLE = 4096
#: Share of the greatest value that is covered beyond it.
MARGIN = 0.125
#: log2 of codes per unit at which all positive binary16 numbers differ.
_FINEST = 24


def sample(values: FloatArray) -> FloatArray:
    """Sorted values, as a table reads them, evenly spread over all there are; ``[n]``."""
    every = np.sort(binary16.decode(binary16.encode(np.clip(values, -BINARY16_MAX, BINARY16_MAX))), axis=None)
    return np.asarray(every[np.linspace(0, every.size - 1, min(every.size, _SAMPLE)).astype(int)])


def function_values(functions: Functions, x: FloatArray) -> FloatArray:
    """Values of functions that are applied one after the other, limited to the numbers of binary16."""
    with np.errstate(all="ignore"):
        y = evaluate([(name, dict(parameters)) for name, parameters in functions], x)
    return np.asarray(np.clip(y, -BINARY16_MAX, BINARY16_MAX))


def nearest_inputs(segments: Sequence[TableSegment], x: FloatArray) -> FloatArray:
    """The inputs whose function values tables, each for a segment of the inputs, have for ``x``, in its shape."""
    stops = [segment.stop for segment in segments if segment.stop is not None]
    return np.asarray(np.choose(np.searchsorted(stops, x), [segment.nearest(x) for segment in segments]))


def table_error(functions: Functions, segments: Sequence[TableSegment], x: FloatArray) -> float:
    """Root mean square of the relative errors of tables for inputs ``x``, of which none counts more than 100 %."""
    want = function_values(functions, x)
    error = np.abs(function_values(functions, nearest_inputs(segments, x)) - want)
    relative = np.divide(error, np.abs(want), out=np.ones_like(want), where=np.abs(want) > error)
    return float(np.sqrt(np.mean(np.where(error > 0, relative, 0.0) ** 2)))


def _direction(functions: Functions, greatest: float) -> int:
    """1 if the function rises from 0 to ``greatest``, -1 if it falls, 0 if it does neither or both."""
    x = np.concatenate([[0.0], greatest * np.exp2(np.linspace(-40, 0, 2048)), np.linspace(0, greatest, 2048)])
    change = np.diff(function_values(functions, np.sort(x)))
    if not change.any():
        return 0
    return int((change >= 0).all()) - int((change <= 0).all())


def _laid_out(scales: Sequence[int], entries: int, greatest: float, falling: bool) -> tuple[TableSegment, ...] | None:
    """Segments with these scales, finest first, each with as many entries as possible; ``None`` if they do not fit."""
    segments: list[TableSegment] = []
    low, start = 0, None
    for scale, coarser in pairwise(scales):
        step = 1 << scale - coarser
        # Between this code of the coarser segment and the next.
        border = (low + entries - 1 - falling - step // 2) // step
        high = border * step + step // 2
        if border < 1 or high <= low:
            return None
        stop = (border + 0.5) * 2.0**-coarser
        segments.append(TableSegment(low, high + falling, scale, start, stop, falling))
        low, start = border + falling, stop
    high = int(np.ceil(np.ldexp(greatest, scales[-1])))
    if not low < high < low + entries:
        return None
    return (*segments, TableSegment(low, high, scales[-1], start, None, falling))


def divided(functions: Functions, x: FloatArray, count: int, entries: int) -> tuple[TableSegment, ...] | None:
    """The segments with the least error.

    Parameters
    ----------
    functions : Functions
        What the tables hold, applied one after the other.
    x : array ``[n]``
        Inputs, as :func:`sample` gives them.
    count : int
        Number of segments, at least 2.
    entries : int
        Entries of all of them together.

    Returns
    -------
    tuple of TableSegment or None
        From small inputs to large ones, with scales that are evenly spaced as far as possible; ``None`` if inputs are
        below zero, the function does not rise or fall all the way, or entries are too few.
    """
    room, greatest = entries // count, float(x[-1]) * (1 + MARGIN)
    direction = _direction(functions, greatest) if x[0] >= 0 and greatest > 0 else 0
    if not direction or room < 4:
        return None
    last = max((s for s in SCALES if np.ceil(np.ldexp(greatest, s)) < room), default=SCALES[-1])
    choices = []
    for first in range(last + count - 1, _FINEST + 1):
        scales = np.rint(np.linspace(first, last, count)).astype(int).tolist()
        segments = _laid_out(scales, room, greatest, direction < 0)
        if segments is not None and has_pole(functions):  # it is far from what the least numbers have
            segments = replace(segments[0], low=1), *segments[1:]
        if segments is not None:
            choices.append((table_error(functions, segments, x), first, segments))
    return min(choices, key=lambda choice: choice[:2])[2] if choices else None


def stored_codes(layers: Sequence[AnyLayer], config: NpuConfig) -> dict[TableSpec, tuple[int, int, int]]:
    """Least code, greatest code and scale of the tables in which the functions of layers are looked up."""
    specs = list(dict.fromkeys(spec for layer in layers for spec in layer.table_specs if spec != RELU))
    fixed = [spec for spec in specs if fixed_entries(spec)]
    others = [spec for spec in specs if spec not in fixed]
    share = others_share(others, fixed, config)
    held = shared(others, config.table_slots - len(fixed)) | {spec: spec for spec in fixed}
    return {spec: codes_of_table(held[spec], config, share) for spec in specs}


def available(layers: Sequence[AnyLayer], own: TableSpec, config: NpuConfig) -> tuple[int, int, TableSegment]:
    """Tables and entries that are left for a function in the place of its table.

    Parameters
    ----------
    layers : sequence of Layer
        Of the network, with the function as one table.
    own : TableSpec
        That table.

    Returns
    -------
    tables, entries : int
        Greatest number of tables, and their entries together, if all other tables stay as large as they are.
    segment : TableSegment
        The table itself.
    """
    used = [spec for layer in layers for spec in layer.table_specs if spec != RELU]
    fixed = list(dict.fromkeys(spec for spec in used if fixed_entries(spec)))
    specs = [spec for spec in dict.fromkeys(used) if spec not in fixed]
    share = others_share(specs, fixed, config)
    held = shared(specs, config.table_slots - len(fixed))

    def table(spec: TableSpec) -> TableSegment:
        return TableSegment(*codes_of_table(spec, config, share))

    others = {held[spec] for spec in specs if spec != own or used.count(own) > 1}
    largest = max((table(spec).entries for spec in others), default=0)
    taken = len(others) * largest + sum(fixed_entries(spec) or 0 for spec in fixed)
    return config.table_slots - len(others) - len(fixed), config.table_depth - taken, table(held[own])
