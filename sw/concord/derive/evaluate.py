"""Models executed by the golden model: the definition of every node of :mod:`concord.derive.ir`, exact and slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.flags import Words, no_words, note
from concord.golden import accumulate, binary16, blocks, table
from concord.graph.element_types import of_type
from concord.graph.host_evaluation import run_on_host
from concord.spec.formats import BINARY16_FRAC, BlockFormat, ExponentMode, Flag
from concord.sums.exact import DOUBLE_BITS
from concord.utils.arrays import FloatArray, Ids

#: By value: binary16 patterns (``BINARY16``) or float64 numbers (``REAL``); ``[batch, ...]`` but for constants.
Values = dict[ir.Value, npt.NDArray[Any]]
#: Told about a flag, and where ``[batch, ...]`` elements raise it.
Note = Callable[[Flag, npt.NDArray[np.bool_]], None]


def run(
    model: ir.Model, inputs: Mapping[str, npt.ArrayLike], flag_words: Words | None = None
) -> dict[str, npt.NDArray[Any]]:
    """Outputs of a batch by the driver's names, ``[batch, *shape]``, with their types; results of the host included.

    The flag words of a model with flags are added to ``flag_words``; samples that a run computes together have the
    same. ``ValueError`` if there is no sample.
    """
    samples = {name: np.asarray(values, dtype=np.float64) for name, values in inputs.items()}
    batch = len(next(iter(samples.values())))
    if not batch:
        raise ValueError("inputs must have at least one sample, not none")
    if model.front is not None:
        samples |= run_on_host(model.front, samples)
    values: Values = {}
    for value in model.inputs:
        values[value] = grouped(samples[model.names[value.name]], model.group).reshape(-1, *value.shape)
    words = no_words(model.flags, -(-batch // model.group)) if model.flags is not None else None
    evaluate(model.body, values, words)
    if flag_words is not None and words is not None:
        flag_words.update({place: np.repeat(word, model.group)[:batch] for place, word in words.items()})
    outputs = {}
    for value in model.outputs:
        shape = value.shape[1:] if model.group > 1 else value.shape
        whole = _batch(values[value], value, -(-batch // model.group))
        outputs[model.names[value.name]] = whole.reshape(-1, *shape)[:batch]
    if model.host_partition is not None:
        outputs = host_outputs(model, samples, outputs)
    return {name: of_type(x, model.output_types.get(name)) for name, x in outputs.items()}


def grouped(values: FloatArray, group: int) -> FloatArray:
    """A batch filled up with its last sample."""
    missing = -len(values) % group
    return np.concatenate([values, np.repeat(values[-1:], missing, axis=0)]) if missing else values


def host_outputs(
    model: ir.Model, samples: Mapping[str, FloatArray], outputs: dict[str, FloatArray]
) -> dict[str, FloatArray]:
    """Results of the host from the outputs."""
    assert model.host_partition is not None
    batch = {**outputs, **{name: on_grid(x, model.grids.get(name)) for name, x in samples.items()}}
    return run_on_host(model.host_partition, batch)


def on_grid(x: FloatArray, grid: ir.InputGrid | None) -> FloatArray:
    """Numbers rounded to a grid, if there is one."""
    if grid is None:
        return x
    exponent, least, greatest = grid
    return np.asarray(np.ldexp(np.clip(np.rint(np.ldexp(x, -exponent)), least, greatest), exponent))


def evaluate(body: ir.Body, values: Values, words: Words | None = None) -> None:
    """Compute all nodes of a body, and add what they give to ``values``, and flags that they raise to ``words``."""
    for node in body:
        if isinstance(node, ir.Loop):
            _loop(node, values, words)
        else:
            raised = None if words is None else flag_recorder(node, words)
            values[node.output] = compute(node, [values[value] for value in node.inputs], raised)


def flag_recorder(node: ir.ModelNode, words: Words) -> Note | None:
    """Adds the flags of a node to words; ``ValueError`` then if one is not among those that it may raise."""
    return partial(_note, node, words) if node.where else None


def _note(node: ir.ModelNode, words: Words, flag: Flag, where: npt.NDArray[np.bool_]) -> None:
    if flag in node.may:
        note(words[node.where], flag, where)
    elif where.any():
        raise ValueError(f"{node.output.name} must be known to raise {flag.name}, and is not")


def _loop(loop: ir.Loop, values: Values, words: Words | None) -> None:
    batch = next((len(values[value]) for value in loop.inputs if value.batched), 1)
    carried = {part: _batch(values[part.initial], part.initial, batch) for part in loop.carried}
    stacked: dict[ir.Stacked, list[npt.NDArray[Any]]] = {part: [] for part in loop.stacked}
    for iteration in range(loop.count):
        inside = dict(values)
        inside |= {part.param: carried[part] for part in loop.carried}
        for scanned in loop.scanned:
            inside[scanned.param] = _batch(values[scanned.source], scanned.source, batch)[:, iteration]
        evaluate(loop.body, inside, words)
        carried = {part: _batch(inside[part.result], part.result, batch) for part in loop.carried}
        for stack, iterations in stacked.items():
            iterations.append(_batch(inside[stack.result], stack.result, batch))
    for part in loop.carried:
        if part.final is not None:
            values[part.final] = carried[part]
    for stack, iterations in stacked.items():
        values[stack.output] = np.stack(iterations, axis=1)


def _batch(array: npt.NDArray[Any], value: ir.Value, batch: int) -> npt.NDArray[Any]:
    return array if value.batched else np.broadcast_to(array, (batch, *array.shape))


def _nothing(flag: Flag, where: npt.NDArray[np.bool_]) -> None:
    """Nobody is told about flags."""


def compute(node: ir.ModelNode, x: list[npt.NDArray[Any]], raised: Note | None = None) -> npt.NDArray[Any]:
    """One node that is no loop; ``told`` is called with flags that the machine raises."""
    raised = raised or _nothing
    match node:
        case ir.Constant():
            return node.data
        case ir.Prepare():
            prepared = on_grid(x[0], node.grid)
            if node.middles is not None:
                prepared = prepared - node.middles
            if node.factors is not None:
                prepared = prepared * node.factors
            return prepared - node.offset
        case ir.ToBinary16():
            return binary16.encode(x[0])
        case ir.ToReal():
            return binary16.decode(x[0])
        case ir.Quantise():
            return quantise(node, x[0], raised)
        case ir.MatMul() | ir.Depthwise():
            return product(node, x[0], raised)
        case ir.ProductOf():
            return product_of(node, x, raised)
        case ir.Elementwise():
            return _elementwise(node, x, raised)
        case ir.Maximum():
            return _maximum(x[0], node.axis % len(node.x.shape) - len(node.x.shape))
        case ir.TableLookup():
            codes = table.index(x[0], node.low, node.high, node.scale)
            raised(Flag.NONFINITE, codes.nonfinite)
            raised(Flag.TABLE_CLAMPED, table.clamped(codes, *node.constant_ends))
            return np.asarray(node.entries[codes.code - node.low])
    return move(node, x)


# Data movement -------------------------------------------------------------------------------------


def move(node: ir.ModelNode, xs: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Data movement, on arrays ``[batch, ...]`` of any type."""
    x = xs[0]
    match node:
        case ir.Gather():
            return _gather(node, xs)
        case ir.Reshape():
            return x.reshape(len(x), *node.output.shape)
        case ir.Transpose():
            return x.transpose(0, *(axis + 1 for axis in node.perm))
        case ir.Slice():
            for axis, (start, step, count) in enumerate(zip(node.starts, node.steps, node.output.shape, strict=True)):
                x = np.take(x, start + step * np.arange(count), axis=axis + 1)
            return x
        case ir.Concat():
            return np.concatenate(xs, axis=node.axis % len(node.output.shape) + 1)
        case ir.MapWindows():
            return _windows(node, x)
    raise TypeError(f"nodes must be those of concord.derive.ir, not {type(node).__name__}")


