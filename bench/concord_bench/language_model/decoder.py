"""The network of one step: from a character to the logits of the next one, with the keys and values of those before it.

Every layer attends to the last characters, :attr:`Sizes.window` of them. In the beginning there are fewer: keys and
values are zero where there are none yet, in training, too. A bias for every head and distance takes the place of
positions. Features are divided by their root mean square in front of attention, of the two products after it, and of
the last product. Gains are part of the weights that follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from concord_bench.language_model.text import ALPHABET
from concord_bench.onnx_nodes import NodeWriter, Weights

#: Added to mean squares.
EPSILON = 1e-3


@dataclass(frozen=True)
class Sizes:
    """Sizes of a decoder.

    Parameters
    ----------
    layers, width, heads : int
        Layers, features of a character, and heads of each attention.
    window : int
        Characters that a layer attends to, the present one among them.
    hidden : int
        Features between the two products of a layer.
    """

    layers: int = 3
    width: int = 48
    heads: int = 3
    window: int = 32
    hidden: int = 192

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all weights: inputs by outputs."""
        d, layer = self.width, dict[str, tuple[int, ...]]()
        for k in range(self.layers):
            layer |= {f"{k}.{part}": (d, d) for part in ("query", "key", "value", "out")}
            layer |= {
                f"{k}.up": (d, self.hidden),
                f"{k}.down": (self.hidden, d),
                f"{k}.bias": (self.heads, self.window),
            }
        return {"embedding": (len(ALPHABET), d), **layer, "logits": (d, len(ALPHABET))}

    @property
    def weights(self) -> int:
        """Number of weights."""
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    @property
    def states(self) -> dict[str, str]:
        """Inputs that are outputs of the step before."""
        return {f"{kind}{k}": f"{kind}{k}.next" for k in range(self.layers) for kind in ("keys", "values")}


class _Step(NodeWriter):
    """Collects the nodes of a step."""

    def __init__(self, sizes: Sizes, weights: Weights):
        super().__init__(weights)
        self.sizes = sizes

    def normalised(self, name: str, x: str) -> str:
        """Divided by its root mean square."""
        mean = self.op("ReduceMean", f"{name}.mean", self.op("Mul", f"{name}.square", x, x), axes=[1], keepdims=1)
        sum_ = self.op("Add", f"{name}.sum", mean, self.constant(f"{name}.epsilon", np.full((), EPSILON, np.float32)))
        return self.op("Div", name, x, self.op("Sqrt", f"{name}.root", sum_))

    def kept(self, kind: str, layer: int, new: str) -> str:
        """The window of keys or values with a new vector at its end, by head: ``[1, heads, ...]``."""
        sizes, name = self.sizes, f"{kind}{layer}"
        bounds = [self.constant(f"{name}.{what}", np.array([value], np.int64))
                  for what, value in (("start", 1), ("stop", sizes.window), ("axis", 1))]  # fmt: skip
        old = self.op("Slice", f"{name}.old", name, *bounds)
        whole = self.op("Concat", f"{name}.next", old, self.shaped(f"{name}.new", new, 1, 1, sizes.width), axis=1)
        apart = self.shaped(f"{name}.apart", whole, 1, sizes.window, sizes.heads, sizes.width // sizes.heads)
        return self.op("Transpose", f"{name}.heads", apart, perm=[0, 2, 3, 1] if kind == "keys" else [0, 2, 1, 3])

    def attention(self, layer: int, x: str) -> str:
        """Terms that a layer adds from the characters in its window."""
        sizes, y = self.sizes, self.normalised(f"{layer}.norm", x)
        each = sizes.width // sizes.heads
        query = self.shaped(f"{layer}.queries", self.product(f"{layer}.query", y), 1, sizes.heads, 1, each)
        keys = self.kept("keys", layer, self.product(f"{layer}.key", y))
        values = self.kept("values", layer, self.product(f"{layer}.value", y))
        scores = self.op("MatMul", f"{layer}.scores", query, keys)
        bias = self.weights[f"{layer}.bias"].astype(np.float32)[
            None, :, None, ::-1
        ]  # the present character is the last
        biased = self.op("Add", f"{layer}.biased", scores, self.constant(f"{layer}.bias", np.ascontiguousarray(bias)))
        mixed = self.op("MatMul", f"{layer}.mix", self.op("Softmax", f"{layer}.softmax", biased, axis=3), values)
        return self.product(f"{layer}.out", self.shaped(f"{layer}.mixed", mixed, 1, sizes.width))

    def products(self, layer: int, x: str) -> str:
        """Terms that the two products of a layer add."""
        up = self.product(f"{layer}.up", self.normalised(f"{layer}.norm2", x))
        return self.product(f"{layer}.down", self.op("Relu", f"{layer}.relu", up))


def step_model(sizes: Sizes, weights: Weights) -> onnx.ModelProto:
    """A step as ONNX: ``token`` and the states to ``logits`` and the next states."""
    step, count = _Step(sizes, weights), len(ALPHABET)
    table = step.constant("embedding", weights["embedding"].astype(np.float32))
    x = step.shaped("embedded", step.op("Gather", "looked up", table, "token"), 1, sizes.width)
    for layer in range(sizes.layers):
        x = step.op("Add", f"{layer}.attended", x, step.attention(layer, x))
        x = step.op("Add", f"{layer}.done", x, step.products(layer, x))
    step.product("logits", step.normalised("last", x))
    past = [1, sizes.window, sizes.width]
    graph = helper.make_graph(
        step.nodes, "language_model",
        [helper.make_tensor_value_info("token", onnx.TensorProto.INT64, [1, 1]),
         *(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, past) for name in sizes.states)],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [1, count]),
         *(helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, past) for name in sizes.states.values())],
        step.initializers(),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random_weights(sizes: Sizes, seed: int) -> dict[str, NDArray[np.float32]]:
    """Weights of a network that has learned nothing."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.normal(0, 1 / np.sqrt(shape[0]), shape) if not name.endswith("bias") else np.zeros(shape)).astype(
            np.float32
        )
        for name, shape in sizes.shapes.items()
    }


def states_of_step(model: onnx.ModelProto) -> dict[str, str]:
    """States of a step that :func:`step_model` has made, by their names."""
    outputs = {output.name for output in model.graph.output}
    return {value.name: f"{value.name}.next" for value in model.graph.input if f"{value.name}.next" in outputs}
