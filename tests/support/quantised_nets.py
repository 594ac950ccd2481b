"""Models that are quantised already, in the QDQ form."""

from dataclasses import dataclass, field

import numpy as np
from onnx import TensorProto, helper

from support.onnx_models import model, node, onnxruntime_results

#: Least and greatest code by element type of ONNX.
CODES = {
    "INT8": (-128, 127), "UINT8": (0, 255), "INT4": (-8, 7), "UINT4": (0, 15), "INT16": (-32768, 32767),
    "UINT16": (0, 65535),
}  # fmt: skip


def relu_of_codes():
    """A Relu of codes of 8 bits, which is a network with one table."""
    constants = {"s": np.float32(0.125), "z": np.uint8(3)}
    pairs = [node(op, [x, "s", "z"], [y]) for op, x, y in (
        ("QuantizeLinear", "x", "q"), ("DequantizeLinear", "q", "d"), ("QuantizeLinear", "a", "b"),
        ("DequantizeLinear", "b", "y"),
    )]  # fmt: skip
    return model([*pairs[:2], node("Relu", ["d"], ["a"]), *pairs[2:]], {"x": ["N", 4]}, constants=constants)


def network(scale=2.0**-5, dtype=np.int8, zero=0, weight_scale=2.0**-7, most=127, x=None):
    """Two products of quantised tensors, all weights quantised; ``x`` is scale and zero point of the input."""
    x_scale, x_zero = x or (2.0**-4, np.int8(0))
    rng = np.random.default_rng(12)
    constants = {
        "v": rng.integers(-most, most + 1, (6, 8)).astype(np.int8),
        "w": rng.integers(-most, most + 1, (8, 4)).astype(np.int8),
        "vs": np.float32(weight_scale), "ws": np.full(4, weight_scale, np.float32), "wz": np.zeros(4, np.int8),
        "xs": np.float32(x_scale), "xz": x_zero, "as": np.float32(scale), "az": dtype(zero),
    }  # fmt: skip
    constants["v"][0, 0] = constants["w"][0, 0] = -most
    nodes = [
        node("QuantizeLinear", ["x", "xs", "xz"], ["xq"]), node("DequantizeLinear", ["xq", "xs", "xz"], ["xd"]),
        node("DequantizeLinear", ["v", "vs"], ["vd"]), node("MatMul", ["xd", "vd"], ["m"], name="first"),
        node("Relu", ["m"], ["a"]),
        node("QuantizeLinear", ["a", "as", "az"], ["aq"]), node("DequantizeLinear", ["aq", "as", "az"], ["ad"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=1),
        node("MatMul", ["ad", "wd"], ["y"], name="second"),
    ]  # fmt: skip
    return model(nodes, {"x": ["N", 6]}, constants=constants)


@dataclass
class QdqMaker:
    """Builds a model with pairs of Q and DQ, node by node.

    Parameters
    ----------
    shape : tuple of int
        Of the input ``x`` behind the batch.
    rng : numpy.random.Generator
        Makes weights, and scales that nobody chooses.
    opset : int
        Version of the operators; codes of 4 and 16 bits need 21.
    """

    shape: tuple
    rng: np.random.Generator
    opset: int = 21
    nodes: list = field(default_factory=list)
    constants: dict = field(default_factory=dict)
    codes: list = field(default_factory=list)

    def fresh(self, stem="t"):
        """A name."""
        return f"{stem}{len(self.nodes)}_{len(self.constants) + len(self.codes)}"

    def add(self, op, *inputs, **attrs):
        """Append a node, and return its result."""
        name = self.fresh()
        self.nodes.append(node(op, list(inputs), [name], name=f"n{len(self.nodes)}", **attrs))
        return name

    def constant(self, value):
        """The name of a constant."""
        name = self.fresh("c")
        self.constants[name] = np.asarray(value)
        return name

    def zero(self, kind, zeros):
        """The name of a zero point, which may be of a type that NumPy does not have."""
        name = self.fresh("z")
        flat = np.asarray(zeros)
        self.codes.append(helper.make_tensor(name, getattr(TensorProto, kind), flat.shape, flat.reshape(-1).tolist()))
        return name

    def pair(self, x, kind, scale, zero=0, axis=None):
        """QuantizeLinear and DequantizeLinear behind a tensor."""
        along = {} if axis is None else {"axis": axis}
        scale, zero = self.constant(np.asarray(scale, np.float32)), self.zero(kind, zero)
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, scale, zero, **along), scale, zero, **along)

    def fitted(self, x, kind, samples, factor=1.0, exact=False, axis=None):
        """A pair for the values that a tensor has: codes reach ``factor`` times as far as these do."""
        (values,) = onnxruntime_results(self.model([x]), {"x": samples})
        low, high = CODES[kind]
        others = tuple(k for k in range(values.ndim) if k != axis) if axis is not None else None
        least, most = np.minimum(values.min(axis=others), 0), np.maximum(values.max(axis=others), 1e-3)
        if kind.startswith("U"):
            scale = factor * (most - least) / (high - low)
            scale = np.exp2(np.ceil(np.log2(scale))) if exact else scale
            zero = np.clip(np.rint(low - factor * least / scale), low, high).astype(int)
        else:
            scale = factor * np.maximum(-least, most) / high
            scale = np.exp2(np.ceil(np.log2(scale))) if exact else scale
            zero = np.zeros(np.shape(scale), int)
        return self.pair(x, kind, scale, zero, axis)

    def weight(self, shape, exact=False, axis=None):
        """Weights of 8 bits; ``exact``: scales are powers of two."""
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        scale = self.rng.uniform(0.7, 1.4, () if axis is None else shape[axis]) * 0.8 / 64 / np.sqrt(shape[0])
        scale = np.exp2(np.rint(np.log2(scale))) if exact else scale
        along = {} if axis is None else {"axis": axis}
        zero = self.constant(np.zeros(scale.shape, np.int8))
        scale = self.constant(scale.astype(np.float32))
        return self.add("DequantizeLinear", self.constant(codes), scale, zero, **along)

    def product(self, x, size, count, exact=False, axis=None):
        """A product with weights ``[size, count]``."""
        return self.add("MatMul", x, self.weight((size, count), exact, axis))

    def model(self, outputs):
        """The model with these results."""
        proto = model(self.nodes, {"x": ["N", *self.shape]}, outputs, self.constants, self.opset)
        proto.graph.initializer.extend(self.codes)
        return proto


