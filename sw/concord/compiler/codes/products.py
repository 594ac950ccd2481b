"""Products with constant weights on an NPU: sums of codes less the origin of what they read.

What an origin is away from the zero point adds the same to all accumulators of a channel, if padding is the code of 0:
it is a term of the requantisation. Where that term is larger than an accumulator may be in codes, the product reads its
codes in two parts, each of which mantissas hold less the zero point: what is within their ends, and what is beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from concord.compiler.codes.factors import FactorRequantisation
from concord.compiler.codes.origins import Stored
from concord.compiler.codes.scales import real_scales
from concord.compiler.codes.tensors import NotOnNpu, NpuTensors
from concord.integer.moves import ConcatMove, PadMove, ReshapeMove, TakeMove
from concord.integer.operations import CodeMovement, CodeTable
from concord.integer.weighted_sums import IntegerConvolution, IntegerMatMul, RequantisedSums, WeightedSums
from concord.spec.formats import SCALED_MAX
from concord.transfer import Codes, TransferTable


def product(tensors: NpuTensors, operation: WeightedSums) -> WeightedSums | None:
    """The product with a requantisation by factors, which has the bias; nothing if it is appended as several."""
    _check(tensors, operation)
    source, zero, made = tensors.stored[operation.inputs[0]], operation.zero_point, _Product.read(tensors, operation)
    apart = made.channels_apart(source.origin)
    if not apart:
        return _padded(tensors, made.of(operation, source.origin), zero)
    if len(apart) < len(made.scales) and _by_channel(tensors, operation):
        _beside(tensors, made, apart)
        return None
    return made.of(_in_parts(tensors, operation), zero)


def _check(tensors: NpuTensors, operation: WeightedSums) -> None:
    largest, most = int(np.abs(operation.weight).max(initial=0)), tensors.config.wgt.q_max
    if largest > most:
        raise NotOnNpu(f"weights reach {largest}; mantissas hold {most}")
    if operation.zero_point != tensors.schemes[operation.inputs[0]].zero:
        raise NotOnNpu("padding is no code of zero")
    if isinstance(operation, IntegerConvolution) and operation.weight.ndim not in (3, 4):
        raise NotOnNpu(f"a convolution must have one or two dimensions, not {operation.weight.ndim - 2}")


@dataclass(frozen=True)
class _Product:
    """Requantisations of a product for codes less one or another origin.

    Parameters
    ----------
    tensors, operation
        The tensors of its network, and the product.
    scales, terms : list of Fraction
        By channel: factors of accumulators, and what is added.
    up : bool
        Whether halves are rounded up.
    shape : tuple of int
        Shape of arrays by channel.
    totals : list of int
        By channel the sum of its weights.
    """

    tensors: NpuTensors
    operation: WeightedSums
    scales: list[Fraction]
    terms: list[Fraction]
    up: bool
    shape: tuple[int, ...]
    totals: list[int]

    @classmethod
    def read(cls, tensors: NpuTensors, operation: WeightedSums) -> _Product:
        """Facts about an operation of a network."""
        scales, terms, up = real_scales(operation.requantisation, operation.bias)
        rank = operation.weight.ndim - 2 if isinstance(operation, IntegerConvolution) else 0
        axes = tuple(range(1, operation.weight.ndim)) if isinstance(operation, IntegerConvolution) else 0
        totals = operation.weight.sum(axis=axes).tolist()
        return cls(tensors, operation, scales, terms, up, (-1, *[1] * rank), totals)

    def _terms(self, origin: int) -> list[Fraction]:
        moved = origin - self.operation.zero_point
        parts = zip(self.scales, self.terms, self.totals, strict=True)
        return [term + scale * moved * total for scale, term, total in parts]

    def channels_apart(self, origin: int) -> list[int]:
        """Channels whose terms leave no code that an accumulator may be, because of the origin.

        There are others among them, those with the largest terms, so that they fill native vectors.
        """
        zero, target = self.operation.zero_point, self.tensors.stored[self.operation.output]
        if origin == zero:
            return []
        most = SCALED_MAX - 1 - target.reach - abs(target.origin - _zero_of(self.operation))
        terms, native = [abs(term) for term in self._terms(origin)], self.tensors.config.native
        count = sum(term > most for term in terms)
        order = sorted(range(len(terms)), key=lambda k: -terms[k])
        return sorted(order[: -(-count // native) * native])

    def of(self, part: WeightedSums, origin: int, chosen: Sequence[int] | None = None) -> WeightedSums:
        """A product of the ``chosen`` channels."""
        chosen, terms = range(len(self.scales)) if chosen is None else chosen, self._terms(origin)
        scales, added, how = [self.scales[k] for k in chosen], [terms[k] for k in chosen], self.operation.requantisation
        made = self.tensors.requantisation(part.output, scales, added, self.shape, how, self.up)
        bias, stored = np.zeros(len(scales), dtype=np.int64), self.tensors.stored[part.inputs[0]]
        return replace(part, bias=bias, requantisation=made, zero_point=origin, reach=stored.reach)


def _zero_of(operation: WeightedSums) -> int:
    zero: int = getattr(operation.requantisation, "zero_point", 0)
    return zero


def _padded(tensors: NpuTensors, operation: WeightedSums, zero: int) -> WeightedSums:
    """A convolution without padding, of codes around which there are those of 0, where that is not stored as 0."""
    if not isinstance(operation, IntegerConvolution) or operation.zero_point == zero or not any(operation.pads):
        return operation
    rank, (source,) = operation.weight.ndim - 2, operation.inputs
    around, none = tuple(zip(operation.pads[:rank], operation.pads[rank:], strict=True)), (0, 0)
    move = PadMove((none, *around, none) if operation.last else (none, none, *around), zero)
    sizes = zip(tensors.shapes[source], move.widths[1:], strict=True)
    shape = tuple(before + size + after for size, (before, after) in sizes)
    name = f"{source}/padded by {' '.join(map(str, operation.pads))}"
    return replace(operation, inputs=(tensors.move(name, (source,), move, shape),), pads=(0,) * 2 * rank)


def _in_parts(tensors: NpuTensors, operation: WeightedSums) -> WeightedSums:
    """A product of the two parts of its codes, which lie between each other along an axis, with each weight twice."""
    (source,), shape = operation.inputs, tensors.shapes[operation.inputs[0]]
    axis = (0 if operation.last else 1) if isinstance(operation, IntegerConvolution) else len(shape) - 1
    before, size, after = shape[:axis], shape[axis], shape[axis + 1 :]
    name, apart = f"{source}/parts {axis}", (*before, size, 1, *after)
    parts = [
        tensors.move(f"{part}/{axis}", (part,), ReshapeMove((-1, *apart)), apart)
        for part in _parts(tensors, source, operation.zero_point)
    ]
    beside = (*before, size, 2, *after)
    joined = tensors.move(f"{name}/beside", tuple(parts), ConcatMove(axis + 2), beside)
    both = (*before, 2 * size, *after)
    inputs = (tensors.move(name, (joined,), ReshapeMove((-1, *both)), both),)
    if not isinstance(operation, IntegerConvolution):
        return replace(operation, inputs=inputs, weight=np.repeat(operation.weight, 2, axis=0))
    (channels, group, taps, *others), step = operation.weight.shape, operation.dilations[0]
    weight = np.zeros((channels, group, 2 * step * (taps - 1) + 2, *others), dtype=np.int64)
    weight[:, :, :: 2 * step] = weight[:, :, 1 :: 2 * step] = operation.weight
    rank = operation.weight.ndim - 2
    pads = tuple(pad if k % rank else 2 * pad for k, pad in enumerate(operation.pads))
    strides, dilations = (2 * operation.strides[0], *operation.strides[1:]), (1, *operation.dilations[1:])
    return replace(operation, inputs=inputs, weight=weight, pads=pads, strides=strides, dilations=dilations)


def _parts(tensors: NpuTensors, source: str, zero: int) -> list[str]:
    """Two tensors whose codes less the zero point add up to those of a tensor, and have mantissas."""
    stored, most = tensors.stored[source], tensors.config.act.q_max
    less = most if stored.high - zero > most else -most
    beyond = (zero, stored.high - less) if less > 0 else (stored.low - less, zero)
    within = max(stored.low, zero - most), min(stored.high, zero + most)
    names = f"{source}/within", f"{source}/beyond"
    for name, moved, (low, high) in zip(names, (0, less), (within, beyond), strict=True):
        if name not in tensors.shapes:
            tensors.note(name, source, tensors.shapes[source], Stored(zero, low, high))
            _make_part(tensors, source, name, moved)
    return list(names)


def _make_part(tensors: NpuTensors, source: str, name: str, less: int) -> None:
    """Append what makes codes less a number, limited, as those of a tensor are made."""
    stored, maker = tensors.stored[name], tensors.maker(source)
    if isinstance(maker, RequantisedSums) and isinstance(how := maker.requantisation, FactorRequantisation):
        whole = how.whole + how.zero_point - stored.origin - less
        how = replace(how, whole=whole, zero_point=stored.origin, low=stored.low, high=stored.high)
        tensors.operations.append(replace(maker, name=name, output=name, requantisation=how))
        return
    scheme = tensors.schemes[source]
    assert isinstance(scheme, Codes)
    entries = np.clip(np.arange(scheme.low, scheme.high + 1) - less, stored.low, stored.high)
    table = TransferTable(scheme, (), scheme, entries)
    tensors.operations.append(CodeTable(name=name, inputs=(source,), output=name, table=table))


def _by_channel(tensors: NpuTensors, operation: WeightedSums) -> bool:
    """True if a product has a kernel by channel, and any channels of what it reads are a product of their own."""
    maker = tensors.maker(operation.inputs[0])
    if not isinstance(operation, IntegerConvolution) or not isinstance(maker, IntegerMatMul | IntegerConvolution):
        return False
    whole = not isinstance(maker, IntegerConvolution) or maker.groups == 1
    return whole and operation.groups == len(operation.weight) and operation.weight.shape[1] == 1


def _of_channels(
    tensors: NpuTensors, operation: IntegerConvolution, channels: list[int], what: str
) -> IntegerConvolution:
    """Some channels of a convolution by channel, of a tensor of these channels alone."""
    (source,), maker = operation.inputs, tensors.maker(operation.inputs[0])
    assert isinstance(maker, IntegerMatMul | IntegerConvolution) and isinstance(
        maker.requantisation, FactorRequantisation
    )
    how = maker.requantisation

    def noted(name: str, like: str) -> str:
        shape = tensors.shapes[like]
        return tensors.note(name, like, (*shape[:-1], len(channels)) if operation.last else (len(channels), *shape[1:]))

    name, output = (noted(f"{like}/{what} of {operation.output}", like) for like in (source, operation.output))
    how = replace(how, factor=how.factor[channels], fraction=how.fraction[channels], whole=how.whole[channels])
    weight = maker.weight[channels] if isinstance(maker, IntegerConvolution) else maker.weight[:, channels]
    bias = np.zeros(len(channels), dtype=np.int64)
    tensors.operations.append(replace(maker, name=name, output=name, weight=weight, bias=bias, requantisation=how))
    weight = operation.weight[channels]
    return replace(
        operation, name=output, inputs=(name,), output=output, weight=weight, bias=bias, groups=len(channels)
    )


def _beside(tensors: NpuTensors, made: _Product, apart: list[int]) -> None:
    """Append a convolution by channel, some of whose channels read their codes in parts."""
    operation, zero = made.operation, made.operation.zero_point
    assert isinstance(operation, IntegerConvolution)
    origin, shape = tensors.stored[operation.inputs[0]].origin, tensors.shapes[operation.output]
    rest = [k for k in range(len(made.scales)) if k not in apart]
    most, some = (_of_channels(tensors, operation, *part) for part in ((rest, "most"), (apart, "some")))
    parts = _in_parts(tensors, some)
    tensors.operations.append(_padded(tensors, made.of(most, origin, rest), zero))
    tensors.operations.append(made.of(parts, zero, apart))
    axis = len(shape) if operation.last else 1
    both = tensors.move(f"{operation.output}/beside", (most.output, some.output), ConcatMove(axis), shape)
    stored, indices = tensors.stored[operation.output], tuple(np.argsort([*rest, *apart]).tolist())
    move, output = TakeMove(axis, indices), operation.output
    tensors.operations.append(CodeMovement.of(output, (both,), output, move, stored))
