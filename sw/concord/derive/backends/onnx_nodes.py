"""Nodes of a derived model in ONNX: calls of the functions of :mod:`.onnx_functions`, and standard operators."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper

from concord.derive import ir
from concord.derive.backends.node_facts import positions, singles
from concord.derive.backends.node_walk import EVEN, NodeWalk, weight_of
from concord.derive.backends.onnx_flag_output import Hits
from concord.derive.backends.onnx_functions import function_name
from concord.derive.backends.onnx_register import ended
from concord.derive.backends.onnx_writer import BEFORE_FIRST, Writer
from concord.derive.backends.products import ProductPlan
from concord.operations import OPERATIONS
from concord.spec.formats import Flag, Rounding
from concord.spec.isa import Op

_ARITHMETIC = {"+": "Add", "-": "Sub", "*": "Mul"}


class OnnxNodes(NodeWalk):
    """Adds nodes to a graph."""

    SINGLE_SUM = "round_single_to_half"

    def __init__(self, writer: Writer):
        super().__init__()
        self.writer, self.hits = writer, Hits(writer)
        self._constants: dict[ir.Value, ir.Bits] = {}

    def constant(self, values: npt.ArrayLike, dtype: Any, hint: str) -> str:
        return self.writer.constant(values, dtype, hint)

    def halves(self, bits: npt.NDArray[np.uint16], hint: str, real: bool = False) -> str:
        return self.writer.constant(singles(bits), np.float64 if real else np.float32, hint)

    def call(
        self, primitive: str, operands: Sequence[str], output: str | None = None, rounding: Rounding = EVEN, **args: Any
    ) -> str:
        return self.writer.call(function_name(primitive, rounding), operands, output, **args)

    def arithmetic(self, a: str, sign: str, b: str, output: str | None = None) -> str:
        return self.writer.node(_ARITHMETIC[sign], [a, b], output)

    def on_grid(self, x: str, grid: ir.InputGrid) -> str:
        w, (exponent, low, high) = self.writer, grid
        codes = w.node("Round", [w.node("Mul", [x, w.constant(2.0**-exponent, np.float64)])])
        limited = w.node("Clip", [codes, w.constant(low, np.float64), w.constant(high, np.float64)])
        known = w.node("Where", [w.node("IsNaN", [codes]), codes, limited])
        return w.node("Mul", [known, w.constant(2.0**exponent, np.float64)])

    # Products -----------------------------------------------------------------------------------

    def limited(self, total: str, low: float, high: float) -> str:
        return self.writer.node("Clip", [total, *(self.writer.constant(end, np.float64) for end in (low, high))])

    def clipped(self, x: str, most: float) -> str:
        w = self.writer
        limited = w.node("Clip", [x, *(w.constant(end, np.float32) for end in (-most, most))])
        return w.node("Where", [w.node("IsNaN", [x]), x, limited])

    def wide(self, x: str) -> str:
        return self.writer.node("Cast", [x], to=TensorProto.DOUBLE)

    def product(self, node: ir.MatMul | ir.Depthwise, x: str, dtype: Any) -> str:
        w, weight = self.writer, self.writer.constant(weight_of(node), dtype)
        if isinstance(node, ir.Depthwise):
            return w.node("ReduceSum", [w.node("Mul", [x, weight]), w.ints([-2])], keepdims=0)
        if node.weight.ndim == 2:
            return w.node("MatMul", [x, weight])
        groups, _, depth = node.weight.shape
        by_group = w.node("Transpose", [w.node("Reshape", [x, w.ints([-1, groups, depth])])], perm=[1, 0, 2])
        back = w.node("Transpose", [w.node("MatMul", [by_group, weight])], perm=[1, 0, 2])
        return w.node("Reshape", [back, w.ints([*[-1] * node.x.batched, *node.output.shape])])

    def product_of(self, node: ir.ProductOf, x: str, matrix: str, dtype: Any) -> str:
        w, axes, rank = self.writer, int(node.output.batched), len(node.matrix.shape)
        count = int(np.prod(node.positions, dtype=np.int64))
        rows = w.node("Reshape", [x, w.ints([*[0] * axes, *node.groups, count, node.x.shape[-1]])])
        perm = [*range(axes + rank - 2), axes + rank - 1, axes + rank - 2]
        sums = w.node("MatMul", [rows, w.node("Transpose", [matrix], perm=perm)])
        return w.node("Reshape", [sums, w.ints([*[0] * axes, *node.output.shape])])

    def ended(self, node: ir.MatMul | ir.Depthwise, x: str, how: ProductPlan) -> str:
        return ended(self.writer, node, x, how)

    def parts(self, x: str, divisors: tuple[float, ...]) -> list[str]:
        w, parts = self.writer, []
        for step in divisors:
            whole = w.node("Round", [w.node("Mul", [x, w.constant(1.0 / step, np.float64)])])
            parts.append(w.node("Mul", [whole, w.constant(step, np.float64)]))
            x = w.node("Sub", [x, parts[-1]])
        return [*parts, x]

    def sum_of(self, primitive: str, terms: Sequence[str]) -> list[str]:
        return self.writer.calls(function_name(primitive), terms, 2)

    def named(self, total: str) -> str:
        return total

    # Operations on elements ---------------------------------------------------------------------

    def emit(self, node: ir.ModelNode) -> None:
        if isinstance(node, ir.Constant):
            self._constants[node.output] = node.data
        super().emit(node)

    def elementwise(self, node: ir.Elementwise, operands: list[str]) -> None:
        primitive = node.operation.primitive
        if (place := self._left_out(node)) is not None:
            zero, minus = operands[place], self.writer.node("Neg", [operands[1 - place]])
            zero = self.writer.node("Neg", [zero]) if node.operation.op is Op.VV_SUB else zero
            primitive, operands = OPERATIONS[Op.VV_SUB].primitive, [zero, minus]
        self.call(primitive, operands, self.name(node.output))

    def _left_out(self, node: ir.Elementwise) -> int | None:
        """Number of the operand that ONNX Runtime would leave out, and with it the +0 that it makes of a -0.

        It takes ``x + 0`` and ``x - -0`` for x where the constant has one element; ``0 - -x`` is what they are.
        """
        lost = {Op.VV_ADD: ((0, 0x0000), (1, 0x0000)), Op.VV_SUB: ((1, 0x8000),)}
        for place, bits in lost.get(node.operation.op, ()):
            data = self._constants.get(node.xs[place])
            if data is not None and data.size == 1 and data.item() == bits:
                return place
        return None

    def reduce_max(self, node: ir.Maximum, axis: int) -> None:
        """Both parts of the axis with each other, until one element is left."""
        w, x, count = self.writer, self.name(node.x), node.x.shape[node.axis]
        while count > 1:
            size = count // 2
            first, second, *rest = self._split(x, [size, size, count % 2][: 2 + count % 2], axis)
            x = self.call("half_max", [first, second])
            x = w.node("Concat", [x, *rest], axis=axis) if rest else x
            count = size + count % 2
        w.node("Squeeze", [x, w.ints([axis])], self.name(node.output))

    def _split(self, x: str, sizes: list[int], axis: int) -> list[str]:
        return [self.writer.part(x, start, end, axis) for start, end in pairwise(np.cumsum([0, *sizes]).tolist())]

    def note(self, node: ir.ModelNode, raised: Sequence[tuple[Flag, str]]) -> None:
        for flag, where in raised:
            self.hits.add(node, flag, where)

    # Data movement ------------------------------------------------------------------------------

    def batch(self, value: ir.Value) -> str:
        return self.writer.samples(self.name(value))

    def expand(self, name: str, shape: ir.Shape, batch: str) -> str:
        whole = self.writer.node("Concat", [batch, self.writer.ints(list(shape))], axis=0) if shape else batch
        return self.writer.node("Expand", [name, whole])

    def reshape(self, x: str, like: ir.Value, shape: ir.Shape, output: str | None = None) -> str:
        return self.writer.node("Reshape", [x, self.writer.ints([*[0] * like.batched, *shape])], output)

    def transpose(self, x: str, perm: list[int], output: str) -> str:
        return self.writer.node("Transpose", [x], output, perm=perm)

    def slice(self, node: ir.Slice) -> None:
        w, counts = self.writer, node.output.shape
        ends = [start + count * step for start, count, step in zip(node.starts, counts, node.steps, strict=True)]
        ends = [end if end >= 0 else BEFORE_FIRST for end in ends]
        axes = [axis + int(node.output.batched) for axis in range(len(counts))]
        numbers = [w.ints(list(values)) for values in (node.starts, ends, axes, node.steps)]
        w.node("Slice", [self.name(node.x), *numbers], self.name(node.output))

    def part(self, x: str, start: int, stop: int) -> str:
        return self.writer.part(x, start, stop, -1)

    def concat(self, xs: Sequence[str], axis: int, output: str | None = None) -> str:
        return self.writer.node("Concat", xs, output, axis=axis)

    def take(self, x: str, index: str, axis: int, output: str) -> str:
        return self.writer.node("Gather", [x, index], output, axis=axis)

    def windows(self, node: ir.MapWindows) -> None:
        """Positions of the map, which is padded by what windows reach beyond it."""
        w, x, axes, rest = self.writer, self.name(node.x), int(node.x.batched), node.x.shape[2:]
        index, pads = positions(node)
        top, bottom, left, right = pads
        if any(pads):
            fill = self.halves(np.asarray(node.fill, np.uint16), "fill", node.output.type is ir.Type.REAL)
            begin, end = ([*[0] * axes, *sizes, *[0] * len(rest)] for sizes in ((top, left), (bottom, right)))
            x = w.node("Pad", [x, w.ints([*begin, *end]), fill])
        places = (node.x.shape[0] + top + bottom) * (node.x.shape[1] + left + right)
        self.take_all(node, self.reshape(x, node.x, (places, *rest)), node.x, index, places)

    # Loops --------------------------------------------------------------------------------------

    def loop(self, node: ir.Loop) -> None:
        """A Scan: its states are what iterations carry, its inputs and outputs have the iterations along an axis."""
        w = self.writer
        batch = self.batch(next(value for value in node.inputs if value.batched))
        states = [self.expanded(carried.initial, batch) for carried in node.carried]
        sources = [self.name(scan.source) for scan in node.scanned]
        both: list[ir.Carried | ir.Scanned] = [*node.carried, *node.scanned]
        params = [self.name(read.param) for read in both]
        axes = [int(scan.source.batched) for scan in node.scanned]
        if not sources:  # a Scan has as many iterations as what it reads
            sources, axes = [w.constant(np.zeros(node.count), np.float32)], [0]
            params.append(w.fresh("iteration"))
        constants = [scan.param for scan in node.scanned if not scan.source.batched]
        outside, self.hits = self.hits, Hits(w)
        with w.inside() as body:
            self.names |= {read.param: self.name(read.param) for read in both}
            for param in constants:
                self.names[param] = self.expand(self.name(param), param.shape, batch)
            for inner in node.body:
                self.emit(inner)
            results = [part.result for part in node.carried] + [part.result for part in node.stacked]
            ends = [w.node("Identity", [self.expanded(value, batch)], w.fresh("iteration")) for value in results]
            hits = self.hits.together(self.hits.raised)
        self.hits = outside
        outputs = [w.fresh("unused") if part.final is None else self.name(part.final) for part in node.carried]
        raised = {key: w.fresh("raised") for key in hits}
        outputs += [self.name(part.output) for part in node.stacked] + list(raised.values())
        stacked_axes = [1] * (len(node.stacked) + len(hits))
        graph = helper.make_graph(
            body.nodes,
            node.layer or "iteration",
            [_inner(name) for name in params],
            [_inner(name) for name in ends] + [_inner(name, TensorProto.INT32) for name in hits.values()],
        )
        numbers: dict[str, Any] = {
            "num_scan_inputs": len(sources),
            "scan_input_axes": axes,
            "scan_output_axes": stacked_axes or None,
        }
        made = helper.make_node("Scan", [*states, *sources], outputs, name=w.fresh("Scan"), body=graph, **numbers)
        w.nodes.append(made)
        for key, stacked in raised.items():
            self.hits.iterations(key, stacked)


def _inner(name: str, type_: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, None)
