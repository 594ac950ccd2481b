"""Functions that write the operations, by class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from concord.derive.c_exact.functions import ExactFunction
from concord.derive.c_exact.pointwise import (
    write_codes,
    write_fixed_point_product,
    write_fixed_point_sum,
    write_floats,
    write_movement,
    write_numbers,
    write_pair_table,
    write_product,
    write_sum,
    write_table,
    write_tabled_numbers,
    write_weighted_pair,
    write_wide_pair,
)
from concord.derive.c_exact.pools import (
    write_average,
    write_fixed_point_mean,
    write_fixed_point_softmax,
    write_integer_average,
    write_interpolated_softmax,
    write_maximum,
    write_mean,
    write_softmax,
    write_window_sums,
)
from concord.derive.c_exact.products import write_convolution, write_matmul, write_product_of_two
from concord.integer.graph import IntegerGraph
from concord.integer.npu.operations import WeightedPair, WindowSums
from concord.integer.operations import (
    CodeAverage,
    CodeConstant,
    CodeFloats,
    CodeMaximum,
    CodeMean,
    CodeMovement,
    CodePairTable,
    CodeProduct,
    CodeSoftmax,
    CodeSum,
    CodeTable,
    CodeWindows,
    IntegerAverage,
)
from concord.integer.softmaxes import NumberSoftmax
from concord.integer.tflite.operations import (
    FixedPointMean,
    FixedPointProduct,
    FixedPointSoftmax,
    FixedPointSum,
    InterpolatedSoftmax,
)
from concord.integer.weighted_sums import CodeMatMul, IntegerConvolution, IntegerMatMul
from concord.integer.wide import CodesOfNumbers, NumbersOfCodes, TabledNumbers, WideDifference, WideProduct, WideSum

_Writer = Callable[[ExactFunction, Any], None]


#: By the class of an operation.
_WRITERS: dict[type, _Writer] = {
    CodeAverage: write_average,
    CodeFloats: write_floats,
    CodeMaximum: write_maximum,
    CodeMean: write_mean,
    CodeMatMul: write_product_of_two,
    CodeMovement: write_movement,
    CodePairTable: write_pair_table,
    CodeProduct: write_product,
    CodeSoftmax: write_softmax,
    CodeSum: write_sum,
    CodeTable: write_table,
    FixedPointMean: write_fixed_point_mean,
    FixedPointProduct: write_fixed_point_product,
    FixedPointSoftmax: write_fixed_point_softmax,
    FixedPointSum: write_fixed_point_sum,
    IntegerAverage: write_integer_average,
    IntegerConvolution: write_convolution,
    IntegerMatMul: write_matmul,
    InterpolatedSoftmax: write_interpolated_softmax,
    NumberSoftmax: write_softmax,
    NumbersOfCodes: write_numbers,
    CodesOfNumbers: write_codes,
    TabledNumbers: write_tabled_numbers,
    WeightedPair: write_weighted_pair,
    WideDifference: write_wide_pair,
    WideProduct: write_wide_pair,
    WideSum: write_wide_pair,
    WindowSums: write_window_sums,
}


def check_operations(graph: IntegerGraph) -> None:
    """``ValueError`` with all kinds of operations that have no form in C, and the first of each."""
    refused: dict[str, list[str]] = {}
    for operation in graph.operations:
        if type(operation) not in {*_WRITERS, CodeConstant}:
            refused.setdefault(type(operation).__name__, []).append(operation.name)
    if refused:
        kinds = [
            f"{kind} {first!r}" + f" and {len(more)} more" * bool(more) for kind, (first, *more) in refused.items()
        ]
        raise ValueError(f"{graph.name} must have operations with a form in C, not {', '.join(kinds)}")


def write_operation(function: ExactFunction) -> None:
    """Write the statements of a function; those of windows have the channels in the second axis."""
    operation = function.operation
    if isinstance(operation, IntegerConvolution | CodeWindows) and operation.last:
        function.sources = [source.channels_first for source in function.sources]
        function.result = function.result.channels_first
    _WRITERS[type(operation)](function, operation)
