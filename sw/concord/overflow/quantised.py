"""Analysis of a network in integers of chosen widths: how often they overflow [overflow]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.golden.codes import Codes
from concord.graph.ir import Graph
from concord.overflow.kinds import ROUNDINGS, IntegerSettings, kind_of, settings_of
from concord.overflow.layers import LayerProduct, products
from concord.overflow.ranges import codes_of_range
from concord.overflow.results import Analysis, LayerOverflow, Scaling, StageFacts
from concord.overflow.scaling import Factors, scale
from concord.sums.counting import count
from concord.sums.histogram import Histograms, SumStage
from concord.sums.reach import Extremes, bound
from concord.utils.arrays import Array, FloatArray
from concord.utils.parallel import Engine, task_slices

#: Samples of a task: few, as each is counted for a long time.
LEAST, MOST = 4, 32


def analyse_integers(
    graph: Graph,
    inputs: Mapping[str, npt.ArrayLike],
    *,
    kind: str | None = None,
    settings: IntegerSettings | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    name: str | None = None,
    engine: Engine | None = None,
) -> Analysis:
    """Quantise every layer of a network, count its overflows, and scale its ranges until they are within the threshold.

    Every layer reads what the float reference has: what one layer loses does not change the next.

    Parameters
    ----------
    graph : Graph
        The network.
    inputs : mapping of str to array
        ``[samples, *graph.sample_shape(name)]`` for every input.
    kind : str, optional
        ``cnn``, ``dense``, ``graph``, ``recurrent`` or ``lstm``: which defaults there are. By what is in the graph, if
        left out.
    settings : IntegerSettings, optional
        Instead of the defaults of the kind.
    ranges : mapping of str to pair of floats, optional
        Range of an input of the network, mapped in place of that of the samples.
    name : str, optional
        For reports.
    engine : Engine, optional
        Its workers share the samples when integers are counted. The float reference is computed here: its sums depend
        on the processor and on how many samples there are at once.

    Raises
    ------
    ValueError
        For inputs, kinds or ranges that are not possible, or a network without a product.
    """
    kind = kind or kind_of(graph)
    settings = settings or settings_of(kind)
    chosen = {key: (float(low), float(high)) for key, (low, high) in (ranges or {}).items()}
    if unknown := sorted(set(chosen) - set(graph.inputs)):
        raise ValueError(f"ranges must be of inputs of the network, {', '.join(graph.inputs)}, not {unknown}")
    layers = tuple(_layer(product, settings, chosen, engine) for product in products(graph, inputs))
    if not layers:
        raise ValueError(f"network {graph.name} must have a product, and has none")
    ends = {key: (float(np.min(values)), float(np.max(values))) for key, values in inputs.items()}
    return Analysis(
        name=name or graph.name,
        view="integers",
        storage=f"integers of a {kind} network: inputs {settings.input_width} bits, weights {settings.weight_width}",
        samples=len(np.asarray(next(iter(inputs.values())))),
        ranges=ends | chosen,
        width=settings.width,
        output_width=settings.output_width,
        threshold=settings.threshold,
        layers=layers,
    )


def _layer(
    product: LayerProduct, settings: IntegerSettings, ranges: Mapping[str, tuple[float, float]], engine: Engine | None
) -> LayerOverflow:
    weights, used = _range(product.w), _range(product.x)
    data = used
    if product.tensor in ranges:
        low, high = ranges[product.tensor]
        data = min(low, 0.0), max(high, 0.0)
        if data[0] > used[0] or data[1] < used[1]:
            raise ValueError(
                f"range of {product.tensor} must hold the samples, {used[0]:g} to {used[1]:g}, not {low:g},{high:g}"
            )

    rounding = ROUNDINGS[settings.rounding]

    def mapped(factors: Factors) -> tuple[Codes, Codes, Any]:
        w = codes_of_range(*weights, settings.weight_width, factors.weight, rounding)
        x = codes_of_range(*data, settings.input_width, factors.input, rounding)
        bias = None if product.bias is None else _whole(product.bias / (w.steps * x.steps))
        return w, x, bias

    shares = (
        [] if engine is None else [engine.broadcast(product.part(s)) for s in task_slices(len(product.x), LEAST, MOST)]
    )

    def counted(factors: Factors) -> Histograms:
        numbers = mapped(factors)
        if engine is None:
            return _counted(product, *numbers)
        whole = Histograms()
        for part in engine.map(_counted, [(share, *numbers) for share in shares]):
            whole.add(part)
        return whole

    floor = Factors(1e-300, 1e-300) if settings.clip else Factors(1.0, _floor(data, used))
    scaled = scale(counted, settings, floor)
    w, x, bias = mapped(scaled.factors)
    bounds = _bounds(product, w, x, bias)
    checked = {SumStage.OUTPUT: "output"}
    stages = tuple(
        StageFacts.of(stage.value, histogram, bounds.bits(stage), checked.get(stage, "intermediate"))
        for stage, histogram in scaled.sums.items()
    )
    factors = scaled.factors
    scaling = Scaling(float(w.scale), float(x.scale), factors.weight, factors.input, scaled.rounds, scaled.within)
    return LayerOverflow(product.name, product.operator, stages, scaling)


def _counted(product: LayerProduct, w: Codes, x: Codes, bias: Array | None) -> Histograms:
    """Histograms of the values that a product makes in some codes."""
    return count(product.arrange(x.codes_of(product.x), w.codes_of(product.w), bias))


def _range(values: FloatArray) -> tuple[float, float]:
    """Least and greatest of some values and zero; ``ValueError`` if there are none."""
    if not values.size:
        raise ValueError("values must be at least one number, not none")
    return min(float(values.min()), 0.0), max(float(values.max()), 0.0)


def _whole(values: FloatArray) -> Array:
    """The nearest integers, of any size."""
    rounded = np.rint(values)
    if np.abs(rounded).max() < 2.0**62:
        return rounded.astype(np.int64)
    return np.array([int(value) for value in rounded.reshape(-1)], dtype=object).reshape(rounded.shape)


def _floor(data: tuple[float, float], used: tuple[float, float]) -> float:
    """The part of a range that its values use."""
    sides = [part / whole for part, whole in zip(used, data, strict=True) if whole]
    return max(sides, default=1.0) or 1.0


def _bounds(product: LayerProduct, w: Codes, x: Codes, bias: Array | None) -> Extremes:
    """Ends of what elements anywhere in their range can make."""
    if product.rows is not None:
        return bound(product.rows(w.codes_of(product.w)), bias, x.ends)
    terms = product.x.shape[-1]
    corners, extremes = [a * b for a in w.ends for b in x.ends], Extremes()
    extremes.include(SumStage.PRODUCT, *corners)
    for stage in (SumStage.SUM, SumStage.OUTPUT) if terms > 1 else (SumStage.OUTPUT,):
        extremes.include(stage, *(corner * terms for corner in corners))
    return extremes
