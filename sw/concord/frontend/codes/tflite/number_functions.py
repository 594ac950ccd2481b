"""Functions of numbers of binary32 between two tensors of codes.

They are exact to the last bit or next to it. Kernels fill tables with them, or compute them between DEQUANTIZE and
QUANTIZE.
"""

from __future__ import annotations

from collections.abc import Callable
from math import erfc
from typing import Any

import numpy as np

from concord.frontend.context import OnnxNode
from concord.integer.tflite.point_wise import Float32s, NumberFunction

_HALF, _ONE = np.float32(0.5), np.float32(1)
#: The root of 1/2, and twice the inverse of the root of pi.
_ROOT, _SLOPE = np.float32(np.sqrt(0.5)), np.float32(2 / np.sqrt(np.pi))


def _of(function: Callable[[Any], Any]) -> NumberFunction:
    """A function that is computed in binary64 and rounded to binary32."""

    def of_numbers(numbers: Float32s) -> Float32s:
        with np.errstate(all="ignore"):
            return np.asarray(function(numbers.astype(np.float64)), dtype=np.float64).astype(np.float32)

    return of_numbers


_ERFC = _of(lambda numbers: np.vectorize(erfc, otypes=[np.float64])(numbers))
_TANH = _of(np.tanh)


def _gelu(numbers: Float32s) -> Float32s:
    return _HALF * numbers * _ERFC(numbers * -_ROOT)


def _gelu_by_tanh(numbers: Float32s) -> Float32s:
    cubes = np.float32(0.044715) * numbers * numbers * numbers
    return _HALF * numbers * (_ONE + _TANH(_SLOPE * _ROOT * (numbers + cubes)))


def _inverse_root(numbers: Float32s) -> Float32s:
    with np.errstate(all="ignore"):
        return np.asarray(_ONE / np.sqrt(numbers))


#: By the name of the operator in the schema.
NUMBER_FUNCTIONS: dict[str, NumberFunction] = {
    "EXP": _of(np.exp),
    "LOG": _of(np.log),
    "ELU": _of(lambda numbers: np.where(numbers < 0, np.expm1(numbers), numbers)),
    "GELU": _gelu,
    "NEG": _of(np.negative),
    "SQUARE": _of(np.square),
    "SQRT": _of(np.sqrt),
    "SIN": _of(np.sin),
    "COS": _of(np.cos),
}
#: Those of which a kernel fills a table of codes of 8 bits.
WITH_TABLES = frozenset({"EXP", "LOG", "ELU", "GELU"})


def number_function(node: OnnxNode) -> NumberFunction:
    """The function of an operator, with its options."""
    if node.op == "GELU" and node.options is not None and node.options.Approximate():
        return _gelu_by_tanh
    return _FUNCTIONS[node.op]


_FUNCTIONS: dict[str, NumberFunction] = NUMBER_FUNCTIONS | {"ABS": _of(np.abs), "RSQRT": _inverse_root}
