"""Operands of element-wise operations in the multifunction units: tensors and constants."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from concord.compiler.ir.lane_padding import pad_lanes
from concord.compiler.ir.layers import Operand
from concord.compiler.ir.layout import PAD, LayoutError, Storage, Storages, Walk
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray, Ids

#: Numbers from here on are infinite in binary16.
_INFINITE = BINARY16_MAX + 16.0


def _parts(ids: Ids, storage: Storage) -> tuple[Ids, Ids, Ids, Ids]:
    """Row, column, vector of the position, and lane of elements."""
    local = ids - storage.base
    vector, lane = local // storage.native, local % storage.native
    position, tile = vector // storage.tiles, vector % storage.tiles
    return position // storage.width, position % storage.width, tile, lane


def box(storages: Storages, ids: Ids) -> Walk:
    """The smallest box of positions and vectors that holds a view; :class:`LayoutError` unless it is one storage."""
    of = storages.of(ids)
    if len(of) != 1 or (ids == PAD).any():
        raise LayoutError("elements must lie in one storage, without padding")
    storage = of[0]
    rows, columns, tiles, _ = _parts(ids, storage)
    y, x, v = (int(part.min()) for part in (rows, columns, tiles))
    height, width, count = (int(part.max()) - low + 1 for part, low in ((rows, y), (columns, x), (tiles, v)))
    start = (y * storage.width + x) * storage.tiles + v
    row_stride = storage.width * storage.tiles
    return Walk(storage, start, height, width, count, row_stride, storage.tiles, np.arange(count * storage.native))


def shifted(ids: Ids, walk: Walk, target: Storage) -> Ids:
    """The view ``ids`` of the box ``walk`` in a storage that holds a copy of that box."""
    rows, columns, tiles, lanes = _parts(ids, walk.storage)
    y, x, v, _ = (int(part.min()) for part in (rows, columns, tiles, lanes))
    vector = ((rows - y) * target.width + columns - x) * target.tiles + tiles - v
    return np.asarray(target.base + vector * target.native + lanes)


def check_constant(values: FloatArray, what: str = "constants") -> None:
    """Refuse constants that are no numbers of binary16 with :class:`LayoutError`."""
    largest = float(np.abs(values).max())
    if not largest < _INFINITE:
        raise LayoutError(f"{what} must be below {_INFINITE:g} in magnitude, not {largest:g}; scale them in the model")


def constant(values: FloatArray, ids: Ids, target: Storage, beyond: float | None = None) -> Operand:
    """The operand with ``values``, broadcast to the view ``ids`` of ``target``, stored once where it repeats.

    What is no element of the view gets ``beyond``, or whatever takes least space, a copy of an element if it can be.

    Raises
    ------
    LayoutError
        If an element that is in the view several times meets different values, or one is no number of binary16.
    """
    check_constant(values)
    return _placed(values, ids, target, beyond)


def pair(first: FloatArray, second: FloatArray, ids: Ids, target: Storage) -> Operand:
    """Two constants of whole numbers of 16 bits, vector by vector one after the other, as patterns; as above."""
    words = np.asarray(first, dtype=np.int64) & 0xFFFF | (np.asarray(second, dtype=np.int64) & 0xFFFF) << 16
    both = _placed(words.astype(np.float64), ids, target, None)
    assert both.constant is not None
    placed = both.constant.astype(np.int64)
    patterns = np.stack([placed & 0xFFFF, placed >> 16], axis=1).reshape(-1, target.native).astype(np.uint16)
    return replace(both, constant=patterns, row=2 * both.row, inner=2 * both.inner, outer=2 * both.outer)


def _placed(values: FloatArray, ids: Ids, target: Storage, beyond: float | None) -> Operand:
    """The operand with ``values``, as :func:`constant`."""
    full = np.broadcast_to(values, ids.shape)
    rows, columns, tiles, lanes = _parts(ids, target)
    spread = np.full((target.height, target.width, target.tiles, target.native), np.nan)
    if target.uniform:
        spread[rows, columns, tiles] = full[..., None]
    else:
        spread[rows, columns, tiles, lanes] = full
        if beyond is not None:
            spread[np.isnan(spread)] = beyond
    if not np.array_equal(spread[rows, columns, tiles, lanes], full, equal_nan=True):
        raise LayoutError("elements that are there several times must meet the same constant: apply it before that")
    spread, outer = _folded(spread, 0)
    spread, inner = _folded(spread, 1)
    spread, row = _folded(spread, 2)
    vectors = pad_lanes(spread).reshape(-1, target.native)
    width, depth = spread.shape[1], spread.shape[2]
    return Operand(
        constant=vectors, row=1 if row else 0, inner=depth if inner else 0, outer=width * depth if outer else 0
    )


def _folded(values: FloatArray, axis: int) -> tuple[FloatArray, bool]:
    """``values`` with the axis of length 1 if it is the same everywhere, elements that are not there apart."""
    if values.shape[axis] == 1:
        return values, False
    there = ~np.isnan(values)
    low = np.where(there, values, np.inf).min(axis=axis, keepdims=True)
    high = np.where(there, values, -np.inf).max(axis=axis, keepdims=True)
    if (low >= high).all():
        return np.where(low == high, low, np.nan), False
    return values, True


def tensor(name: str, other: Ids, ids: Ids, storages: Storages, target: Storage) -> Operand:
    """The operand that reads the view ``other``, broadcast, beside the view ``ids`` of ``target``.

    Raises
    ------
    LayoutError
        If elements that meet are not in the same lane, or the vectors do not follow the loops where they lie.
    """
    of = storages.of(other)
    if len(of) != 1 or (other == PAD).any():
        raise LayoutError(f"operand {name} must lie in one storage, without padding")
    full = np.broadcast_to(other, ids.shape).reshape(-1)
    rows, columns, tiles, lanes = _parts(ids.reshape(-1), target)
    local = full - of[0].base
    vector, lane = local // target.native, local % target.native
    if not of[0].uniform and (lane != lanes).any():
        raise LayoutError(f"elements of operand {name} must be in the same lanes as those they meet")
    start, strides = int(vector[(rows + columns + tiles).argmin()]), []
    for part in (tiles, columns, rows):
        at = np.flatnonzero(part == 1)
        alone = [k for k in at if rows[k] + columns[k] + tiles[k] == 1]
        strides.append(int(vector[alone[0]]) - start if alone else 0)
    row, inner, outer = strides
    if (vector != start + tiles * row + columns * inner + rows * outer).any():
        raise LayoutError(f"vectors of operand {name} must follow those they meet")
    operand = Operand(storage=of[0], start=start, row=row, inner=inner, outer=outer, tensor=name)
    loops = operand.loops((target.height, target.width, target.tiles))
    ends = [(count - 1) * stride for count, stride in loops]
    if start + sum(min(end, 0) for end in ends) < 0 or start + sum(max(end, 0) for end in ends) >= of[0].vectors:
        raise LayoutError(f"vectors of operand {name} must be as many as those of the boxes they meet")
    of[0].in_root(start, loops)
    return operand
