"""The graph of a network: nodes in execution order, tensors by name.

Tensors have the shape they have in ONNX for one sample (a symbolic batch dimension is 1), so axes keep their meaning.
Weights, biases and other constants are no tensors of the graph: they are attributes of the nodes, in float64.
What an operator means, its attributes and its kind [dtype-pass] are in :mod:`concord.graph.ops`. A node that does not
fit the attributes of its operator cannot be made.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from concord.golden.codes import Codes
from concord.graph.ops import OPS, operator_of
from concord.graph.ops.attributes import Record
from concord.graph.ops.base import Shape
from concord.utils.grouping import by_key

__all__ = ["Graph", "Node", "Shape", "fresh"]


@dataclass(frozen=True)
class Node:
    """One operation.

    Parameters
    ----------
    op : str
        Name of the operator, one of :data:`concord.graph.ops.OPS`.
    name : str
        Unique in its graph; that of the ONNX node it comes from, as far as possible.
    inputs, outputs : tuple of str
        Names of tensors. An input that is left out is the empty string.
    attrs : dict
        Attributes, constants among them.

    Raises
    ------
    ValueError
        If the operator does not have an attribute, an attribute has a value that the operator does not take, or one is
        missing. (A node of an operator that does not exist is refused by whatever asks for its record.)
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        record = OPS.get(self.op)
        if record is not None and (problems := list(record.attribute_problems(self))):
            raise ValueError("; ".join(problems))

    def attributes(self, record: type[Record]) -> Record:
        """The attributes, as the record of the operator or a class that it is derived from.

        Raises
        ------
        TypeError
            If the record of the operator is another one.
        """
        kind = operator_of(self).record
        if not issubclass(kind, record):
            raise TypeError(
                f"attributes of {self.op} {self.name!r} must be read as {kind.__name__}, not {record.__name__}"
            )
        return kind(**self.attrs)

    def replace(self, **changes: Any) -> Node:
        """A copy with some fields changed."""
        return replace(self, **changes)

    def with_attrs(self, **attrs: Any) -> Node:
        """A copy with some attributes changed."""
        return replace(self, attrs=self.attrs | attrs)


@dataclass
class Graph:
    """A network.

    Parameters
    ----------
    name : str
        For reports.
    nodes : list of Node
        In execution order.
    inputs, outputs : list of str
        Names of tensors, in the order of the ONNX file.
    shapes : dict
        Shape of every tensor for one sample.
    batched : set of str
        Inputs and outputs whose first axis is the batch; samples of the others are stacked along a new first axis.
    quantization : dict
        What an exporter chose for tensors, by name of the tensor. The graph computes with floats all the same; where
        codes are too coarse for that, a FakeQuantize computes the tensor.
    weight_quantization : dict
        What it chose for the attribute ``weight`` of nodes, by name of the node.
    element_types : dict
        Types of those inputs and outputs that are no floats, such as ``"int64"`` or ``"bool"``, by name.
    float_types : dict
        Types of outputs that are floats, by name; double precision for those that are not there.
    texts : dict
        Inputs and outputs that are texts in the model, by name: those whose places the tensor has, as whole numbers. Of
        an input the last one stands for all others.
    known_ranges : dict
        What is known of the values of inputs, by name: least, greatest, and why.
    whole : frozenset of str
        Tensors that the host computes and that do not pass the NPU: binary16 does not hold all of their whole numbers.
    partition : str
        What the host may compute, one of :data:`concord.spec.partition.PARTITIONS`.
    npu_nodes : frozenset of str or None
        Names of the nodes that the NPU computes, and the host all others; ``None`` if their operators decide.
    from_host : frozenset of str
        Inputs that the host has at hand and need not have back.
    states : dict
        Inputs that the NPU keeps from a run to the next one, and the output that each of them is then.
    """

    name: str
    nodes: list[Node]
    inputs: list[str]
    outputs: list[str]
    shapes: dict[str, Shape]
    batched: set[str] = field(default_factory=set)
    quantization: dict[str, Codes] = field(default_factory=dict)
    weight_quantization: dict[str, Codes] = field(default_factory=dict)
    element_types: dict[str, str] = field(default_factory=dict)
    float_types: dict[str, str] = field(default_factory=dict)
    texts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    known_ranges: dict[str, tuple[float, float, str]] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    partition: str = "ends"
    npu_nodes: frozenset[str] | None = None
    from_host: frozenset[str] = frozenset()
    states: dict[str, str] = field(default_factory=dict)

    def copy(self) -> Graph:
        """A copy whose nodes and shapes can be changed."""
        return replace(self, nodes=list(self.nodes), shapes=dict(self.shapes))

    def producer(self, tensor: str) -> Node | None:
        """The node that computes a tensor; ``None`` for an input."""
        return next((node for node in self.nodes if tensor in node.outputs), None)

    def consumers(self, tensor: str) -> list[Node]:
        """The nodes that read a tensor."""
        return [node for node in self.nodes if tensor in node.inputs]

    def readers(self) -> dict[str, list[Node]]:
        """The nodes that read a tensor, for all tensors that any reads: for who asks for many of them."""
        return by_key((name, node) for node in self.nodes for name in dict.fromkeys(node.inputs))

    def is_between(self, tensor: str) -> bool:
        """True if only nodes see a tensor: it is no output and no state, and no exporter chose codes for it."""
        return tensor not in self.outputs and tensor not in self.quantization

    def sample_shape(self, tensor: str) -> Shape:
        """Shape of one sample in data files, without the batch axis."""
        shape = self.shapes[tensor]
        return shape[1:] if tensor in self.batched else shape

    def rename(self, names: dict[str, str]) -> None:
        """Let every node and output that uses a tensor use another one in its place."""
        self.nodes = [node.replace(inputs=tuple(names.get(n, n) for n in node.inputs)) for node in self.nodes]
        self.outputs = [names.get(name, name) for name in self.outputs]

    def check(self) -> None:
        """Raise ``ValueError`` with everything that is inconsistent: names, order, shapes that are missing."""
        if problems := list(self.problems()):
            raise ValueError(f"graph {self.name} must be consistent: " + "; ".join(problems))

    def problems(self) -> Iterator[str]:
        """A line for everything that is inconsistent."""
        known, names = set(self.inputs), set()
        for node in self.nodes:
            if node.name in names:
                yield f"two nodes are called {node.name!r}"
            names.add(node.name)
            yield from (f"{node.name} reads {n!r} before it is there" for n in node.inputs if n and n not in known)
            yield from (f"{node.name} computes {n!r} once more" for n in node.outputs if n and n in known)
            known.update(node.outputs)
        yield from (f"output {name!r} is never computed" for name in self.outputs if name not in known)
        yield from (f"shape of {name!r} is missing" for name in sorted(known) if name and name not in self.shapes)


def fresh(graph: Graph, stem: str, taken: Sequence[str] = ()) -> str:
    """A name for a new node or tensor that is not in use."""
    used = {node.name for node in graph.nodes} | set(graph.shapes) | set(taken)
    return next(name for k in range(len(used) + 1) if (name := f"{stem}.{k}" if k else stem) not in used)
