"""Graphs as expressions: tensors are values, operators their methods.

``network(x.conv(weight).relu() + x[:, :3])`` is a graph with the output ``y``. Nodes are in the order in which they
were written, and have the names of their operators with a number unless they got one.
"""

from __future__ import annotations

from itertools import count

import numpy as np

from concord.compiler.model import compile_graph
from concord.graph.execute import run
from concord.graph.ir import Graph, Node
from concord.graph.ops import OPS
from concord.networks.calibrated import emulate
from concord.spec.presets import TINY
from support.onnx_models import generator

_NUMBERS = count()
#: Small vectors, and memory for whatever a test needs.
ROOMY = TINY.replace(narrow_depth=2048, wide_depth=2048, matrix_depth=8192, program_depth=512)


def graph_of(nodes, **inputs):
    """A graph of nodes, whose last output is the output; shapes follow from those of the inputs."""
    shapes = dict(inputs)
    for node in nodes:
        found = OPS[node.op].shape(node, [shapes[name] if name else None for name in node.inputs])
        shapes |= {name: shape for name, shape in zip(node.outputs, found, strict=True) if name}
    outputs = [next(name for name in nodes[-1].outputs if name)]
    batched = {name for name in (*inputs, *outputs) if shapes[name][:1] == (1,)}
    graph = Graph("test", list(nodes), list(inputs), outputs, shapes, batched)
    graph.check()
    return graph


def integers(rng, shape, limit=2):
    return rng.integers(-limit, limit + 1, shape).astype(float)


def check(graph, rng, config=ROOMY, samples=3, limit=2):
    """Compile, run on the emulator and compare; returns the compiled network."""
    inputs = {name: integers(rng, (samples, *graph.sample_shape(name)), limit) for name in graph.inputs}
    want = run(graph, inputs)
    compiled = compile_graph(graph, config)
    got = emulate(compiled, inputs)
    for name, values in want.items():
        np.testing.assert_array_equal(got[name], values)
    return compiled


