"""Rounding to codes on the NPU: what is left of QuantizeLinear and DequantizeLinear where mantissas are finer.

A look-up table rounds its input to codes of its own and limits them, so a table of as many entries as there are codes
does all of it: ``(x m) 2**k`` are codes with ``1 / scale = m 2**k``, and entries are what they mean. With a power of
two as scale, ``m`` is 1 and the result exact; else the products are rounded to binary16 before, so that a value next to
the middle between two codes may become the neighbour of its code.

Where there is no room for a table, or there is a scale per channel, sums do the same: ``clip(x / scale)`` plus and
minus a number beside which binary16 has no fractions. Codes of 16 bits are finer than binary16; they are limited only.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import partial

import numpy as np

from concord.compiler.ir.layers import MfuStep
from concord.compiler.ir.layout import Storage
from concord.compiler.ir.table_specs import Functions, InputSpan, TableSpec
from concord.compiler.lowering import operands
from concord.compiler.lowering.decomposition import tables_of_functions
from concord.compiler.lowering.lower import Lowering
from concord.functions.tables import SCALES
from concord.golden.codes import Codes
from concord.graph.ir import Graph, Node
from concord.graph.ops.elementwise import codes_of
from concord.graph.rewriting import Emit, rewrite
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_EXP_MAX, BINARY16_EXP_MIN, BINARY16_PRECISION
from concord.spec.isa import Op
from concord.utils.arrays import FloatArray, Ids

#: Bits of codes that binary16 holds.
_BITS = BINARY16_PRECISION - 2


def spread(graph: Graph, config: NpuConfig) -> Graph:
    """A copy of a graph in which a FakeQuantize without a table is computed by sums.

    Parameters
    ----------
    graph : Graph
        The network.
    config : NpuConfig
        Whose table memory it is for.
    """
    nodes = [node for node in graph.nodes if node.op == "FakeQuantize"]
    if not nodes:
        return graph
    made = graph.copy()
    tables = _tables(graph, nodes, config)
    for node in nodes:
        codes = codes_of(node)
        if table_of(codes, config) not in tables:
            rule = _limited if codes.bits > _BITS else _by_sums
            rewrite(made, node, partial(rule, x=node.inputs[0], shape=graph.shapes[node.inputs[0]], codes=codes))
    return made


def table_of(quantization: Codes, config: NpuConfig) -> TableSpec | None:
    """The table that rounds to codes; ``None`` if there is none, as for scales per channel."""
    if quantization.axis is not None or quantization.bits > _BITS:
        return None
    factor, scale = _parts(quantization)
    low, high = (int(end) for end in quantization.offsets)
    if scale not in SCALES or high - low >= config.table_depth or not -config.table_depth <= low <= high:
        return None
    if high >= config.table_depth:
        return None
    slope = 1 / factor
    functions: Functions = (("identity", ()),) if slope == 1 else (("linear", (("offset", 0.0), ("slope", slope))),)
    return functions, InputSpan(math.ldexp(low, -scale), math.ldexp(high + 1, -scale), scale=scale)


def _parts(quantization: Codes) -> tuple[float, int]:
    """``m`` from 1 to 2 and ``k`` of ``1 / scale = m 2**k``."""
    mantissa, exponent = math.frexp(1 / float(quantization.scale))
    return 2 * mantissa, exponent - 1


def _tables(graph: Graph, nodes: list[Node], config: NpuConfig) -> set[TableSpec]:
    """The tables that there is room for beside those of functions; those that are read most come first."""
    others = tables_of_functions(graph)
    slots, depth = config.table_slots - others, config.table_depth // (2 if others else 1)
    specs: set[TableSpec] = set()
    for spec, _ in Counter(table_of(codes_of(node), config) for node in nodes).most_common():
        if spec is None:
            continue
        domain = spec[1]
        assert isinstance(domain, InputSpan) and domain.scale is not None
        entries = int(np.ldexp(domain.high - domain.low, domain.scale))
        if slots > 0 and entries <= depth:
            specs.add(spec)
            slots, depth = slots - 1, depth - entries
    return specs


def _limited(emit: Emit, x: str, shape: tuple[int, ...], codes: Codes) -> None:
    _limit(emit, x, *(codes.along(end, len(shape)) for end in codes.span))


def _by_sums(emit: Emit, x: str, shape: tuple[int, ...], codes: Codes) -> None:
    """Codes less their zero points, whole, and what they mean."""
    scale = codes.along(codes.steps, len(shape))
    low, high = (codes.along(end, len(shape)) for end in codes.offsets)
    limited = _limit(emit, _times(emit, x, 1 / scale), low, high)
    _times(emit, emit("Round", limited, limited=True), scale)


def _times(emit: Emit, x: str, factor: FloatArray) -> str:
    """A product, as two if the factor is beyond the normal numbers of binary16."""
    exponents = np.frexp(factor)[1] - 1
    if BINARY16_EXP_MIN <= exponents.min() <= exponents.max() <= BINARY16_EXP_MAX:
        return emit("Mul", x, constant=factor)
    root = np.ldexp(1.0, exponents // 2)
    return emit("Mul", emit("Mul", x, constant=root), constant=factor / root)


def _limit(emit: Emit, x: str, low: FloatArray, high: FloatArray) -> str:
    if low.ndim == high.ndim == 0:
        return emit("Clip", x, min=float(low), max=float(high))
    return emit("Min", emit("Max", x, constant=low), constant=high)


def fake_quantize(lowering: Lowering, node: Node) -> None:
    """Codes by a table, in front of which a scale that is no power of two is a product."""
    codes = codes_of(node)
    spec, (factor, _) = table_of(codes, lowering.config), _parts(codes)

    def make(ids: Ids, target: Storage) -> list[MfuStep]:
        products = [] if factor == 1 else [MfuStep(Op.VV_MUL, operands.constant(np.array(factor), ids, target))]
        return [*products, MfuStep(Op.V_TBL, spec=spec)]

    lowering.elementwise(node, make, node.inputs[0])