def _gather(node: ir.Gather, xs: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    batch = max((len(x) for x, value in zip(xs, node.xs, strict=True) if value.batched), default=1)
    flat = [_batch(x, value, batch).reshape(batch, -1) for x, value in zip(xs, node.xs, strict=True)]
    fill = binary16.decode(node.fill) if node.output.type is ir.Type.REAL else node.fill
    # Index -1 - k counts from the end, where the constants are in reversed order.
    every = np.concatenate([*flat, np.broadcast_to(fill[::-1], (batch, len(fill)))], axis=1)
    return np.asarray(every[:, node.index])


def _windows(node: ir.MapWindows, x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    height, width = node.output.shape[:2]
    index = []
    inside: list[npt.NDArray[np.bool_]] = []
    for axis, count in ((0, height), (1, width)):
        taps = np.arange(node.kernel[axis]) * node.dilation[axis]
        at = node.origin[axis] + np.arange(count)[:, None] * node.stride[axis] + taps
        inside.append((at >= 0) & (at < node.x.shape[axis]))
        index.append(np.clip(at, 0, node.x.shape[axis] - 1))
    windows = x[:, index[0][:, None, :, None], index[1][None, :, None, :]]
    there = inside[0][:, None, :, None] & inside[1][None, :, None, :]
    fill = binary16.decode(node.fill) if node.output.type is ir.Type.REAL else np.uint16(node.fill)
    return np.where(there.reshape(1, *there.shape, *[1] * (windows.ndim - 5)), windows, fill)


# Arithmetic ----------------------------------------------------------------------------------------


def quantise(node: ir.Quantise, bits: ir.Bits, raised: Note = _nothing) -> ir.Bits:
    """Blocks along the last axis, each with its greatest constant beside it."""
    parts = []
    start = 0
    for count, peak in zip(node.blocks, node.peaks, strict=True):
        some = bits[..., start : start + count]
        beside = np.broadcast_to(binary16.encode(peak), (*some.shape[:-1], 1))
        noise = None
        if node.noise is not None:
            part = node.noise[..., start : start + count]
            noise = np.concatenate([part, np.zeros((*part.shape[:-1], 1), np.uint16)], axis=-1)
        form = BlockFormat(node.form.mant, count + 1, node.form.exp_min, node.form.exp_max)
        block = blocks.quantize(
            np.concatenate([some, beside], axis=-1), form, ExponentMode(node.mode), node.exp, node.rounding, noise
        )
        raised(Flag.NONFINITE, block.nonfinite)
        raised(Flag.SATURATED, block.saturated)
        parts.append(blocks.to_binary16(block.mant, block.exp)[..., :count])
        start += count
    return np.concatenate(parts, axis=-1)


def product(node: ir.MatMul | ir.Depthwise, bits: ir.Bits, raised: Note = _nothing) -> ir.Bits:
    """Sums of products with constant weights, added up in Python integers."""
    x = _integers(node, bits)
    low = least(node.weight) if node.offset is None else min(least(node.weight), least(node.offset))
    weight = _multiples(node.weight, low)
    if isinstance(node, ir.Depthwise):
        products = np.moveaxis(x * weight, -2, -1)
    else:
        products = x[..., None, :] * weight
    terms = np.add.reduceat(products, node.starts, axis=-1) if node.register else products.sum(axis=-1)
    if node.offset is not None:
        terms = terms + (_multiples(node.offset, low) << BINARY16_FRAC)
    on_grid = _on_grid(node, terms, low - BINARY16_FRAC)
    return _rounded(node, accumulate.ended(on_grid, node.register) if node.register else on_grid, raised)


def product_of(node: ir.ProductOf, xs: list[ir.Bits], raised: Note = _nothing) -> ir.Bits:
    """Sums of products of two values, added up in Python integers."""
    batch = max((len(x) for x, value in zip(xs, node.inputs, strict=True) if value.batched), default=1)
    x, matrix = (_batch(_integers(node, b), value, batch) for b, value in zip(xs, node.inputs, strict=True))
    x = x.reshape(batch, *node.groups, -1, 1, x.shape[-1])
    terms = (x * np.expand_dims(matrix, -3)).sum(axis=-1)
    sums = _rounded(node, _on_grid(node, terms, -2 * BINARY16_FRAC), raised)
    return sums.reshape(batch, *node.output.shape)


def _integers(node: ir.ExactSums, bits: ir.Bits) -> npt.NDArray[Any]:
    """Numbers of blocks in units of ``2**-BINARY16_FRAC``, as Python integers."""
    if not binary16.is_finite(bits).all():
        raise ValueError(f"source of {node.output.name} must be finite")
    return np.ldexp(binary16.decode(bits), BINARY16_FRAC).astype(np.int64).astype(object)


def _on_grid(node: ir.ExactSums, terms: npt.NDArray[Any], unit: int) -> npt.NDArray[Any]:
    """Multiples of ``2**unit`` as those of ``2**-frac``."""
    shift = node.frac + unit
    on_grid = terms << shift if shift >= 0 else terms // (1 << -shift)
    if shift < 0 and (terms != on_grid << -shift).any():
        raise ValueError(f"sums of {node.output.name} must be multiples of 2**-{node.frac}")
    return on_grid


def _rounded(node: ir.ExactSums, sums: npt.NDArray[Any], raised: Note) -> ir.Bits:
    result, acc_over, half_over = accumulate.acc_to_binary16(sums, (node.width, node.frac))
    raised(Flag.ACC_OVERFLOW, acc_over)
    raised(Flag.HALF_OVERFLOW, half_over)
    return result


def least(values: FloatArray) -> int:
    """The greatest k for which all values are multiples of 2**k; 0 for zeros."""
    units = units_of(values[values != 0])
    return int(units.min()) if units.size else 0


def units_of(values: FloatArray) -> Ids:
    """Greatest k for which each value but 0 is a multiple of 2**k."""
    mantissa, exponent = np.frexp(values)
    whole = np.ldexp(mantissa, DOUBLE_BITS).astype(np.int64)
    low = np.frexp((whole & -whole).astype(np.float64))[1] - 1
    return np.asarray(exponent - DOUBLE_BITS + low, dtype=np.int64)


def _multiples(values: FloatArray, low: int) -> npt.NDArray[Any]:
    """Multiples of ``2**low`` as Python integers, of any size."""
    return np.asarray(np.frompyfunc(int, 1, 1)(np.ldexp(values, -low)))


def _elementwise(node: ir.Elementwise, xs: list[ir.Bits], raised: Note) -> ir.Bits:
    """Operands that broadcast: axes of samples are lined up at their ends."""
    rank = len(node.output.shape)
    operands = [_aligned(x, value, rank) for x, value in zip(xs, node.xs, strict=True)]
    result = np.asarray(node.operation.golden(*np.broadcast_arrays(*operands)))
    if node.operation.rounds:
        raised(Flag.HALF_OVERFLOW, binary16.overflowed(result, *operands))
    return result


def _aligned(x: npt.NDArray[Any], value: ir.Value, rank: int) -> npt.NDArray[Any]:
    if not value.batched:
        return x
    return x.reshape(len(x), *[1] * (rank - len(value.shape)), *value.shape)


def _maximum(x: ir.Bits, axis: int) -> ir.Bits:
    greatest: ir.Bits = np.full_like(np.take(x, 0, axis=axis), ir.LOWEST)
    for k in range(x.shape[axis]):
        greatest = binary16.maximum(greatest, np.take(x, k, axis=axis))
    return greatest