class Tensor:
    """A tensor of a graph.

    Parameters
    ----------
    op : str or None
        What computes it; ``None`` for an input.
    name : str or None
        That of the node, or of the input.
    """

    def __init__(self, op, name, operands, shape, attrs=None):
        self.op, self.name, self.operands, self.shape, self.attrs = op, name, operands, shape, attrs or {}
        self.number, self.result = next(_NUMBERS), None

    def called(self, result):
        """The same tensor, with a name that is not made of that of its node."""
        self.result = result
        return self

    def then(self, op, *others, name=None, **attrs):
        """The result of an operator, of which this is the first operand."""
        operands = (self, *others)
        made = Node(op, "made", tuple(f"t{k}" for k in range(len(operands))), ("y",), attrs)
        (shape,) = OPS[op].shape(made, [operand.shape for operand in operands])
        return Tensor(op, name, operands, shape, attrs)

    def conv(self, weight, bias=None, strides=1, pads=0, dilations=1, group=1, name=None):
        """A convolution; one number stands for all axes."""
        bias, rank = np.zeros(len(weight)) if bias is None else bias, np.ndim(weight) - 2
        window = _window(rank, strides, pads, dilations)
        return self.then("Conv", weight=weight, bias=bias, group=group, name=name, **window)

    def whole_conv(self, outputs, *kernel, limit=1, group=1, **geometry):
        """A convolution with small whole numbers."""
        weight = whole(outputs, self.shape[1] // group, *kernel, limit=limit)
        return self.conv(weight, whole(outputs, limit=3), group=group, **geometry)

    def dense(self, weight, bias=None, name=None):
        return self.then("Dense", weight=weight, bias=np.zeros(len(weight)) if bias is None else bias, name=name)

    def whole_dense(self, outputs, limit=1, name=None):
        """A product with small whole numbers."""
        return self.dense(whole(outputs, self.shape[-1], limit=limit), whole(outputs), name)

    def same(self, name=None):
        """The product with the unit matrix."""
        return self.dense(np.eye(self.shape[-1]), name=name)

    def pool(self, op, kernel, strides=1, pads=0, dilations=1, name=None, **attrs):
        rank = len(self.shape) - 2
        return self.then(op, kernel=_all(kernel, rank), name=name, **_window(rank, strides, pads, dilations), **attrs)

    def reduce(self, op, *axes, keep=True, name=None):
        return self.then(f"Reduce{op}", axes=axes, keepdims=keep, name=name)

    def reshape(self, *shape):
        return self.then("Reshape", shape=shape)

    def transpose(self, *perm):
        return self.then("Transpose", perm=perm)

    def pad(self, *pads, mode="constant", value=0.0, name=None):
        return self.then("Pad", pads=tuple(int(n) for n in pads), mode=mode, value=value, name=name)

    def relu(self, name=None):
        return self.then("Relu", name=name)

    def clip(self, low, high):
        return self.then("Clip", min=low, max=high)

    def function(self, kind, name=None, **parameters):
        return self.then("Function", functions=((kind, parameters),), name=name)

    def softmax(self, axis, op="Softmax"):
        return self.then(op, axis=axis, name="softmax")

    def __matmul__(self, other):
        return self.then("MatMul", other)

    def with_constant(self, op, constant, **attrs):
        return self.then(op, constant=np.asarray(constant, float), **attrs)

    def __add__(self, other):
        return self.combined("Add", other)

    def __sub__(self, other):
        return self.combined("Sub", other)

    def __mul__(self, other):
        return self.combined("Mul", other)

    def combined(self, op, other, name=None):
        """An operation with another tensor, or with a constant."""
        if isinstance(other, Tensor):
            return self.then(op, other, name=name)
        return self.with_constant(op, other, name=name)

    def __getitem__(self, slices):
        """Parts of some axes, as of an array."""
        cuts = [
            (axis, *part.indices(self.shape[axis]))
            for axis, part in enumerate(slices if isinstance(slices, tuple) else (slices,))
            if part != slice(None)
        ]
        axes, starts, stops, steps = zip(*cuts, strict=True)
        return self.then("Slice", axes=axes, starts=starts, stops=stops, steps=steps)


def tensor(*shape, name="x"):
    """An input."""
    return Tensor(None, name, (), shape)


def concat(axis, first, *others, name=None):
    """Tensors side by side."""
    return first.then("Concat", *others, axis=axis, name=name)


def whole(*shape, limit=2):
    """Whole numbers; every test begins with the same."""
    return generator().integers(-limit, limit + 1, shape).astype(float)


def network(y=None, **outputs):
    """The graph of some tensors, by the names that they have as outputs."""
    outputs = outputs if y is None else {"y": y, **outputs}
    inputs, nodes, names = {}, [], {value: name for name, value in outputs.items()}
    for value in sorted(_needed(outputs.values()), key=lambda value: value.number):
        if value.op is None:
            inputs[value.name] = value.shape
            names[value] = value.name
            continue
        name = value.name or f"{value.op.lower()}{len(nodes)}"
        names.setdefault(value, value.result or f"{name}.out")
        nodes.append(Node(value.op, name, tuple(names[x] for x in value.operands), (names[value],), value.attrs))
    graph = graph_of(nodes, **inputs)
    graph.outputs = list(outputs)
    graph.batched = {name for name in (*inputs, *outputs) if graph.shapes[name][:1] == (1,)}
    graph.check()
    return graph


def exact(y=None, config=ROOMY, samples=3, limit=2, **outputs):
    """Compile, and compare the emulator with double precision on whole numbers, to the bit."""
    return check(network(y, **outputs), np.random.default_rng(1), config, samples, limit)


def _needed(ends):
    found, left = set(), list(ends)
    while left:
        value = left.pop()
        if value not in found:
            found.add(value)
            left.extend(value.operands)
    return found


def _all(values, size):
    return (values,) * size if isinstance(values, int) else tuple(values)


def _window(rank, strides, pads, dilations):
    return {"strides": _all(strides, rank), "pads": _all(pads, 2 * rank), "dilations": _all(dilations, rank)}
