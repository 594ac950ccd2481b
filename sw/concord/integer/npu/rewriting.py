"""A network on codes with the arithmetic of the NPU, up to where the host goes on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from concord.compiler.lowering.products import largest_weight
from concord.integer.exact_sums import reach_of
from concord.integer.float32 import Integers
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import ConcatMove, ExpandMove, FlattenMove, NoMove, ReshapeMove, SqueezeMove, TransposeMove
from concord.integer.npu.factors import FactorRequantisation, ScaleError
from concord.integer.npu.operations import WeightedPair, WindowSums
from concord.integer.operations import (
    CodeAverage,
    CodeFloats,
    CodeMaximum,
    CodeMean,
    CodeMovement,
    CodePairTable,
    CodeSum,
    CodeTable,
)
from concord.integer.requantise import FloatRequantisation, Requantisation, Requantiser
from concord.integer.tflite.fixed_point import FixedPointMultiplier
from concord.integer.tflite.operations import (
    ChannelsLastAverage,
    ChannelsLastMaximum,
    FixedPointMean,
    FixedPointSum,
)
from concord.integer.tflite.requantise import Binary64Requantisation, FixedPointRequantisation
from concord.integer.weighted_sums import WeightedRows, WeightedSums, WeightedWindows
from concord.spec.config import NpuConfig

_MOVES = (ConcatMove, ExpandMove, FlattenMove, NoMove, ReshapeMove, SqueezeMove, TransposeMove)
#: Greatest window that a chain walks in one direction.
_LONGEST = 63
#: Advice where the NPU does not compute a network on codes.
_INSTEAD = "block floating point takes more: compile without --exact"


class NotOnNpu(ValueError):
    """Reason for which an operation is not one of the NPU."""


@dataclass(frozen=True, eq=False)
class Split:
    """A network on codes in two parts.

    Parameters
    ----------
    npu : IntegerGraph
        What the NPU computes, with its arithmetic; its outputs have the names of their tensors.
    host : list of IntegerOperation
        What is computed from these outputs, as in the network.
    shapes : dict of str to tuple of int
        Of all tensors, after the samples.
    """

    npu: IntegerGraph
    host: list[IntegerOperation]
    shapes: Mapping[str, tuple[int, ...]]


def split(graph: IntegerGraph, shapes: Mapping[str, tuple[int, ...]], config: NpuConfig) -> Split:
    """The parts of a network on codes.

    Parameters
    ----------
    graph : IntegerGraph
        The network.
    shapes : mapping of str to tuple of int
        Of all tensors, after the samples.
    config : NpuConfig
        With ``code_scaling``.

    Raises
    ------
    NotOnNpu
        If a product has to be computed after something that the NPU does not compute: every reason, with its tensor.
    """
    rewriter = _Rewriter(graph, shapes, config)
    reasons = [f"{name}: {why}" for name, why in rewriter.refused.items()]
    late = [part.name for part in rewriter.host if isinstance(part, WeightedSums)]
    if late or not rewriter.npu:
        products = f"; behind that stand products ({', '.join(late)})" if late else ""
        raise NotOnNpu(f"{'; '.join(reasons)}{products}; {_INSTEAD}")
    made = {*graph.inputs.values(), *(part.output for part in rewriter.npu)}
    read = {name for part in rewriter.host for name in part.inputs} | set(graph.outputs.values())
    outputs = {name: name for name in sorted(read & made)}
    npu = replace(graph, operations=rewriter.npu, outputs=outputs, aliases={})
    return Split(npu, rewriter.host, shapes)


class _Rewriter:
    """Goes through the operations in order."""

    def __init__(self, graph: IntegerGraph, shapes: Mapping[str, tuple[int, ...]], config: NpuConfig):
        self.graph, self.shapes, self.config = graph, shapes, config
        self.npu: list[IntegerOperation] = []
        self.host: list[IntegerOperation] = []
        self.refused: dict[str, str] = {}
        there = set(graph.inputs.values())
        for operation in graph.operations:
            part: IntegerOperation | None = None
            if there.issuperset(operation.inputs):
                try:
                    part = self._rewritten(operation)
                except (NotOnNpu, ScaleError) as error:
                    self.refused[operation.output] = str(error)
            if part is None:
                self.host.append(operation)
            else:
                self.npu.append(part)
                there.add(operation.output)

    def _rewritten(self, operation: IntegerOperation) -> IntegerOperation:
        for name in (*operation.inputs, operation.output):
            self._check_codes(name)
        for kind, rule in _RULES.items():
            if isinstance(operation, kind):
                return rule(self, operation)
        if isinstance(operation, CodePairTable):
            raise NotOnNpu("tables with two indices are not on the NPU; load the network with pairs=False")
        raise NotOnNpu(f"{type(operation).__name__} is not computed on codes by the NPU")

    def _check_codes(self, name: str) -> None:
        scheme = self.graph.schemes[name]
        reach, most = reach_of(scheme, scheme.zero), self.config.act.q_max
        if reach > most:
            raise NotOnNpu(f"codes of {name} reach {reach} from their zero point; mantissas hold {most}")

    # Operations --------------------------------------------------------------------------------

    def products(self, operation: WeightedSums) -> IntegerOperation:
        """Products with a requantisation by factors, which has the bias."""
        largest = int(np.abs(operation.weight).max(initial=0))
        if largest > self.config.wgt.q_max:
            raise NotOnNpu(f"weights reach {largest}; mantissas hold {self.config.wgt.q_max}")
        if operation.zero_point != self.graph.schemes[operation.inputs[0]].zero:
            raise NotOnNpu("padding is no code of zero")
        if isinstance(operation, WeightedWindows) and operation.weight.ndim not in (3, 4):
            raise NotOnNpu(f"a convolution must have one or two dimensions, not {operation.weight.ndim - 2}")
        scales, terms, up = real_scales(operation.requantisation, operation.bias)
        shape = (-1, *[1] * (operation.weight.ndim - 2)) if isinstance(operation, WeightedWindows) else (-1,)
        codes = _codes(operation.requantisation)
        made = FactorRequantisation.of(scales, terms, shape, codes, up=up, bits=self.config.scaled_bits)
        return replace(operation, bias=np.zeros_like(operation.bias), requantisation=made)

    def table(self, operation: CodeTable) -> IntegerOperation:
        """A function of one code."""
        return operation

    def movement(self, operation: CodeMovement) -> IntegerOperation:
        """Codes that only move."""
        if not isinstance(operation.move, _MOVES):
            raise NotOnNpu(f"{type(operation.move).__name__} is not one of the NPU")
        schemes = [self.graph.schemes[name] for name in operation.inputs]
        if any(operation.low > scheme.low or operation.high < scheme.high for scheme in schemes):
            raise NotOnNpu("codes that are moved and limited at once are not computed by the NPU")
        return operation

    def maximum(self, operation: Any) -> IntegerOperation:
        """Maxima of codes, as they are."""
        scheme, dilations = self.graph.schemes[operation.output], operation.dilations
        if getattr(operation, "low", scheme.low) > scheme.low or getattr(operation, "high", scheme.high) < scheme.high:
            raise NotOnNpu("a maximum that is limited is not computed by the NPU")
        if len(operation.kernel) not in (1, 2) or max(dilations) > 1:
            raise NotOnNpu("a maximum must be of one or two dimensions, without dilations")
        return operation  # type: ignore[no-any-return]

    def mean(self, operation: CodeMean) -> IntegerOperation:
        """The mean of all elements of a channel, or of windows."""
        sizes = self.shapes[operation.inputs[0]][1:]
        ratio = Fraction(float(operation.scale)) / Fraction(float(operation.target_scale))
        codes = operation.target_zero_point, operation.low, operation.high
        if not isinstance(operation, CodeAverage):
            return self._sums(
                operation, False, operation.zero_point, (sizes, sizes, (0,) * 2 * len(sizes)), ratio, codes
            )
        if max(operation.dilations) > 1 or (operation.padding_counts and any(operation.pads)):
            raise NotOnNpu("a mean must be without dilations, and without padding that counts")
        window = operation.kernel, operation.strides, operation.pads
        return self._sums(operation, False, operation.zero_point, window, ratio, codes)

    def average(self, operation: ChannelsLastAverage) -> IntegerOperation:
        """Means of windows of TensorFlow Lite."""
        zero = self.graph.schemes[operation.inputs[0]].zero
        window, codes = (operation.kernel, operation.strides, operation.pads), (zero, operation.low, operation.high)
        return self._sums(operation, True, zero, window, Fraction(1), codes, up=True)

    def mean_of_axes(self, operation: FixedPointMean) -> IntegerOperation:
        """The mean of TensorFlow Lite, of all axes but the channels."""
        sizes = self.shapes[operation.inputs[0]]
        if operation.axes != tuple(range(1, len(sizes))):
            raise NotOnNpu(f"a mean must be of all axes but samples and channels, not of {list(operation.axes)}")
        scales, _, _ = real_scales(operation.requantisation, np.zeros(1, np.int64))
        window = sizes[:-1], sizes[:-1], (0,) * 2 * (len(sizes) - 1)
        ratio, codes = scales[0] * prod(sizes[:-1]), _codes(operation.requantisation)
        return self._sums(operation, True, operation.zero_point, window, ratio, codes, up=True)

    def _sums(
        self,
        operation: IntegerOperation,
        last: bool,
        zero_point: int,
        window: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]],
        ratio: Fraction,
        codes: tuple[int, int, int],
        *,
        up: bool = False,
    ) -> IntegerOperation:
        kernel, strides, pads = window
        if len(kernel) not in (1, 2) or max(kernel) > _LONGEST:
            raise NotOnNpu(f"a mean must be of one or two dimensions of at most {_LONGEST}, not of {list(kernel)}")
        shape = self.shapes[operation.inputs[0]]
        sizes = shape[:-1] if last else shape[1:]
        counts = _counts(sizes, kernel, strides, pads)
        scales = [ratio / int(count) for count in counts.ravel()]
        made = FactorRequantisation.of(
            scales, [Fraction(0)] * len(scales), (1, *counts.shape), codes, up=up, bits=self.config.scaled_bits
        )
        return WindowSums(
            name=operation.name, inputs=operation.inputs, output=operation.output, kernel=kernel, strides=strides,
            pads=pads, last=last, shape=self.shapes[operation.output], zero_point=zero_point,
            reach=reach_of(self.graph.schemes[operation.inputs[0]], zero_point), requantisation=made,
        )  # fmt: skip

    def sum_of_codes(self, operation: CodeSum) -> IntegerOperation:
        """Add of ONNX."""
        ratios = [Fraction(float(ratio)) for ratio in operation.ratios]
        return self._pair(operation, ratios, operation.zeros, (operation.zero_point, operation.low, operation.high))

    def sum_of_floats(self, operation: CodeFloats) -> IntegerOperation:
        """Add of ONNX in binary32; the NPU has factors of its own."""
        if operation.operator != "Add":
            raise NotOnNpu(f"{operation.operator} of two tensors is not computed on codes by the NPU")
        ratios = [Fraction(float(scale)) / Fraction(float(operation.step)) for scale in operation.scales]
        return self._pair(operation, ratios, operation.zeros, (operation.zero_point, operation.low, operation.high))

    def fixed_point_sum(self, operation: FixedPointSum) -> IntegerOperation:
        """Add and Sub of TensorFlow Lite."""
        (output,), _, _ = real_scales(operation.requantisation, np.zeros(1, np.int64))
        ratios = [fixed_scale(scale)[0] * output * (1 << operation.up) for scale in operation.scales]
        signed = [ratios[0], -ratios[1] if operation.difference else ratios[1]]
        return self._pair(operation, signed, operation.zeros, _codes(operation.requantisation), up=True)

    def _pair(
        self,
        operation: IntegerOperation,
        ratios: list[Fraction],
        zeros: tuple[int, int],
        codes: tuple[int, int, int],
        *,
        up: bool = False,
    ) -> IntegerOperation:
        a, b = (self.shapes[name] for name in operation.inputs)
        if a != b or operation.inputs[0] == operation.inputs[1]:
            raise NotOnNpu("a sum must be of two tensors of one shape")
        first, second = nearest_weights(abs(ratios[0]), abs(ratios[1]), largest_weight(self.config.wgt_mant))
        scale = abs(ratios[0]) / first if abs(ratios[0]) >= abs(ratios[1]) else abs(ratios[1]) / second
        made = FactorRequantisation.of(
            [scale], [Fraction(0)], (1,) * len(a), codes, up=up, bits=self.config.scaled_bits
        )
        schemes = [self.graph.schemes[name] for name in operation.inputs]
        reaches = reach_of(schemes[0], zeros[0]), reach_of(schemes[1], zeros[1])
        weights = (-first if ratios[0] < 0 else first), (-second if ratios[1] < 0 else second)
        return WeightedPair(
            name=operation.name, inputs=operation.inputs, output=operation.output, weights=weights, zeros=zeros,
            reaches=reaches, last=isinstance(operation, FixedPointSum), requantisation=made,
        )  # fmt: skip


_RULES: dict[Any, Callable[[_Rewriter, Any], IntegerOperation]] = {
    WeightedRows: _Rewriter.products,
    WeightedWindows: _Rewriter.products,
    CodeMovement: _Rewriter.movement,
    CodeTable: _Rewriter.table,
    CodeMaximum: _Rewriter.maximum,
    ChannelsLastAverage: _Rewriter.average,
    ChannelsLastMaximum: _Rewriter.maximum,
    CodeMean: _Rewriter.mean,
    FixedPointMean: _Rewriter.mean_of_axes,
    CodeSum: _Rewriter.sum_of_codes,
    CodeFloats: _Rewriter.sum_of_floats,
    FixedPointSum: _Rewriter.fixed_point_sum,
}


def real_scales(requantiser: Requantiser, bias: Integers) -> tuple[list[Fraction], list[Fraction], bool]:
    """Factors of accumulators and numbers that are added, in codes, by channel; whether halves are rounded up.

    Raises
    ------
    NotOnNpu
        If it is another requantisation than those of ONNX and TensorFlow Lite.
    """
    match requantiser:
        case Requantisation():
            scales, term, up = [Fraction(float(scale)) for scale in requantiser.scale.ravel()], None, False
        case FloatRequantisation():
            step = Fraction(float(requantiser.step))
            scales = [Fraction(float(factor)) / step for factor in requantiser.factor.ravel()]
            term, up = [Fraction(float(number)) / step for number in requantiser.term.ravel()], False
        case FixedPointRequantisation():
            scales, term, up = fixed_scale(requantiser.scale), None, True
        case Binary64Requantisation():
            pairs = zip(requantiser.significand.ravel().tolist(), requantiser.exponent.ravel().tolist(), strict=True)
            scales, term, up = (
                [Fraction(significand) * Fraction(2) ** exponent for significand, exponent in pairs],
                None,
                True,
            )
        case _:
            raise NotOnNpu(f"{type(requantiser).__name__} has no factors")
    channels = max(bias.size, len(scales), 0 if term is None else len(term))
    scales, terms = scales * (channels // len(scales)), (term or [Fraction(0)]) * (channels // len(term or [0]))
    biases = bias.ravel().tolist() * (channels // max(bias.size, 1))
    return scales, [scale * number + more for scale, number, more in zip(scales, biases, terms, strict=True)], up


def fixed_scale(scale: FixedPointMultiplier) -> list[Fraction]:
    """The real multipliers of TensorFlow Lite."""
    pairs = zip(np.ravel(scale.multiplier).tolist(), np.ravel(scale.shift).tolist(), strict=True)
    return [Fraction(multiplier) * Fraction(2) ** (shift - 31) for multiplier, shift in pairs]


def nearest_weights(first: Fraction, second: Fraction, most: int) -> tuple[int, int]:
    """Two whole numbers up to ``most`` whose quotient is nearest to that of two numbers; of equal ones the greatest."""
    if not first or not second:
        return (most, 0) if first else (0, most)
    ratio = min(first, second) / max(first, second)
    larger = np.arange(most, 0, -1)
    smaller = np.maximum(np.rint(larger * float(ratio)), 1)
    best = int(np.argmin(np.abs(smaller / larger - float(ratio))))
    pair = int(larger[best]), int(smaller[best])
    return pair if first >= second else pair[::-1]


def _codes(requantiser: Any) -> tuple[int, int, int]:
    return requantiser.zero_point, requantiser.low, requantiser.high


def _counts(
    sizes: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], pads: tuple[int, ...]
) -> Integers:
    """Elements of every window, padding apart."""
    rank = len(sizes)
    totals = [
        [
            len(range(max(0, place * step - before), min(size, place * step - before + length)))
            for place in range((size + before + after - length) // step + 1)
        ]
        for size, length, step, before, after in zip(sizes, kernel, strides, pads[:rank], pads[rank:], strict=True)
    ]
    counts = np.ones((1,) * rank, dtype=np.int64)
    for axis, numbers in enumerate(totals):
        counts = counts * np.array(numbers).reshape([-1 if k == axis else 1 for k in range(rank)])
    return counts
