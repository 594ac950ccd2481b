"""An encoder with a class token: from tokens to the logits of classes.

Layers normalise in front of attention and of the two products after it, and so does the last product, which reads the
class token. Positions are learned; that of the class token is the token itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from concord_bench.onnx_nodes import NodeWriter, Weights

#: Added to variances.
EPSILON = 1e-5


@dataclass(frozen=True)
class EncoderSizes:
    """Sizes of an encoder.

    Parameters
    ----------
    tokens, inputs : int
        Tokens of a sample without the class token, and numbers of each.
    classes : int
        Logits.
    layers, width, heads, hidden : int
        Layers, features of a token, heads of each attention, and features between the two products of a layer.
    """

    tokens: int
    inputs: int
    classes: int
    layers: int
    width: int
    heads: int
    hidden: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all weights; products are inputs by outputs."""
        d, made = self.width, dict[str, tuple[int, ...]]()
        for k in range(self.layers):
            made |= {f"{k}.{part}": (d, d) for part in ("query", "key", "value", "out")}
            made |= {f"{k}.up": (d, self.hidden), f"{k}.down": (self.hidden, d)}
            made |= {f"{k}.{norm}.{part}": (d,) for norm in ("norm", "norm2") for part in ("scale", "shift")}
        made |= {f"last.{part}": (d,) for part in ("scale", "shift")}
        return {"embed": (self.inputs, d), "positions": (self.tokens + 1, d), **made, "logits": (d, self.classes)}

    @property
    def biases(self) -> dict[str, tuple[int, ...]]:
        """Shapes of what is added after products; positions take the place of that after the first one."""
        products = [name for name, shape in self.shapes.items() if len(shape) == 2]
        return {f"{name}.bias": self.shapes[name][1:] for name in products if name not in ("embed", "positions")}

    @property
    def weights(self) -> int:
        """Number of weights, biases among them."""
        return sum(int(np.prod(shape)) for shape in (*self.shapes.values(), *self.biases.values()))


class _Encoder(NodeWriter):
    """Collects the nodes of an encoder."""

    def __init__(self, sizes: EncoderSizes, weights: Weights):
        super().__init__(weights)
        self.sizes = sizes

    def affine(self, name: str, x: str) -> str:
        """A product with a bias."""
        return self.op("Add", f"{name}.sum", self.product(name, x), self.weight(f"{name}.bias"))

    def normalised(self, name: str, x: str) -> str:
        """A layer normalisation."""
        scale, shift = (self.weight(f"{name}.{part}") for part in ("scale", "shift"))
        return self.op("LayerNormalization", name, x, scale, shift, axis=-1, epsilon=EPSILON)

    def heads(self, name: str, x: str, perm: list[int]) -> str:
        """Features by head."""
        sizes = self.sizes
        apart = self.shaped(f"{name}.apart", x, -1, sizes.tokens + 1, sizes.heads, sizes.width // sizes.heads)
        return self.op("Transpose", f"{name}.heads", apart, perm=perm)

    def attention(self, layer: int, x: str) -> str:
        """Terms that the attention of a layer adds."""
        sizes, y = self.sizes, self.normalised(f"{layer}.norm", x)
        query = self.heads(f"{layer}.queries", self.affine(f"{layer}.query", y), [0, 2, 1, 3])
        key = self.heads(f"{layer}.keys", self.affine(f"{layer}.key", y), [0, 2, 3, 1])
        value = self.heads(f"{layer}.values", self.affine(f"{layer}.value", y), [0, 2, 1, 3])
        factor = self.constant(f"{layer}.factor", np.full((), (sizes.width / sizes.heads) ** -0.5, np.float32))
        scores = self.op("Mul", f"{layer}.scaled", self.op("MatMul", f"{layer}.scores", query, key), factor)
        mixed = self.op("MatMul", f"{layer}.mix", self.op("Softmax", f"{layer}.softmax", scores, axis=-1), value)
        together = self.op("Transpose", f"{layer}.together", mixed, perm=[0, 2, 1, 3])
        return self.affine(f"{layer}.out", self.shaped(f"{layer}.mixed", together, -1, sizes.tokens + 1, sizes.width))

    def products(self, layer: int, x: str) -> str:
        """Terms that the two products of a layer add."""
        up = self.affine(f"{layer}.up", self.normalised(f"{layer}.norm2", x))
        return self.affine(f"{layer}.down", self.op("Relu", f"{layer}.relu", up))


def encoder_model(sizes: EncoderSizes, weights: Weights) -> onnx.ModelProto:
    """An encoder as ONNX: ``x`` ``[batch, tokens, inputs]`` to ``logits`` ``[batch, classes]``."""
    made = _Encoder(sizes, weights)
    pads = made.constant("token.pads", np.array([0, 1, 0, 0, 0, 0], np.int64))
    x = made.op("Pad", "token", made.product("embed", "x"), pads)
    x = made.op("Add", "placed", x, made.weight("positions"))
    for layer in range(sizes.layers):
        x = made.op("Add", f"{layer}.attended", x, made.attention(layer, x))
        x = made.op("Add", f"{layer}.done", x, made.products(layer, x))
    first = made.op("Gather", "class token", x, made.constant("first", np.zeros((), np.int64)), axis=1)
    product = made.op("MatMul", "product", made.normalised("last", first), made.weight("logits"))
    made.op("Add", "logits", product, made.weight("logits.bias"))
    graph = helper.make_graph(
        made.nodes, "encoder",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["N", sizes.tokens, sizes.inputs])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["N", sizes.classes])],
        made.initializers(),
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def random_weights(sizes: EncoderSizes, seed: int) -> dict[str, NDArray[np.float32]]:
    """Weights of a network that has learned nothing."""
    rng, made = np.random.default_rng(seed), dict[str, NDArray[np.float32]]()
    for name, shape in (sizes.shapes | sizes.biases).items():
        if name.endswith("scale"):
            values = np.ones(shape)
        elif len(shape) == 1:
            values = np.zeros(shape)
        else:
            values = rng.normal(0, 0.02 if name == "positions" else shape[0] ** -0.5, shape)
        made[name] = values.astype(np.float32)
    return made
