"""ONNX nodes one after the other, with constants as initializers, and layers as functions of a model."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from concord.derive.backends.names import free_name
from concord.derive.backends.onnx_functions import IR_VERSION, OPSET, needed
from concord.derive.names import in_ascii
from concord.operations.onnx_text import DOMAIN

Ports = Sequence[onnx.ValueInfoProto]
#: End of a slice that goes down to the first element.
BEFORE_FIRST = -(1 << 62)
#: Domain of the functions that are layers.
LAYERS = "layers"


class Writer:
    """Collects the nodes of a graph.

    Parameters
    ----------
    reserved : collection of str
        Names that are not for tensors in between.

    Members
    -------
    nodes : list of onnx.NodeProto
        In order; those of a body that is being written are in :meth:`inside`.
    initializers : dict of str to TensorProto
        Constants of the whole model; equal ones are stored once.
    used : set of str
        Names of the functions of :mod:`.onnx_functions` that nodes call.
    """

    def __init__(self, reserved: Collection[str] = ()) -> None:
        self.reserved = reserved
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: dict[str, onnx.TensorProto] = {}
        self.used: set[str] = set()
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._layers: list[tuple[str, int, int]] = []
        self._count = 0

    def fresh(self, hint: str) -> str:
        """A name that no other tensor has."""
        self._count += 1
        name = f"{hint}.{self._count}"
        return self.fresh(hint) if name in self.reserved else name

    def constant(self, values: npt.ArrayLike, dtype: Any, hint: str = "constant") -> str:
        """The name of an initializer with these values."""
        array = np.ascontiguousarray(np.asarray(values, dtype=dtype)).reshape(np.shape(values))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._constants:
            name = self._constants[key] = self.fresh(hint)
            self.initializers[name] = numpy_helper.from_array(array, name)
        return self._constants[key]

    def ints(self, values: Sequence[int] | npt.NDArray[Any]) -> str:
        """An int64 initializer: axes, shapes, indices."""
        return self.constant(values, np.int64, "ints")

    def node(self, op: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """Add a standard operator with one output, and return the output's name."""
        return self._add(op, inputs, [output or self.fresh(op)], **attributes)[0]

    def several(self, op: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add a standard operator with several outputs, and return their names."""
        return self._add(op, inputs, [self.fresh(op) for _ in range(count)], **attributes)

    def _add(self, op: str, inputs: Sequence[str], outputs: list[str], **attributes: Any) -> list[str]:
        self.nodes.append(helper.make_node(op, list(inputs), outputs, name=outputs[0], **attributes))
        return outputs

    def samples(self, x: str) -> str:
        """The number of samples of a tensor, ``[1]``."""
        return self.node("Shape", [x], start=0, end=1)

    def part(self, x: str, start: int, stop: int, axis: int) -> str:
        """Elements from one to another along an axis."""
        return self.node("Slice", [x, *(self.ints([end]) for end in (start, stop, axis))])

    def call(self, function: str, inputs: Sequence[str], output: str | None = None, **attributes: Any) -> str:
        """Add a call of one of the functions of :mod:`.onnx_functions`."""
        self.used.add(function)
        return self.node(function, inputs, output, domain=DOMAIN, **attributes)

    def calls(self, function: str, inputs: Sequence[str], count: int) -> list[str]:
        """Adds a call of a function of :mod:`.onnx_functions` with several outputs, and returns their names."""
        self.used.add(function)
        return self.several(function, inputs, count, domain=DOMAIN)

    @contextmanager
    def layer(self, name: str) -> Iterator[None]:
        """Nodes that are added inside are one function, of this name, if there are any."""
        begin = len(self.nodes)
        yield
        if begin < len(self.nodes):
            self._layers.append((name, begin, len(self.nodes)))

    def inside(self) -> LoopBody:
        """Nodes that are added in a ``with`` of this are those of a body, not of the graph."""
        return LoopBody(self)

    def model(self, name: str, inputs: Ports, outputs: Ports) -> onnx.ModelProto:
        """The model, whose layers are functions."""
        nodes, functions = _grouped(self.nodes, self._layers, [value.name for value in outputs])
        graph = helper.make_graph(nodes, name, list(inputs), list(outputs), list(self.initializers.values()))
        return helper.make_model(
            graph,
            functions=[*needed(self.used), *functions],
            opset_imports=_opsets(LAYERS),
            ir_version=IR_VERSION,
            producer_name="concord",
        )


class LoopBody:
    """The nodes of the body of a loop, while it is written."""

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.nodes: list[onnx.NodeProto] = []

    def __enter__(self) -> LoopBody:
        self.writer.nodes, self.nodes = self.nodes, self.writer.nodes
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.nodes, self.nodes = self.nodes, self.writer.nodes


def _opsets(*domains: str) -> list[onnx.OperatorSetIdProto]:
    versions = [helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, 1)]
    return versions + [helper.make_opsetid(domain, 1) for domain in domains]


def reads(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    """Names that nodes read and do not compute, those of bodies included."""
    made: set[str] = set()
    for node in nodes:
        for name in node.input:
            if name and name not in made:
                yield name
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                inputs = {value.name for value in attribute.g.input}
                yield from (name for name in reads(attribute.g.node) if name not in made | inputs)
        made.update(node.output)


def _grouped(
    nodes: Sequence[onnx.NodeProto], layers: Sequence[tuple[str, int, int]], outputs: Sequence[str]
) -> tuple[list[onnx.NodeProto], list[onnx.FunctionProto]]:
    """Nodes of every layer as one function and a call of it."""
    calls, functions = [], []
    names: set[str] = set()
    for layer, begin, end in layers:
        layer_nodes, later = nodes[begin:end], nodes[end:]
        made = [name for node in layer_nodes for name in node.output]
        wanted = {*reads(later), *outputs}
        inputs, results = list(dict.fromkeys(reads(layer_nodes))), [name for name in made if name in wanted]
        name = free_name(in_ascii(layer) or "part", names)
        functions.append(helper.make_function(LAYERS, name, inputs, results, layer_nodes, _opsets()))
        calls.append(helper.make_node(name, inputs, results, name=name, domain=LAYERS))
    return calls, functions
