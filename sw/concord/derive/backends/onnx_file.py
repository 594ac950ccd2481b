"""A derived model as an ONNX graph that ONNX Runtime executes, with the bits of the NPU.

Inputs are DOUBLE and outputs have the types of the network, both with its names and a free number of samples. Every
layer is a function of the domain ``layers``, made of standard operators and the functions of :mod:`.onnx_functions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from concord.derive import ir
from concord.derive.backends.names import free_name, runs_of_layers
from concord.derive.backends.onnx_flag_output import describe
from concord.derive.backends.onnx_host_partition import write_host_partition
from concord.derive.backends.onnx_nodes import OnnxNodes
from concord.derive.backends.onnx_writer import Writer
from concord.graph.ir import Graph
from concord.utils.files import write_bytes


def to_onnx(model: ir.Model) -> onnx.ModelProto:
    """The ONNX model of a derived one; ``ValueError`` for what it cannot hold."""
    return _Emitter(model).build()


def write_onnx(model: ir.Model, path: Path) -> None:
    """Write the ONNX file of a derived model."""
    write_bytes(path, to_onnx(model).SerializeToString())


class _Emitter(OnnxNodes):
    """Writes one model. Tensors have the names of their values, those of the network at its ends."""

    def __init__(self, model: ir.Model):
        parts = [part for part in (model.front, model.host_partition) if part is not None]
        reserved = {*model.names.values(), *(name for part in parts for name in part.shapes)}
        super().__init__(Writer(reserved))
        self.model = model
        for value in _values(model.body):
            if value.name in reserved:
                self.names[value] = self.writer.fresh(value.name)

    def build(self) -> onnx.ModelProto:
        self._check_names()
        model, writer = self.model, self.writer
        if model.front is not None:
            with writer.layer("inputs"):
                write_host_partition(writer, model.front, {name: name for name in model.front.inputs})
        for layer, nodes in runs_of_layers(model.body):
            with writer.layer(layer):
                for node in nodes:
                    self.emit(node)
        with writer.layer("outputs"):
            results = self._ends()
            self._type_outputs(results)
            flags = self._flags() if model.flags is not None and model.flags.places else None
        inputs = [_port(name, shape) for name, shape in model.sources.items()]
        outputs = [_port(name, shape, model.output_types.get(name)) for name, shape in results.items()]
        if model.flags is not None and flags is not None:
            shape: list[str | int | None] = ["samples", len(model.flags.places)]
            outputs.append(helper.make_tensor_value_info(flags, TensorProto.UINT8, shape))
        proto = writer.model(model.name, inputs, outputs)
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
        if both := sorted(outputs & {*self.model.sources, *(names[value.name] for value in self.model.inputs)}):
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
                count = writer.samples(model.names[model.inputs[0].name])
                name = self.expand(name, ends[model.names[value.name]], count)
            elif model.group > 1:
                name = self._ungrouped(name, value)
            writer.node("Identity", [name], model.names[value.name])
        if model.host_partition is None:
            return ends
        computed = write_host_partition(writer, model.host_partition, self._host_part(model.host_partition)) | ends
        return {name: computed[name] for name in dict.fromkeys([*model.host_partition.outputs, *ends])}

    def _type_outputs(self, results: Iterable[str]) -> None:
        """Casts to the types of outputs; what computes and reads them in float64 gets another name for that."""
        writer = self.writer
        types = {name: kind for name in results if (kind := self.model.output_types.get(name, "float64")) != "float64"}
        real = {name: writer.fresh(name) for name in types}
        for node in writer.nodes:
            node.name = real.get(node.name, node.name)
            for names in (node.input, node.output):
                names[:] = [real.get(name, name) for name in names]
        for name, kind in types.items():
            x = real[name]
            if kind == "float16":  # which a cast from DOUBLE rounds twice
                x = writer.call("RealToHalf", [x])
            elif kind != "float32":
                x = writer.node("Where", [writer.node("IsNaN", [x]), writer.constant(0.0, np.float64), x])
            writer.node("Cast", [x], name, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def _host_part(self, partition: Graph) -> dict[str, str]:
        """Inputs of the host's part: outputs of the NPU, and inputs as the model reads them."""
        grids = self.model.grids
        return {name: self.on_grid(name, grids[name]) if name in grids else name for name in partition.inputs}

    # Groups of samples that a run of the program computes together ------------------------------

    def _grouped(self, value: ir.Value) -> str:
        """An input ``[samples, ...]`` as ``[runs, group, ...]``, filled up with the last sample."""
        w, group = self.writer, self.model.group
        port = self.model.names[value.name]
        count = w.samples(port)
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
            words = self._first_samples(w.node("Reshape", [several, w.ints([-1, count])]))
        return w.node("Identity", [words], name)

    def _ungrouped(self, name: str, value: ir.Value) -> str:
        w = self.writer
        return self._first_samples(w.node("Reshape", [name, w.ints([-1, *value.shape[1:]])]))

    def _first_samples(self, x: str) -> str:
        """As many samples of a tensor as the inputs have."""
        w, count = self.writer, self.writer.samples(self.model.names[self.model.inputs[0].name])
        return w.node("Slice", [x, w.ints([0]), count, w.ints([0])])

    def name(self, value: ir.Value) -> str:
        """The tensor of a value, which may be an input."""
        if value in self.model.inputs and value not in self.names:
            self.names[value] = self._grouped(value) if self.model.group > 1 else self.model.names[value.name]
        return super().name(value)


def _values(body: ir.Body) -> Iterator[ir.Value]:
    """All values that nodes compute, those in loops included."""
    for node in body:
        yield from node.outputs
        if isinstance(node, ir.Loop):
            yield from [part.param for part in node.carried] + [part.param for part in node.scanned]
            yield from _values(node.body)


def _port(name: str, shape: ir.Shape, kind: str | None = None) -> onnx.ValueInfoProto:
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind or np.float64))
    return helper.make_tensor_value_info(name, element, ["samples", *shape])