def bridge(maker, kind, x, samples, schemes, exact):
    """Between two layers: pairs with ``schemes``, and what stands between them; a tensor ``[N, 12]`` or two."""
    first, *rest = schemes
    x = maker.fitted(x, first, samples, exact=exact)
    if kind == "relu":
        x = maker.add("Relu", x)
    elif kind == "reshape":
        x = maker.add("Reshape", x, maker.constant(np.array([0, 3, 4])))
    elif kind == "transpose":
        x = maker.add("Reshape", x, maker.constant(np.array([0, 3, 4])))
        x = maker.add("Transpose", x, perm=[0, 2, 1])
    elif kind == "pool":
        x = maker.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 1])
    elif kind == "concat":
        other = maker.fitted(maker.add("Sigmoid", x), first, samples, exact=exact)
        x = maker.add("Concat", x, other, axis=1)
    if kind == "fan-out":
        return [maker.fitted(x, scheme, samples, exact=exact) for scheme in schemes]
    for scheme in rest:
        x = maker.fitted(x, scheme, samples, exact=exact)
    size = 24 if kind == "concat" else 12
    return [maker.add("Reshape", x, maker.constant(np.array([0, size])))]


#: What may stand between two pairs.
BRIDGES = ("nothing", "relu", "reshape", "transpose", "pool", "concat", "fan-out")


def bridged(kind, schemes, seed=0, exact=False, opset=21):
    """Two layers with a :func:`bridge` between them; the model, and samples."""
    rng = np.random.default_rng(seed)
    maker, samples = QdqMaker((10,), rng, opset), rng.normal(0, 1, (40, 10))
    coded = maker.fitted("x", "INT8", samples, exact=exact)
    if kind == "pool":
        picture = maker.add("Reshape", coded, maker.constant(np.array([0, 1, 2, 5])))
        hidden = maker.add("Conv", picture, maker.weight((6, 1, 1, 3), exact), kernel_shape=[1, 3])
    else:
        hidden = maker.product(coded, 10, 12, exact)
    found = bridge(maker, kind, hidden, samples, schemes, exact)
    size = 24 if kind == "concat" else 12
    results = [maker.product(x, size, 5, exact) for x in found]
    result = results[0] if len(results) == 1 else maker.add("Add", *results[:2])
    return maker.model([result]), samples


def random_network(seed):
    """Products and convolutions with pairs of every kind between them: the model, and samples.

    Schemes change between layers, in type, scale and zero point, for a tensor or per channel; some cut off much, some
    use few of their codes. Codes of 4 and 16 bits are there from opset 21 on.
    """
    rng = np.random.default_rng(seed)
    opset = int(rng.choice([13, 17, 19, 21, 23]))
    kinds = list(CODES) if opset >= 21 else ["INT8", "UINT8"]
    maker = QdqMaker((12,), rng, opset)
    samples, exact = rng.normal(0, 1, (24, 12)), bool(rng.random() < 0.3)

    def pairs(x, rank):
        for _ in range(rng.choice([0, 1, 1, 2])):
            kind, axis = str(rng.choice(kinds)), 1 if rank == 4 and rng.random() < 0.3 else None
            factor = float(rng.choice([0.5, 1.0, 1.0, 8.0] if "4" not in kind else [0.5, 1.0]))
            x = maker.fitted(x, kind, samples, factor, exact, axis)
        return x

    def layer(x):
        return maker.product(x, 12, 12, exact, axis=1 if rng.random() < 0.3 else None)

    x = pairs("x", 2)
    if rng.random() < 0.3:
        picture = maker.add("Reshape", x, maker.constant(np.array([0, 2, 2, 3])))
        x = maker.add("Conv", picture, maker.weight((4, 2, 1, 1), exact, axis=0), kernel_shape=[1, 1])
        x = pairs(maker.add("Relu", pairs(x, 4)), 4)
        x = pairs(maker.add("MaxPool", x, kernel_shape=[2, 1]), 4)
        x = maker.add("Reshape", x, maker.constant(np.array([0, 12])))
    for _ in range(rng.integers(1, 4)):
        x = pairs(layer(x), 2)
        form = rng.choice(["nothing", "Relu", "Sigmoid", "Add", "Concat"])
        if form in ("Relu", "Sigmoid"):
            x = pairs(maker.add(str(form), x), 2)
        elif form == "Add":
            x = pairs(maker.add("Add", pairs(layer(x), 2), pairs(x, 2)), 2)
        elif form == "Concat":
            halves = [maker.product(one, 12, 6, exact) for one in (pairs(x, 2), pairs(x, 2))]
            x = pairs(maker.add("Concat", *(pairs(half, 2) for half in halves), axis=1), 2)
    return maker.model([pairs(maker.product(x, 12, 5, exact), 2)]), samples
