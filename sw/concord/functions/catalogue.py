"""All functions there are, each by its one record, and what finds them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction

import numpy as np

from concord.functions import exact, float64, intervals
from concord.functions import interval_bounds as bounds
from concord.functions.intervals import choose, clip, constant
from concord.functions.record import Function
from concord.golden.host_math import host_log
from concord.utils.arrays import FloatArray

_RECORDS = (
    Function(
        name="identity",
        exact=lambda x: x,
        bounds=lambda x: x,
        float64=lambda x: x,
        rises=True,
    ),
    Function(
        name="linear",
        exact=lambda x, slope, offset: slope * x + offset,
        bounds=lambda x, slope, offset: slope * x + offset,
        float64=lambda x, slope, offset: slope * x + offset,
        parameters={"slope": 1.0, "offset": 0.0},
    ),
    Function(
        name="relu",
        exact=lambda x: max(x, Fraction(0)),
        bounds=lambda x: clip(x, 0, np.inf),
        float64=lambda x: np.maximum(x, 0.0),
        range=(0, math.inf),
        rises=True,
        recurrent="Relu",
    ),
    Function(
        name="leaky_relu",
        exact=lambda x, alpha: x if x >= 0 else alpha * x,
        bounds=lambda x, alpha: choose(x, alpha * x, x),
        float64=lambda x, alpha: np.where(x >= 0, x, alpha * x),
        parameters={"alpha": 0.01},
        onnx="LeakyRelu",
        recurrent="LeakyRelu",
    ),
    Function(
        name="hardsigmoid",
        exact=lambda x, alpha, beta: exact.clamp(alpha * x + beta, 0, 1),
        bounds=lambda x, alpha, beta: clip(alpha * x + beta, 0, 1),
        float64=float64.hardsigmoid,
        parameters={"alpha": 0.2, "beta": 0.5},
        domain=(-4, 4),
        constant_ends=True,
        range=(0, 1),
        rises=True,
        onnx="HardSigmoid",
        recurrent="HardSigmoid",
    ),
    Function(
        name="hardswish",
        exact=lambda x: x * exact.clamp(x / 6 + Fraction(1, 2), 0, 1),
        bounds=lambda x: x * clip(x / constant(6) + bounds.HALF, 0, 1),
        float64=lambda x: x * float64.hardsigmoid(x, 1 / 6, 0.5),
        onnx="HardSwish",
    ),
    Function(
        name="sigmoid",
        exact=exact.precise(exact.sigmoid),
        bounds=bounds.sigmoid,
        float64=float64.sigmoid,
        domain=(-8, 8),
        constant_ends=True,
        range=(0, 1),
        rises=True,
        onnx="Sigmoid",
        recurrent="Sigmoid",
        slope=lambda y: y * (1 - y),
    ),
    Function(
        name="softsign",
        exact=lambda x: x / (1 + abs(x)),
        bounds=lambda x: x / (bounds.ONE + bounds.magnitude(x)),
        float64=lambda x: x / (1.0 + np.abs(x)),
        range=(-1, 1),
        rises=True,
        decomposed=True,
        onnx="Softsign",
        recurrent="Softsign",
        slope=lambda y: (1 - abs(y)) ** 2,
    ),
    Function(
        name="silu",
        exact=exact.precise(lambda x: x * exact.sigmoid(x)),
        bounds=lambda x: x * bounds.sigmoid(x),
        float64=lambda x: x * float64.sigmoid(x),
        decomposed=True,
    ),
    Function(
        name="tanh",
        exact=exact.precise(exact.tanh),
        bounds=bounds.tanh,
        float64=np.tanh,
        domain=(-4, 4),
        constant_ends=True,
        range=(-1, 1),
        rises=True,
        decomposed=True,
        onnx="Tanh",
        recurrent="Tanh",
        slope=lambda y: 1 - y * y,
    ),
    Function(
        name="tanh_ratio",
        exact=exact.ratio(exact.tanh, lambda: Decimal(1)),
        bounds=lambda x: bounds.tanh(x) / x,
        float64=float64.ratio(np.tanh, 1.0),
    ),
    Function(
        name="erf",
        exact=exact.precise(exact.erf),
        bounds=intervals.erf,
        float64=float64.erf,
        domain=(-4, 4),
        constant_ends=True,
        range=(-1, 1),
        rises=True,
        decomposed=True,
        onnx="Erf",
    ),
    Function(
        name="erf_ratio",
        exact=exact.ratio(exact.erf, lambda: 2 / exact.pi().sqrt()),
        bounds=lambda x: intervals.erf(x) / x,
        float64=float64.ratio(float64.erf, 2.0 / math.sqrt(math.pi)),
    ),
    Function(
        name="normal_cdf",
        exact=exact.precise(exact.normal_cdf),
        bounds=bounds.normal_cdf,
        float64=float64.normal_cdf,
        range=(0, 1),
    ),
    Function(
        name="gelu",
        exact=exact.precise(lambda x: x * exact.normal_cdf(x)),
        bounds=lambda x: x * bounds.normal_cdf(x),
        float64=lambda x: x * float64.normal_cdf(x),
        decomposed=True,
    ),
    Function(
        name="gelu_tanh_gate",
        exact=exact.precise(exact.gelu_tanh_gate),
        bounds=bounds.gelu_tanh_gate,
        float64=float64.gelu_tanh_gate,
        range=(0, 1),
    ),
    Function(
        name="gelu_tanh",
        exact=exact.precise(lambda x: x * exact.gelu_tanh_gate(x)),
        bounds=lambda x: x * bounds.gelu_tanh_gate(x),
        float64=lambda x: x * float64.gelu_tanh_gate(x),
        decomposed=True,
    ),
    Function(
        name="softplus",
        exact=exact.precise(exact.softplus),
        bounds=bounds.softplus,
        float64=lambda x: np.logaddexp(0.0, x),
        range=(0, math.inf),
        rises=True,
        decomposed=True,
        onnx="Softplus",
        recurrent="Softplus",
    ),
    Function(
        name="elu",
        exact=exact.below_zero(lambda x, alpha: alpha * (exact.exp(x) - 1)),
        bounds=lambda x, alpha: choose(x, alpha * (intervals.exp(x) - bounds.ONE), x),
        float64=lambda x, alpha: np.where(x >= 0, x, alpha * np.expm1(np.minimum(x, 0.0))),
        parameters={"alpha": 1.0},
        rises=True,
        decomposed=True,
        onnx="Elu",
        recurrent="Elu",
    ),
    Function(
        name="celu",
        exact=exact.below_zero(exact.celu),
        bounds=bounds.celu,
        float64=float64.celu,
        parameters={"alpha": 1.0},
        positive=("alpha",),
        decomposed=True,
        onnx="Celu",
    ),
    Function(
        name="celu_ratio",
        exact=exact.below_zero(lambda x, alpha: exact.celu(x, alpha) / x, above=lambda x: Fraction(1)),
        bounds=lambda x, alpha: choose(x, bounds.celu(x, alpha) / x, bounds.ONE),
        float64=float64.ratio(float64.celu, 1.0),
        parameters={"alpha": 1.0},
        positive=("alpha",),
    ),
    Function(
        name="exp",
        exact=exact.precise(exact.exp),
        bounds=intervals.exp,
        float64=np.exp,
        domain=(-8, 0),
        range=(0, math.inf),
        rises=True,
        decomposed=True,
        onnx="Exp",
    ),
    Function(
        name="log",
        exact=exact.where_positive(Decimal.ln, -math.inf),
        bounds=bounds.where_positive(intervals.log, -np.inf),
        float64=lambda x: np.asarray(host_log(x)),
        domain=(0, 16),
        rises=True,
        pole=True,
        constant_below_zero=True,
        octaves=20,
        onnx="Log",
    ),
    Function(
        name="sqrt",
        exact=exact.precise(lambda x: max(x, Decimal(0)).sqrt()),
        bounds=bounds.root,
        float64=lambda x: np.sqrt(np.maximum(x, 0.0)),
        domain=(0, 16),
        range=(0, math.inf),
        rises=True,
        constant_below_zero=True,
        octaves=21,
        onnx="Sqrt",
    ),
    Function(
        name="rsqrt",
        exact=exact.where_positive(lambda x: 1 / x.sqrt(), math.inf),
        bounds=bounds.where_positive(lambda x: bounds.ONE / intervals.sqrt(x), np.inf),
        float64=float64.where_positive(lambda x: 1.0 / np.sqrt(x), np.inf),
        domain=(0, 16),
        range=(0, math.inf),
        pole=True,
        constant_below_zero=True,
        octaves=21,
    ),
    Function(
        name="reciprocal",
        exact=lambda x: 1 / x if x else math.inf,
        bounds=lambda x: bounds.ONE / x,
        float64=float64.reciprocal,
        domain=(0, 16),
        pole=True,
        octaves=21,
        onnx="Reciprocal",
    ),
)

#: Records by name.
FUNCTIONS: dict[str, Function] = {record.name: record for record in _RECORDS}


def function(name: str) -> Function:
    """The record of a function; ``ValueError`` lists the names there are."""
    if name not in FUNCTIONS:
        raise ValueError(f"function must be one of {sorted(FUNCTIONS)}, not {name!r}")
    return FUNCTIONS[name]


def by_onnx_name() -> dict[str, Function]:
    """Functions that are ONNX operators, by the names of these."""
    return {record.onnx: record for record in FUNCTIONS.values() if record.onnx}


def by_recurrent_name() -> dict[str, Function]:
    """Functions that recurrent layers may have, by the names ONNX gives them there."""
    return {record.recurrent: record for record in FUNCTIONS.values() if record.recurrent}


def trainable() -> list[Function]:
    """Functions that training has a derivative of."""
    return [record for record in FUNCTIONS.values() if record.slope is not None]


def evaluate(functions: Iterable[tuple[str, Mapping[str, float]]], x: FloatArray) -> FloatArray:
    """Apply functions in double precision one after the other, each a name with its parameters."""
    for name, parameters in functions:
        x = function(name).values(x, **parameters)
    return x
