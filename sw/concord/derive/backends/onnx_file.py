"""A derived model as an ONNX graph that ONNX Runtime executes, with the bits of the NPU.

Inputs and outputs are DOUBLE, with the names of the network and a free number of samples. Every layer is a function of
the domain ``layers``, made of standard operators and the functions of :mod:`.onnx_functions`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from concord.derive import ir
from concord.derive.backends.names import free_name, runs_of_layers
from concord.derive.backends.node_facts import least_units, singles
from concord.derive.backends.onnx_data_movement import DataMovement
from concord.derive.backends.onnx_flags import Hits, describe
from concord.derive.backends.onnx_host import write_host_partition
from concord.derive.backends.onnx_register import ended
from concord.derive.backends.onnx_writer import Writer
from concord.derive.backends.products import ProductPlan, plan
from concord.graph.ir import Graph
from concord.operations import OPERATIONS
from concord.spec.formats import ExponentMode, Rounding
from concord.spec.isa import Op
from concord.utils.files import write_bytes

_ROUNDINGS = {Rounding.NEAREST_EVEN: "", Rounding.NEAREST_AWAY: "Away", Rounding.STOCHASTIC: "Stochastic"}


def to_onnx(model: ir.Model) -> onnx.ModelProto:
    """The ONNX model of a derived one; ``ValueError`` for what it cannot hold."""
    return _Emitter(model).build()


def write_onnx(model: ir.Model, path: Path) -> None:
    """Write the ONNX file of a derived model."""
    write_bytes(path, to_onnx(model).SerializeToString())


class _Emitter(DataMovement):
    """Writes one model. Tensors have the names of their values, those of the network at its ends."""

    def __init__(self, model: ir.Model):
        reserved = {*model.names.values(), *(model.host_partition.shapes if model.host_partition else ())}
        super().__init__(Writer(reserved))
        self.model, self.hits = model, Hits(self.writer)
        self._constants: dict[ir.Value, ir.Bits] = {}
        for value in _values(model.body):
            if value.name in reserved:
                self.names[value] = self.writer.fresh(value.name)

    def build(self) -> onnx.ModelProto:
        self._check_names()
        model, layers = self.model, []
        for layer, nodes in runs_of_layers(model.body):
            begin = len(self.writer.nodes)
            for node in nodes:
                self.emit(node)
            layers.append((layer, begin, len(self.writer.nodes)))
        begin = len(self.writer.nodes)
        results = self._ends()
        flags = self._flags() if model.flags is not None and model.flags.places else None
        layers.append(("outputs", begin, len(self.writer.nodes)))
        inputs = [_port(model.names[value.name], self._sample(value)) for value in model.inputs]
        outputs = [_port(name, shape) for name, shape in results.items()]
        if model.flags is not None and flags is not None:
            shape: list[str | int | None] = ["samples", len(model.flags.places)]
            outputs.append(helper.make_tensor_value_info(flags, TensorProto.UINT8, shape))
        proto = self.writer.model(model.name, inputs, outputs, [layer for layer in layers if layer[1] < layer[2]])
        if model.flags is not None and flags is not None:
            describe(proto, flags, model.flags)
        onnx.checker.check_model(proto)
        return proto

    def _check_names(self) -> None:
        """An ONNX graph has no two tensors of one name."""
        names, partition = self.model.names, self.model.host_partition
        outputs = {names[value.name] for value in self.model.outputs} | {
            *(partition.outputs if partition is not None else ())
        }
        if both := sorted(outputs & {names[value.name] for value in self.model.inputs}):
            raise ValueError(f"outputs of an ONNX graph must have other names than its inputs, not {both[0]!r}")

    def _sample(self, value: ir.Value) -> ir.Shape:
        return value.shape[1:] if self.model.group > 1 else value.shape

    def _ends(self) -> dict[str, ir.Shape]:
        """Outputs with their shapes: those of the network in its order, then what else the host's part reads."""
        model, writer = self.model, self.writer
        ends = {model.names[value.name]: self._sample(value) for value in model.outputs}
        for value in model.outputs:
            name = self.name(value)
            if not value.batched:
                count = writer.node("Shape", [model.names[model.inputs[0].name]], start=0, end=1)
                name = self.expand(name, ends[model.names[value.name]], count)
            elif model.group > 1:
                name = self._ungrouped(name, value)
            writer.node("Identity", [name], model.names[value.name])
        if model.host_partition is None:
            return ends
        computed = write_host_partition(writer, model.host_partition, self._host_part(model.host_partition)) | ends
        return {name: computed[name] for name in dict.fromkeys([*model.host_partition.outputs, *ends])}

    def _host_part(self, partition: Graph) -> dict[str, str]:
        """What the host's part reads: outputs of the NPU, and inputs as the model reads them."""
        grids = self.model.grids
        return {name: self._on_grid(name, grids[name]) if name in grids else name for name in partition.inputs}

    # Groups of samples that a run of the program computes together ------------------------------

    def _grouped(self, value: ir.Value) -> str:
        """An input ``[samples, ...]`` as ``[runs, group, ...]``, filled up with the last sample."""
        w, group = self.writer, self.model.group
        port = self.model.names[value.name]
        count = w.node("Shape", [port], start=0, end=1)
        single, size = w.ints([1]), w.ints([group])
        runs = w.node("Div", [w.node("Add", [count, w.node("Sub", [size, single])]), size])
        whole = w.node("Squeeze", [w.node("Mul", [runs, size])])
        zero, step = w.constant(0, np.int64), w.constant(1, np.int64)
        index = w.node("Min", [w.node("Range", [zero, whole, step]), w.node("Sub", [count, single])])
        filled = w.node("Gather", [port, index], axis=0)
        return w.node("Reshape", [filled, w.ints([-1, *value.shape])])

    def _flags(self) -> str:
        """The flag words of samples, those of the run that computes them."""
        assert self.model.flags is not None
        w, group = self.writer, self.model.group
        name = free_name("flags", {*w.reserved, *(value.name for value in _values(self.model.body))})
        words = self.hits.words(self.model.flags, self.batch(self.model.inputs[0]))
        if group > 1:
            count = len(self.model.flags.places)
            several = w.node("Tile", [words, w.ints([1, group])])
            rows = w.node("Reshape", [several, w.ints([-1, count])])
            samples = w.node("Shape", [self.model.names[self.model.inputs[0].name]], start=0, end=1)
            words = w.node("Slice", [rows, w.ints([0]), samples, w.ints([0])])
        return w.node("Identity", [words], name)

    def _ungrouped(self, name: str, value: ir.Value) -> str:
        w = self.writer
        flat = w.node("Reshape", [name, w.ints([-1, *value.shape[1:]])])
        count = w.node("Shape", [self.model.names[self.model.inputs[0].name]], start=0, end=1)
        return w.node("Slice", [flat, w.ints([0]), count, w.ints([0])])

    # Nodes --------------------------------------------------------------------------------------

    def emit(self, node: ir.ModelNode) -> None:
        """Write one node, and what finds out whether it raises flags."""
        self._emit(node)
        rank = len(node.output.shape)
        operands = [self.aligned(x, rank) for x in node.inputs] if isinstance(node, ir.Elementwise) else []
        if node.may:
            self.hits.node(node, operands or [self.name(x) for x in node.inputs], self.name(node.output))

    def _emit(self, node: ir.ModelNode) -> None:
        match node:
            case ir.Constant():
                self._constants[node.output] = node.data
                self.names[node.output] = self.writer.constant(singles(node.data), np.float32, node.output.name)
            case ir.Prepare():
                self._prepare(node)
            case ir.ToBinary16():
                self.writer.call("RealToHalf", [self.source(node.x)], self.name(node.output))
            case ir.ToReal():
                number = self.writer.call("CanonicalNaN", [self.name(node.x)])
                self.writer.node("Cast", [number], self.name(node.output), to=TensorProto.DOUBLE)
            case ir.Quantise():
                self._quantise(node)
            case ir.MatMul() | ir.Depthwise():
                self._product(node)
            case ir.Elementwise():
                self._elementwise(node)
            case ir.Maximum():
                self._maximum(node)
            case ir.TableLookup():
                self._table(node)
            case ir.Loop():
                self._loop(node)
            case _:
                self.move(node)

    def source(self, value: ir.Value) -> str:
        """The name of a value, which may be an input."""
        if value in self.model.inputs and value not in self.names:
            self.names[value] = self._grouped(value) if self.model.group > 1 else self.model.names[value.name]
        return self.name(value)

    def _prepare(self, node: ir.Prepare) -> None:
        w, x = self.writer, self.source(node.x)
        if node.grid is not None:
            x = self._on_grid(x, node.grid)
        for op, array in (("Sub", node.middles), ("Mul", node.factors)):
            if array is not None:
                x = w.node(op, [x, w.constant(array, np.float64)])
        w.node("Sub", [x, w.constant(node.offset, np.float64)], self.name(node.output))

    def _on_grid(self, x: str, grid: ir.InputGrid) -> str:
        """The nearest numbers that a quantised model knows."""
        w, (exponent, low, high) = self.writer, grid
        codes = w.node("Round", [w.node("Mul", [x, w.constant(2.0**-exponent, np.float64)])])
        limited = w.node("Clip", [codes, w.constant(low, np.float64), w.constant(high, np.float64)])
        known = w.node("Where", [w.node("IsNaN", [codes]), codes, limited])
        return w.node("Mul", [known, w.constant(2.0**exponent, np.float64)])

    def _quantise(self, node: ir.Quantise) -> None:
        w, x, form = self.writer, self.source(node.x), node.form
        how, front = _ROUNDINGS[node.rounding], [0] if node.x.batched else []
        code = float(form.q_max)
        if node.mode is ExponentMode.STATIC:
            beside = [] if node.noise is None else [w.constant(node.noise, np.float64)]
            w.call(f"StaticQuantize{how}", [x, *beside], self.name(node.output), unit=2.0**node.exp, greatest_code=code)
            return
        share = 2.0**-form.headroom
        least = least_units(node)
        parts = []
        runs = _runs(node.blocks)
        sizes = [count * size for size, count in runs]
        sources = [x] if len(runs) == 1 else self.split(x, sizes)
        start = place = 0
        for (size, count), part in zip(runs, sources, strict=True):
            floor = least[start : start + count]
            start += count
            units = w.constant(floor[:1] if (floor == floor[0]).all() else floor[:, None], np.float32)
            blocks = w.node("Reshape", [part, w.ints([*front, *node.x.shape[:-1], count, size])])
            operands = [blocks, units]
            if node.noise is not None:
                noise = node.noise[..., place : place + count * size].reshape(*node.x.shape[:-1], count, size)
                operands.append(w.constant(noise, np.float64))
            place += count * size
            narrow = w.call(f"BlockQuantize{how}", operands, share=share, greatest_code=code)
            last = self.name(node.output) if len(runs) == 1 else None
            parts.append(w.node("Reshape", [narrow, w.ints([*front, *node.x.shape[:-1], count * size])], last))
        if len(parts) > 1:
            w.node("Concat", parts, self.name(node.output), axis=-1)

    def _product(self, node: ir.MatMul | ir.Depthwise) -> None:
        w, how = self.writer, plan(node)
        x = self.name(node.x)
        if how.single:
            total = self._sum(node, x, np.float32)
            w.call("RoundSingleToHalf", [self._offset(node, total, np.float32)], self.name(node.output))
            return
        x = w.node("Cast", [x], to=TensorProto.DOUBLE)
        if how.register is not None:
            totals = [ended(w, node, x, how)]
        else:
            totals = [self._sum(node, part) for part in self._parts(x, how)]
        if len(totals) == 1:
            total = self._offset(node, totals[0], np.float64)
            self.hits.product(node, [total])
            w.call("RoundToHalf", [self._limited(total, how)], self.name(node.output))
            return
        if node.offset is not None:
            totals.append(w.constant(node.offset, np.float64))
        total, rest = w.calls({2: "SumOfTwo", 3: "SumOfThree"}[len(totals)], totals, 2)
        self.hits.product(node, [total, rest])
        w.call("RoundSumToHalf", [self._limited(total, how), rest], self.name(node.output))

    def _parts(self, x: str, how: ProductPlan) -> list[str]:
        """The source divided into parts of few bits."""
        w, parts = self.writer, []
        for step in how.steps:
            whole = w.node("Round", [w.node("Mul", [x, w.constant(1.0 / step, np.float64)])])
            parts.append(w.node("Mul", [whole, w.constant(step, np.float64)]))
            x = w.node("Sub", [x, parts[-1]])
        return [*parts, x]

    def _sum(self, node: ir.MatMul | ir.Depthwise, x: str, dtype: type = np.float64) -> str:
        """Sums of products, without the offset."""
        w, weight = self.writer, node.weight
        if isinstance(node, ir.Depthwise):
            terms = w.node("Mul", [x, w.constant(weight, dtype)])
            return w.node("ReduceSum", [terms, w.ints([-2])], keepdims=0)
        if weight.ndim == 2:
            return w.node("MatMul", [x, w.constant(weight.T, dtype)])
        groups, _, depth = weight.shape
        rows = w.node("Reshape", [x, w.ints([-1, groups, depth])])
        by_group = w.node("Transpose", [rows], perm=[1, 0, 2])
        products = w.node("MatMul", [by_group, w.constant(weight.transpose(0, 2, 1), dtype)])
        back = w.node("Transpose", [products], perm=[1, 0, 2])
        front = [-1] if node.x.batched else []
        return w.node("Reshape", [back, w.ints([*front, *node.output.shape])])

    def _offset(self, node: ir.MatMul | ir.Depthwise, total: str, dtype: type) -> str:
        if node.offset is None:
            return total
        return self.writer.node("Add", [total, self.writer.constant(node.offset, dtype)])

    def _limited(self, total: str, how: ProductPlan) -> str:
        if how.limits is None:
            return total
        return self.writer.node("Clip", [total, *(self.writer.constant(end, np.float64) for end in how.limits)])

    def _elementwise(self, node: ir.Elementwise) -> None:
        rank = len(node.output.shape)
        operands = [self.aligned(value, rank) for value in node.xs]
        call = node.operation.onnx
        if (place := self._left_out(node)) is not None:
            zero, minus = operands[place], self.writer.node("Neg", [operands[1 - place]])
            zero = self.writer.node("Neg", [zero]) if node.operation.op is Op.VV_SUB else zero
            call, operands = OPERATIONS[Op.VV_SUB].onnx, [zero, minus]
        self.writer.call(call, operands, self.name(node.output))

    def _left_out(self, node: ir.Elementwise) -> int | None:
        """Which operand ONNX Runtime would leave out, and with it the +0 that it makes of a -0.

        It takes ``x + 0`` and ``x - -0`` for x where the constant has one element; ``0 - -x`` is what they are.
        """
        lost = {Op.VV_ADD: ((0, 0x0000), (1, 0x0000)), Op.VV_SUB: ((1, 0x8000),)}
        for place, bits in lost.get(node.operation.op, ()):
            data = self._constants.get(node.xs[place])
            if data is not None and data.size == 1 and data.item() == bits:
                return place
        return None

    def _maximum(self, node: ir.Maximum) -> None:
        """Halves of the axis with each other, until one element is left."""
        w, x = self.writer, self.name(node.x)
        axis = node.axis % len(node.x.shape) + node.x.batched
        count = node.x.shape[node.axis]
        while count > 1:
            half_count = count // 2
            parts = self.split(x, [half_count, half_count, count % 2][: 2 + count % 2], axis)
            x = w.call("HalfMax", parts[:2])
            if count % 2:
                x = w.node("Concat", [x, parts[2]], axis=axis)
            count = half_count + count % 2
        w.node("Squeeze", [x, w.ints([axis])], self.name(node.output))

    def _table(self, node: ir.TableLookup) -> None:
        entries = self.writer.constant(singles(node.entries), np.float32, node.name)
        ends = {"low": float(node.low), "high": float(node.high)}
        self.writer.call(
            "HalfTable", [self.name(node.x), entries], self.name(node.output), factor=2.0**node.scale, **ends
        )

    def _loop(self, node: ir.Loop) -> None:
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
        w.nodes.append(
            helper.make_node(
                "Scan", [*states, *sources], outputs, name=w.fresh("Scan"), body=graph,
                num_scan_inputs=len(sources),
                scan_input_axes=axes,
                scan_output_axes=stacked_axes or None,
            )
        )  # fmt: skip
        for key, stacked in raised.items():
            self.hits.iterations(key, stacked)


def _values(body: ir.Body) -> Iterator[ir.Value]:
    """All values that nodes compute, those in loops included."""
    for node in body:
        yield from node.outputs
        if isinstance(node, ir.Loop):
            yield from [part.param for part in node.carried] + [part.param for part in node.scanned]
            yield from _values(node.body)


def _runs(blocks: tuple[int, ...]) -> list[tuple[int, int]]:
    """Sizes of blocks that follow each other, and how often."""
    return [(size, len(list(same))) for size, same in groupby(blocks)]


def _port(name: str, shape: ir.Shape) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.DOUBLE, ["samples", *shape])


def _inner(name: str, type_: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, type_, None)
