"""Products of blocks: where blocks begin among the products of a sum, weights as mantissas with exponents, sums."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.c.storage import CArray, StoredBlocks, View, moved
from concord.derive.evaluate import least, units_of
from concord.derive.flags import accumulator_limit
from concord.golden import accumulate, binary16
from concord.spec.formats import BINARY16_FRAC
from concord.utils.arrays import FloatArray, Ids

#: Bits of the sums in one word and in two, without the sign.
_NARROW, _WIDE = 62, 126
#: Exponent of the unit of 0, which is a multiple of any.
_NO_UNIT = 1 << 20
#: Bits of the significand of a binary16 number, with its sign, and exponents of its lowest bit.
HALF_LAYOUT = StoredBlocks(12, (1,), -BINARY16_FRAC, 5)


@dataclass(frozen=True)
class BlockView:
    """A view as mantissas and exponents: both are views, of the same storages and of those of their exponents.

    Parameters
    ----------
    codes, exponents : View
        ``[..., elements]`` and ``[..., blocks]``.
    sizes : tuple of int
        Elements of each block along the last axis.
    layout : StoredBlocks
        With the type of mantissas and the range of exponents.
    """

    codes: View
    exponents: View
    sizes: tuple[int, ...]
    layout: StoredBlocks


def exponent_storage(storage: CArray) -> CArray:
    """A storage of the exponents of another one, for views of them."""
    assert storage.block is not None
    return CArray(storage.name, (*storage.shape[:-1], len(storage.block.sizes)), storage.place)


def block_view(view: View) -> BlockView | None:
    """A view of blocks as such; ``None`` if it has elements that are none."""
    layouts = [source.block for source in view.sources]
    if view.fill[np.unique(-1 - view.index[view.index < 0])].any():
        return None
    if any(layout is None for layout in layouts):
        return None
    blocks = [layout for layout in layouts if layout is not None]
    if len({layout.kind for layout in blocks}) > 1:
        return None
    ends = min(b.least for b in blocks), max(b.greatest for b in blocks)
    layout = StoredBlocks(max(b.mant for b in blocks), blocks[0].sizes, *ends)
    if view.window is not None and view.inner is not None:
        inner = _divided(replace(view.inner, index=view.inner.index.reshape(*view.inner.index.shape[:2], -1)))
        if inner is not None:
            exponents, sizes = inner
            if view.index.shape[-1] % sum(sizes) == 0:
                repeats = view.index.shape[-1] // sum(sizes)
                own = _windows_of(view, exponents, (*view.index.shape[:-1], repeats * len(sizes)))
                return BlockView(view, own, sizes * repeats, layout)
    divided = _divided(view)
    return None if divided is None else BlockView(view, *divided, layout)


def _windows_of(view: View, exponents: View, shape: ir.Shape) -> View:
    """The exponents of windows: windows of those of the map."""
    assert view.window is not None
    size = exponents.index.shape[-1]
    output = replace(view.window.output, shape=(*view.window.output.shape[:2], *view.window.kernel, size))
    window = replace(view.window, output=output)
    made = moved(window, [exponents])
    return replace(made, index=made.index.reshape(shape), window=window, inner=exponents)


def _divided(view: View) -> tuple[View, tuple[int, ...]] | None:
    """The exponents of a view ``[..., blocks]``, and the sizes of the blocks along its last axis."""
    sources = tuple(exponent_storage(source) for source in view.sources)
    starts = np.cumsum([0, *(source.size for source in sources)])
    numbers = np.concatenate([start + source.exponents for start, source in zip(starts, view.sources, strict=False)])
    rows = view.index.reshape(-1, view.index.shape[-1])
    own = np.where(rows < 0, -1, numbers[np.maximum(rows, 0)])
    changes = ((own[:, 1:] != own[:, :-1]) & (own[:, 1:] >= 0) & (own[:, :-1] >= 0)).any(axis=0)
    begins = np.concatenate([[0], np.flatnonzero(changes) + 1])
    great = np.maximum.reduceat(own, begins, axis=1)
    small = np.minimum.reduceat(np.where(own < 0, np.iinfo(np.int64).max, own), begins, axis=1)
    if ((great >= 0) & (great != small)).any():
        begins, great = np.arange(rows.shape[1]), own
    sizes = np.diff(np.append(begins, rows.shape[1]))
    index = great.reshape(*view.index.shape[:-1], len(begins))
    return View(sources, index, np.zeros(1, np.uint16)), tuple(sizes.tolist())


@dataclass(frozen=True)
class ProductRuns:
    """Products of a sum, in runs with one exponent in both factors.

    Parameters
    ----------
    sizes : tuple of int
        Products of each run.
    block : tuple of int
        Of every run, which block of the source it belongs to.
    kind : str
        Type of the mantissas of weights.
    least, greatest : int
        Range of their exponents.
    """

    sizes: tuple[int, ...]
    block: tuple[int, ...]
    kind: str
    least: int
    greatest: int


@dataclass(frozen=True)
class WeightArrays:
    """Weights as mantissas with an exponent for every run of products.

    Parameters
    ----------
    codes : array ``[sums, products]``
    exponents : array ``[sums, runs]``
    runs : ProductRuns
    """

    codes: Ids
    exponents: Ids
    runs: ProductRuns


def matrix_runs(sizes: tuple[int, ...], matrix: BlockView | None) -> tuple[ProductRuns, Ids]:
    """Runs of products with a matrix that is computed, by the blocks of the source and of its own, and the latter.

    Without blocks every element of it has an exponent.
    """
    layout = HALF_LAYOUT if matrix is None else matrix.layout
    own = (1,) * sum(sizes) if matrix is None else matrix.sizes
    starts, own_starts = (np.cumsum([0, *lengths[:-1]]) for lengths in (sizes, own))
    begins = np.union1d(starts, own_starts)
    block, which = (np.searchsorted(some, begins, side="right") - 1 for some in (starts, own_starts))
    lengths = np.diff(np.append(begins, sum(sizes)))
    numbers = tuple(lengths.tolist()), tuple(block.tolist())
    return ProductRuns(*numbers, layout.kind, layout.least, layout.greatest), which


def weights_of(weight: FloatArray, sizes: tuple[int, ...], cuts: npt.ArrayLike = ()) -> WeightArrays:
    """Weights ``[sums, products]`` by the blocks of their source, which are also cut at some products."""
    starts = np.cumsum([0, *sizes[:-1]])
    begins = np.unique(np.concatenate([starts, np.asarray(cuts, np.int64)])).astype(np.int64)
    for bits in (7, 15):
        made = _mantissas(weight, begins, bits)
        if made is not None:
            break
    else:
        begins = np.arange(weight.shape[1])
        made = _mantissas(weight, begins, 15)
        if made is None:
            raise ValueError("weights must have mantissas of at most 16 bits")
    codes, exponents = made
    block = np.searchsorted(starts, begins, side="right") - 1
    lengths = np.diff(np.append(begins, weight.shape[1]))
    kind = "int8" if not codes.size or np.abs(codes).max() < 1 << 7 else "int16"
    ends = int(exponents.min(initial=0)), int(exponents.max(initial=0))
    return WeightArrays(codes, exponents, ProductRuns(tuple(lengths.tolist()), tuple(block.tolist()), kind, *ends))


def _mantissas(weight: FloatArray, begins: Ids, bits: int) -> tuple[Ids, Ids] | None:
    """Mantissas below ``2**bits`` and exponents, the greatest that are exact; ``None`` if there are none."""
    whole = np.abs(weight)
    unit = np.where(whole == 0, _NO_UNIT, units_of(whole))
    exponents = np.minimum.reduceat(unit, begins, axis=1)
    none = exponents == _NO_UNIT
    exponents = np.where(none, 0, exponents)
    lengths = np.diff(np.append(begins, weight.shape[1]))
    scale = np.repeat(exponents, lengths, axis=1)
    codes = np.ldexp(weight, -scale)
    if np.abs(codes).max(initial=0.0) >= 1 << bits or np.abs(exponents).max(initial=0) > 127:
        return None
    return codes.astype(np.int64), exponents


@dataclass(frozen=True)
class SumPlan:
    """Arithmetic of sums: their unit, words, limits and ends.

    Parameters
    ----------
    unit : int
        Sums are multiples of ``2**unit``.
    wide : bool
        True if sums take two words.
    limit : int or None
        Sums are cut off that are not in ``-2**limit .. 2**limit - 1`` units.
    ends : tuple
        Patterns of sums that are cut off, above and below.
    register : int or None
        As ``limit``, of the register that adds up.
    register_ends : tuple
        Patterns of sums that leave it, above and below, and whether they count as cut off.
    offset : list of int or None
        In units of ``2**(unit + offset_shift)``.
    offset_shift : int
    """

    unit: int
    wide: bool
    limit: int | None
    ends: tuple[int, int]
    register: int | None
    register_ends: tuple[tuple[int, bool], tuple[int, bool]]
    offset: list[int] | None
    offset_shift: int


def sum_plan(node: ir.ExactSums, runs: ProductRuns, layout: StoredBlocks) -> SumPlan:
    """The plan of a product; ``ValueError`` if it takes more than two words, or its offset more than one."""
    name = node.layer or node.output.name
    unit = layout.least + runs.least
    offset_of = node.offset if isinstance(node, ir.Products) else None
    constant = offset_of if offset_of is not None and offset_of.any() else None
    ended = node.register if isinstance(node, ir.Products) else 0
    if constant is not None:
        unit = min(unit, least(constant))
    unit = min(unit, -node.frac) if ended else unit
    bits = int(np.ceil(np.log2(max(node.bound, 2.0**-60)))) - unit + 1
    shift = layout.greatest + runs.greatest - unit
    limit = node.width - 1 - node.frac - unit
    cut = node.bound >= accumulator_limit(node)
    register = ended - 1 - node.frac - unit if ended else None
    need = max(bits, *([limit] if cut else []), *([register + 1] if register is not None else []), 0)
    wide = need > _NARROW or shift > 63
    if need > _WIDE or shift > 127 or (cut and limit < 0):
        raise ValueError(f"sums of {name} must have at most {_WIDE} bits in C, not {need}")
    ends = tuple(_rounded(sign << node.width, node) for sign in (1, -1))
    register_ends = ((0, False), (0, False))
    if ended:
        top = 1 << ended - 1
        register_ends = (_rounded(top, node), _rounded(-top - 1, node))
    offset, offset_shift = None, 0
    if constant is not None:
        offset_shift = least(constant) - unit
        offset = [int(x) for x in np.ldexp(constant, -least(constant)).reshape(-1)]
        if max(map(abs, offset)) >= 1 << 63:
            raise ValueError(f"offsets of {name} must be within 63 bits of each other in C")
    return SumPlan(
        unit, wide, limit if cut else None, (ends[0][0], ends[1][0]), register, register_ends, offset, offset_shift
    )


def _rounded(total: int, node: ir.ExactSums) -> tuple[int, bool]:
    """The pattern of a sum on the grid, and whether it is cut off."""
    bits, over, _ = accumulate.acc_to_binary16(np.array([total], dtype=object), (node.width, node.frac))
    return int(bits[0]), bool(over[0])


def constant_codes(data: ir.Bits, layout: StoredBlocks) -> tuple[Ids, Ids] | None:
    """Mantissas and exponents of constants in blocks; ``None`` if they are none."""
    if not binary16.is_finite(data).all() or (data == 0x8000).any():
        return None
    values = binary16.decode(data).reshape(-1, data.shape[-1])
    begins = np.cumsum([0, *layout.sizes[:-1]])
    made = _mantissas(values, begins, layout.mant - 1)
    if made is None:
        return None
    codes, exponents = made
    exponents = np.where(np.maximum.reduceat(np.abs(codes), begins, axis=1), exponents, layout.least)
    inside = (exponents >= layout.least) & (exponents <= layout.greatest)
    return (codes, exponents) if inside.all() else None
