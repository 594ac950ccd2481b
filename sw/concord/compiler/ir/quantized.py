"""Models that are quantised already: what their scales and zero points mean for the formats of the NPU.

A scale that is a power of two is a static exponent. Where the range of codes needs more bits than a mantissa has, the
exponent is as much greater, and codes are rounded. With any other scale the exponents are dynamic.

Inputs are rounded and limited to their codes by the host, if the scale is a power of two. They are converted with
dynamic exponents all the same: where mantissas hold the codes of a block, these are not greater than the static one
would be, so the codes are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np

from concord.compiler.ir.arrangement import InputGrid
from concord.compiler.ir.layers import AnyLayer, Layer, Reduction
from concord.compiler.ir.tensor_formats import Formats
from concord.golden import binary16
from concord.golden.blocks import floor_log2
from concord.golden.codes import CodeRange, Codes
from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.image.packing import rounded_depthwise, rounded_matrix
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_PRECISION, BlockFormat
from concord.spec.widths import needed_width
from concord.utils.arrays import FloatArray


@dataclass(frozen=True)
class Inexact:
    """A choice of the exporter that the NPU does not hold exactly, and what that costs.

    Parameters
    ----------
    name : str
        Of the tensor, or of the layer whose weights these are.
    weights : bool
        Whether it is of weights.
    codes : str
        What the exporter chose.
    reason : str
        What does not fit.
    error : float
        Relative root mean square error: of the weights; of a tensor that of all codes, each as often, in one block.
    """

    name: str
    weights: bool
    codes: str
    reason: str
    error: float

    @property
    def text(self) -> str:
        """One line about the tensor or weights."""
        what = f"weights of {self.name}" if self.weights else self.name
        return f"{what} ({self.codes}): {self.reason}; relative error {100 * self.error:.2f} %"


def _offsets(quantization: Codes) -> tuple[int, int]:
    """Least and greatest difference of a code and its zero point; a symmetric range is without its least code."""
    low, high = quantization.offsets
    symmetric = quantization.range is CodeRange.SIGNED and not any(quantization.zeros)
    return int(low.min()) + symmetric, int(high.max())


def static_exponent_of(quantization: Codes, config: NpuConfig) -> int | None:
    """The exponent that a power of two as scale means; ``None`` for others, and beyond the exponents of ``config``."""
    if quantization.axis is not None or quantization.exponents is None:
        return None
    more = needed_width(max(map(abs, _offsets(quantization)))) - config.act_mant
    exponent = quantization.exponents[0] + max(more, 0)
    return exponent if config.act.exp_min <= exponent <= config.act.exp_max else None


def exponents_of(graph: Graph, config: NpuConfig) -> dict[str, int]:
    """Static exponents that an exporter chose, by tensor; inputs have dynamic ones, and :func:`grids_of`."""
    computed = {name: quantization for name, quantization in graph.quantization.items() if name not in graph.inputs}
    exponents = {name: static_exponent_of(quantization, config) for name, quantization in computed.items()}
    return {name: exponent for name, exponent in exponents.items() if exponent is not None}


def grids_of(graph: Graph, config: NpuConfig) -> dict[str, InputGrid]:
    """Grids to which the host rounds inputs that it writes, where their scales are powers of two.

    The least code of a symmetric range is left out if mantissas of ``config`` do not hold it: it would cost the other
    elements of its block a bit.
    """
    grids = {}
    for name, quantization in graph.quantization.items():
        if name not in graph.inputs or name in graph.states:
            continue
        if quantization.axis is None and quantization.exponents is not None:
            least, greatest = _offsets(quantization)
            if -least == greatest and needed_width(greatest + 1) <= config.act_mant:
                least -= 1
            grids[name] = InputGrid(quantization.exponents[0], least, greatest)
    return grids


def inexact(
    graph: Graph,
    layers: Collection[AnyLayer],
    memories: tuple[Collection[str], Collection[str]],
    config: NpuConfig,
    formats: Formats,
    exponents: Mapping[str, int],
) -> tuple[Inexact, ...]:
    """Parts of a quantised model that the NPU does not hold exactly.

    Parameters
    ----------
    graph : Graph
        The model.
    layers : collection of Layer
        Of the model on the NPU.
    memories : pair of collections of str
        Tensors that lie in narrow memory, and in wide memory; some lie in both.
    config : NpuConfig
        The NPU.
    formats : Formats
        What it was compiled with.
    exponents : mapping of str to int
        Those of the exporter, :func:`exponents_of`.
    """
    narrow, wide = memories
    order = dict.fromkeys(name for name in (*narrow, *graph.quantization) if name in graph.quantization)
    rounded = {node.outputs[0] for node in graph.nodes if node.op == "FakeQuantize"} | grids_of(graph, config).keys()
    losses = []
    for name in order:
        loss = None
        if name in narrow:
            loss = _tensor(name, graph.quantization[name], config, exponents.get(name))
        elif name in rounded:
            loss = _in_binary16(name, graph.quantization[name])
        if loss is None and name not in rounded and (name in wide or name not in narrow):
            loss = _not_rounded(name, graph.quantization[name])
        losses.append(loss)
    for layer in layers:
        nodes = [node for node in graph.nodes if node.name in layer.nodes and node.name in graph.weight_quantization]
        weights = operator_of(nodes[0]).affine if nodes else None
        if isinstance(layer, Layer) and layer.weight is not None and weights is not None:
            quantization = graph.weight_quantization[nodes[0].name]
            largest = _largest_code(weights.weight_of(nodes[0]), quantization)
            losses.append(_weights(layer, layer.weight, largest, quantization, config, formats.mantissa(layer, config)))
    return tuple(loss for loss in losses if loss is not None)


def _tensor(name: str, quantization: Codes, config: NpuConfig, exponent: int | None) -> Inexact | None:
    values, largest = _values(quantization)
    held = _held(values, config.act, exponent)
    return _inexact(name, False, quantization, config.act_mant, largest, values, held)


def _in_binary16(name: str, quantization: Codes) -> Inexact | None:
    """Loss of codes in wide memory, if there is any."""
    values, largest = _values(quantization)
    held = binary16.decode(binary16.encode(values))
    return _inexact(name, False, quantization, BINARY16_PRECISION + 1, largest, values, held)


def _not_rounded(name: str, quantization: Codes) -> Inexact:
    """A tensor that some or all of its readers have as it is; rounding to codes is as if it were uniform noise."""
    values, _ = _values(quantization)
    steps = np.broadcast_to(quantization.steps.reshape(-1, 1), values.shape)
    error = float(np.linalg.norm(steps) / np.sqrt(12) / max(float(np.linalg.norm(values)), 1e-30))
    return Inexact(name, False, str(quantization), "is read without being rounded to its codes", error)


def _values(quantization: Codes) -> tuple[FloatArray, int]:
    """Values of all codes ``[scales, codes]``, and the largest difference of a code from its zero point."""
    least, greatest = _offsets(quantization)
    codes = np.arange(least, greatest + 1) if quantization.bits <= 16 else np.linspace(least, greatest, 1 << 16)
    return np.multiply.outer(quantization.steps.reshape(-1), codes), max(-least, greatest)


def _held(values: FloatArray, fmt: BlockFormat, exponent: int | None) -> FloatArray:
    """Blocks ``[blocks, values]`` as mantissas of a format."""
    if exponent is None:
        exponents = np.maximum(floor_log2(np.abs(values).max(axis=1, keepdims=True)) - fmt.headroom, fmt.exp_min)
    else:
        exponents = np.full((len(values), 1), exponent)
    mants = np.clip(np.rint(np.ldexp(values, -exponents)), -fmt.q_max, fmt.q_max)
    return np.asarray(np.ldexp(mants, exponents))


def _largest_code(weight: FloatArray, quantization: Codes) -> int:
    """Greatest distance of a code from its zero point."""
    scale = quantization.steps.reshape(-1, *[1] * (weight.ndim - 1))
    return int(np.rint(np.abs(weight) / scale).max())


def _weights(
    layer: Layer, weight: FloatArray, largest: int, quantization: Codes, config: NpuConfig, mant: int
) -> Inexact | None:
    held = held_weight(layer, config, mant)
    return _inexact(layer.name, True, quantization, mant, largest, weight, held)


def held_weight(layer: Layer, config: NpuConfig, mant: int | None = None) -> FloatArray:
    """The weights of a product as the tile engines have them, with mantissas of ``mant`` bits if that is said."""
    rounded = rounded_depthwise if layer.reduction is Reduction.DEPTHWISE else rounded_matrix
    assert layer.weight is not None
    return rounded(layer.weight, config, mant)


def _inexact(
    name: str, weights: bool, quantization: Codes, mant: int, largest: int, values: FloatArray, held: FloatArray
) -> Inexact | None:
    error = float(np.linalg.norm(held - values) / max(float(np.linalg.norm(values)), 1e-30))
    if error == 0:
        return None
    reasons = []
    if needed_width(largest) > mant:
        reasons.append(f"needs mantissas of {needed_width(largest)} bits, not {mant}")
    if quantization.exponents is None:
        reasons.append("scales are rounded, being no powers of two")
    if not reasons:
        reasons.append("exponents are beyond those of the NPU")
    return Inexact(name, weights, str(quantization), ", ".join(reasons), error)
