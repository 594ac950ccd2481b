"""Values to memory words: weights in the order the tile engines read them, vectors padded to the native dimension."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from concord.golden import binary16
from concord.golden.blocks import Quantized, dequantize, quantize, quantize_float
from concord.image.words import pack_words, to_integers, unpack_words
from concord.spec.config import NpuConfig
from concord.spec.formats import BlockFormat
from concord.spec.operations import Mem
from concord.spec.windows import tap_lanes
from concord.utils.arrays import FloatArray, Ints

#: Type of elements of vectors.
Element = TypeVar("Element", bound=np.generic)


def _up(count: int, unit: int) -> int:
    """Units needed for ``count`` things."""
    return -(-count // unit)


def matrix_words(config: NpuConfig, outputs: int, inputs: int, taps: int = 1) -> int:
    """Matrix memory words of a dense product."""
    return _up(outputs, config.rows) * taps * _up(inputs, config.native) * config.steps


def depthwise_words(config: NpuConfig, channels: int, taps: int) -> int:
    """Matrix memory words of a depthwise product."""
    return _up(channels, config.native) * _up(taps, config.lanes)


def _blocks(values: FloatArray, fmt: BlockFormat, mant: int | None) -> Quantized:
    """Blocks of a format whose values have mantissas of ``mant`` bits."""
    if mant is not None and mant != fmt.mant:
        coarse = quantize_float(values, fmt.narrowed(mant))
        values = dequantize(coarse.mant, coarse.exp)
    return quantize_float(values, fmt)


def quantize_matrix(weights: ArrayLike, config: NpuConfig, mant: int | None = None) -> Quantized:
    """Quantise dense weights as the tile engines hold them.

    Parameters
    ----------
    weights : floats ``[outputs, inputs]`` or ``[outputs, kh, kw, inputs]``
        Inputs are split into native vectors per tap and padded with zeros, outputs likewise.
    mant : int, optional
        Round to mantissas of fewer bits than those of the configuration, which hold them exactly.

    Returns
    -------
    Quantized
        ``mant[G * T * N, taps, cols, N]`` and ``exp[G * T * N, taps, cols]``: one block per row of a native tile.
    """
    return _blocks(_tiles(weights, config), config.wgt, mant)


def _tiles(weights: ArrayLike, config: NpuConfig) -> FloatArray:
    """Dense weights as ``[G * T * N, taps, cols, N]``, padded with zeros."""
    dense = np.asarray(weights, dtype=np.float64)
    if dense.ndim not in (2, 4) or 0 in dense.shape:
        raise ValueError(f"weights must be [outputs, inputs] or [outputs, kh, kw, inputs], not shape {dense.shape}")
    outputs, inputs = dense.shape[0], dense.shape[-1]
    taps = dense.reshape(outputs, -1, inputs)
    n, cols = config.native, _up(inputs, config.native)
    padded = np.zeros((_up(outputs, config.rows) * config.rows, taps.shape[1], cols * n))
    padded[:outputs, :, :inputs] = taps
    return padded.reshape(*padded.shape[:2], cols, n)


def _from_tiles(tiles: FloatArray, shape: tuple[int, ...]) -> FloatArray:
    """Inverse of :func:`_tiles`."""
    rows = tiles[: shape[0]]
    return rows.reshape(*rows.shape[:2], -1)[..., : shape[-1]].reshape(shape)


def rounded_matrix(weights: ArrayLike, config: NpuConfig, mant: int | None = None) -> FloatArray:
    """Dense weights as the tile engines have them, in the same shape; arguments as for :func:`quantize_matrix`."""
    blocks = quantize_matrix(weights, config, mant=mant)
    return _from_tiles(dequantize(blocks.mant, blocks.exp), np.shape(weights))


def matrix_units(weights: ArrayLike, config: NpuConfig, mant: int) -> FloatArray:
    """Values of one unit of the mantissa of each dense weight, in the same shape.

    Multiples of it, up to the largest mantissa of ``mant`` bits, are held exactly in the place of the weights.
    """
    tiles = _tiles(weights, config)
    exponents = quantize_float(tiles, config.wgt.narrowed(mant)).exp
    return _from_tiles(np.broadcast_to(np.ldexp(1.0, exponents)[..., None], tiles.shape), np.shape(weights))


def pack_blocks(mant: ArrayLike, exp: ArrayLike, config: NpuConfig) -> list[int]:
    """Lay ``mant[G * T * N, taps, cols, N]``, ``exp[G * T * N, taps, cols]`` out as words of the matrix region."""
    mants = np.asarray(mant, dtype=np.int64)
    rows, taps, cols, n = mants.shape
    if n != config.native or rows % config.rows:
        raise ValueError(f"blocks must be [multiple of {config.rows}, taps, cols, {config.native}], not {mants.shape}")
    groups = rows // config.rows
    slices = mants.reshape(groups, config.rows, taps, cols, config.steps, config.lanes).transpose(0, 2, 3, 4, 1, 5)
    exps = np.asarray(exp, dtype=np.int64).reshape(groups, config.rows, taps, cols, 1).transpose(0, 2, 3, 4, 1)
    stored = np.broadcast_to(exps - config.wgt_exp_min, slices.shape[:-1])
    return to_integers(
        pack_words(config.matrix_row, mant=slices.reshape(-1, config.lanes), exp=stored.reshape(-1)),
    )


def pack_matrix(weights: ArrayLike, config: NpuConfig, mant: int | None = None) -> list[int]:
    """Quantise dense weights and return the words of the matrix region, in host address order.

    Matrix word w and row b are at index ``w * T*N + b``; b counts the rows of engine 0 first. ``weights`` and ``mant``
    as for :func:`quantize_matrix`; with several column tiles per tap, ``cols`` is ``ceil(inputs / N)``.
    """
    blocks = quantize_matrix(weights, config, mant)
    return pack_blocks(blocks.mant, blocks.exp, config)


def pack_columns(blocks: Quantized, config: NpuConfig) -> NDArray[np.uint16]:
    """Dense blocks as columns of the external memory, row of a tile by row, in the order of the matrix memory."""
    groups, (_, taps, cols, n) = len(blocks.mant) // config.rows, blocks.mant.shape
    mant = np.asarray(blocks.mant, np.int64).reshape(groups, config.rows, taps, cols, n).transpose(0, 2, 3, 1, 4)
    exp = np.asarray(blocks.exp, np.int64).reshape(groups, config.rows, taps, cols).transpose(0, 2, 3, 1)
    count, bits = config.column_mantissas, config.sdram.width // config.column_mantissas
    codes = (mant.reshape(-1, n // count, count) & (1 << config.wgt_mant) - 1) << bits * np.arange(count)
    stored = exp.reshape(-1, 1) - config.wgt_exp_min
    return np.concatenate([stored, codes.sum(axis=2)], axis=1).astype(np.uint16).ravel()


def to_vector_columns(config: NpuConfig, mem: Mem, *fields: NDArray[Any]) -> NDArray[np.uint16]:
    """Vectors as columns ``[count, columns]`` of the external memory.

    ``fields`` are patterns ``[count, N]`` of wide vectors, or mantissas ``[count, N]`` and exponents ``[count]``.
    """
    if mem is Mem.WIDE:
        return fields[0].astype(np.uint16)
    layout, size = config.narrow_word, config.sdram.width // 8 * config.vector_columns(mem)
    words = pack_words(layout, **dict(zip((field.name for field in layout.fields), fields, strict=True)))
    padded = np.zeros((len(words), size), dtype=np.uint8)
    padded[:, : layout.nbytes] = words
    return padded.view("<u2")


def from_vector_columns(config: NpuConfig, mem: Mem, columns: NDArray[np.uint16]) -> tuple[Ints, ...]:
    """Inverse of :func:`to_vector_columns`; bits above a word are left out."""
    if mem is Mem.WIDE:
        return (columns.astype(np.int64),)
    layout = config.narrow_word
    data = np.ascontiguousarray(columns, dtype="<u2").view(np.uint8)[:, : layout.nbytes]
    return tuple(unpack_words(layout, data).values())


def quantize_depthwise(weights: ArrayLike, config: NpuConfig, mant: int | None = None) -> Quantized:
    """Quantise depthwise weights ``[channels, kh, kw]``: ``mant[channels, kh * kw]``, one exponent per channel.

    ``mant`` as for :func:`quantize_matrix`.
    """
    kernels, fmt = _kernels(weights, config)
    return _blocks(kernels, fmt, mant)


def _kernels(weights: ArrayLike, config: NpuConfig) -> tuple[FloatArray, BlockFormat]:
    """Depthwise weights as ``[channels, kh * kw]``, and the format with such blocks."""
    taps = np.asarray(weights, dtype=np.float64)
    if taps.ndim != 3 or 0 in taps.shape:
        raise ValueError(f"weights must be [channels, kh, kw], not shape {taps.shape}")
    kernels = taps.reshape(len(taps), -1)
    return kernels, replace(config.wgt, block=kernels.shape[1])


def rounded_depthwise(weights: ArrayLike, config: NpuConfig, mant: int | None = None) -> FloatArray:
    """Depthwise weights as the tile engines have them, in the same shape; as for :func:`quantize_depthwise`."""
    blocks = quantize_depthwise(weights, config, mant=mant)
    return dequantize(blocks.mant, blocks.exp).reshape(np.shape(weights))


def depthwise_units(weights: ArrayLike, config: NpuConfig, mant: int) -> FloatArray:
    """Values of one unit of the mantissa of each depthwise weight, in the same shape; see :func:`matrix_units`."""
    kernels, fmt = _kernels(weights, config)
    exponents = quantize_float(kernels, fmt.narrowed(mant)).exp
    return np.broadcast_to(np.ldexp(1.0, exponents)[:, None], kernels.shape).reshape(np.shape(weights))


def pack_depthwise(weights: ArrayLike, config: NpuConfig, mant: int | None = None, sliding: bool = False) -> list[int]:
    """Quantise depthwise weights ``[channels, kh, kw]`` and return the words of the matrix region, by address.

    Tap t of a channel is in lane ``t % L`` of word ``t // L`` of its native tile; rows of the other engines are zero.
    For a ``sliding`` product a tile has one word, and :mod:`concord.spec.windows` says which lane has which tap.
    """
    blocks = quantize_depthwise(weights, config, mant)
    channels, taps = blocks.mant.shape
    lane = np.arange(taps)
    if sliding:
        _, kh, kw = np.shape(weights)
        if taps > config.window_taps:
            raise ValueError(f"windows must have at most window_taps={config.window_taps} taps, not {taps}")
        lane = np.array(tap_lanes((kh, kw), config.lanes))
    tiles, words = _up(channels, config.native), _up(taps, config.lanes)
    mants = np.zeros((tiles, config.rows, words * config.lanes), dtype=np.int64)
    exps = np.full((tiles, config.rows), config.wgt_exp_min)
    for tile in range(tiles):
        part = slice(tile * config.native, min((tile + 1) * config.native, channels))
        mants[tile, : part.stop - part.start, lane] = blocks.mant[part].T
        exps[tile, : part.stop - part.start] = blocks.exp[part]
    lanes = mants.reshape(tiles, config.rows, words, config.lanes).transpose(0, 2, 1, 3)
    stored = np.broadcast_to(exps[:, None, :] - config.wgt_exp_min, lanes.shape[:-1])
    return to_integers(pack_words(config.matrix_row, mant=lanes.reshape(-1, config.lanes), exp=stored.reshape(-1)))


def to_vectors(values: NDArray[Element], config: NpuConfig) -> NDArray[Element]:
    """Split the last dimension into native vectors ``[vectors, N]``, padded with zeros: patterns, or integers."""
    n = config.native
    lines = values.reshape(-1, values.shape[-1]) if values.ndim else values.reshape(1, 1)
    padded = np.zeros((len(lines), _up(lines.shape[1], n) * n), dtype=values.dtype)
    padded[:, : lines.shape[1]] = lines
    return padded.reshape(-1, n)


def pack_vectors(values: ArrayLike, config: NpuConfig) -> list[int]:
    """Round floats ``[..., elements]`` to binary16; wide words, the last dimension padded to native vectors.

    Arrays of uint16 are patterns already.
    """
    array = np.asarray(values)
    patterns = array if array.dtype == np.uint16 else binary16.encode(array)
    return to_integers(pack_words(config.wide_word, elem=to_vectors(patterns, config)))


def pack_narrow(values: ArrayLike, config: NpuConfig) -> list[int]:
    """Floats ``[vectors, native]`` as narrow words, rounded to binary16 and then with dynamic exponents.

    Arrays of int64 are mantissas already, with exponents of zero.
    """
    array = np.asarray(values)
    mant, exp = array, np.zeros(len(array), np.int64)
    if array.dtype != np.int64:
        mant, exp, *_ = quantize(binary16.encode(array.astype(np.float64)), config.act)
    return to_integers(pack_words(config.narrow_word, mant=mant, exp=exp))


def from_vectors(vectors: NDArray[Element], shape: tuple[int, ...], config: NpuConfig) -> NDArray[Element]:
    """Inverse of :func:`to_vectors`."""
    last = shape[-1] if shape else 1
    per_line = _up(last, config.native)
    lines = int(np.prod(shape[:-1], dtype=np.int64)) if shape else 1
    if vectors.shape != (lines * per_line, config.native):
        raise ValueError(f"vectors must be {lines * per_line} for shape {shape}, not {len(vectors)}")
    return vectors.reshape(lines, per_line * config.native)[:, :last].reshape(shape)
