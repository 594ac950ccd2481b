"""Random small networks in the QDQ form, as ``quantize_static`` of ONNX Runtime and as other tools write them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from concord.frontend.quantised_operators import MICROSOFT
from support.onnx_models import model, node

Array = NDArray[Any]
#: Samples with which ranges are found.
SAMPLES = 8
#: Functions of one element, with attributes and constant operands.
UNARY: tuple[tuple[str, dict[str, float], tuple[float, ...]], ...] = (
    ("Relu", {}, ()), ("Relu", {}, ()), ("Relu", {}, ()), ("LeakyRelu", {"alpha": 0.1}, ()), ("Sigmoid", {}, ()),
    ("Tanh", {}, ()), ("Abs", {}, ()), ("Neg", {}, ()), ("Sign", {}, ()), ("Floor", {}, ()), ("Ceil", {}, ()),
    ("Round", {}, ()), ("Selu", {}, ()), ("Mish", {}, ()), ("ThresholdedRelu", {"alpha": 0.4}, ()), ("Pow", {}, (2.0,)),
    ("Pow", {}, (3.0,)), ("Elu", {"alpha": 0.7}, ()), ("Gelu", {}, ()), ("Softplus", {}, ()), ("Softsign", {}, ()),
    ("Erf", {}, ()), ("HardSigmoid", {}, ()), ("HardSwish", {}, ()), ("Exp", {}, ()), ("Celu", {"alpha": 1.5}, ()),
    ("Clip", {}, (-0.5, 0.75)), ("Clip", {}, (0.0, 6.0)),
)  # fmt: skip
#: The first version of the standard with an operator that is not in all of them.
_SINCE = {"HardSwish": 14, "Mish": 18, "Gelu": 20}


def results(proto: Any, inputs: dict[str, Array], optimised: bool = False) -> list[Array]:
    """Outputs of ONNX Runtime, with its optimisations or without."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    if optimised:
        options.add_session_config_entry("session.x64quantprecision", "1")
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    made: list[Array] = onnxruntime.InferenceSession(proto.SerializeToString(), options).run(None, inputs)
    return made


@dataclass
class FloatNet:
    """A network of floats under construction, with the numbers that some samples give.

    Parameters
    ----------
    rng : numpy.random.Generator
    opset : int
        Version of the operators.
    batch : str or int
        Size of the first axis of the input.
    values : dict of arrays
        By tensor.
    """

    rng: np.random.Generator
    opset: int
    batch: str | int = "N"
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def add(self, op: str, *inputs: str, count: int = 1, **attrs: Any) -> str:
        """Append a node, and compute it; the name of its (first) result."""
        outputs = [f"t{len(self.values) + k}" for k in range(count)]
        made = node(op, list(inputs), outputs, name=f"{op.lower()}{len(self.nodes)}", **attrs)
        known = {name: self.values[name] for name in dict.fromkeys(inputs) if name in self.values}
        constants = {name: self.constants[name] for name in inputs if name in self.constants}
        ports = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
                 for name, value in known.items()]  # fmt: skip
        whole = op == "Shape" or (op in ("Gather", "Concat") and self._kind(inputs[0]).kind == "i")
        proto = model([made], {}, outputs, constants, self.opset)
        proto.graph.input.extend(ports)
        if whole:
            proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
        made_of = results(proto, known)
        self.values.update(zip(outputs, made_of, strict=True))
        self.nodes.append(made)
        return outputs[0]

    def _kind(self, name: str) -> np.dtype[Any]:
        """Type of a tensor or a constant."""
        return (self.values if name in self.values else self.constants)[name].dtype

    def floats_alike(self) -> list[str]:
        """Tensors of floats."""
        return [name for name, value in self.values.items() if value.dtype == np.float32]

    def shape(self, name: str) -> tuple[int, ...]:
        """Sizes behind the samples."""
        return self.values[name].shape[1:]

    def floats(self, *shape: int, size: float = 1.0) -> str:
        """Random weights."""
        return self.constant((size * self.rng.normal(size=shape)).astype(np.float32))

    def ints(self, *values: int) -> str:
        """A constant of whole numbers."""
        return self.constant(np.array(values, dtype=np.int64))

    def one_of(self, *choices: Any) -> Any:
        """A random choice."""
        return choices[self.rng.integers(len(choices))]

    def model(self, output: str) -> Any:
        """The model."""
        return model(self.nodes, {"x": [self.batch, *self.shape("x")]}, [output], self.constants, self.opset)


def _gemm(net: FloatNet, x: str) -> str:
    size, count = net.shape(x)[-1], int(net.rng.integers(3, 12))
    transposed = bool(net.rng.integers(2))
    weight = net.floats(*((count, size) if transposed else (size, count)), size=size**-0.5)
    bias = [net.floats(count, size=0.3)] if net.rng.random() < 0.8 else []
    return net.add("Gemm", x, weight, *bias, transB=int(transposed))


def _matmul(net: FloatNet, x: str) -> str:
    size, count = net.shape(x)[-1], int(net.rng.integers(3, 12))
    y = net.add("MatMul", x, net.floats(size, count, size=size**-0.5))
    if net.rng.random() < 0.7:
        operands = [y, net.floats(count, size=0.3)]
        y = net.add("Add", *(operands if net.rng.random() < 0.5 else operands[::-1]))
    return y


def _conv(net: FloatNet, x: str) -> str:
    channels, *sizes = net.shape(x)
    groups = net.one_of(1, 1, 1, channels)
    count = int(net.rng.integers(2, 7)) if groups == 1 else channels * int(net.rng.integers(1, 3))
    kernel = [int(net.rng.integers(1, min(size, 3) + 1)) for size in sizes]
    pads = [net.one_of(0, size // 2) for size in kernel] * 2
    weight = net.floats(count, channels // groups, *kernel, size=(channels // groups * np.prod(kernel)) ** -0.5)
    bias = [net.floats(count, size=0.3)] if net.rng.random() < 0.8 else []
    strides = [net.one_of(1, 1, 2) for _ in sizes]
    if net.rng.random() < 0.15 and np.prod(sizes) < 60:
        weight = net.floats(channels, max(count // groups, 1), *kernel, size=(channels * np.prod(kernel)) ** -0.5)
        # With groups, quantize_static fails to quantise a bias per channel.
        bias = [net.floats(max(count // groups, 1) * groups, size=0.3)] if bias and groups == 1 else []
        pads = [net.one_of(0, int(size > 2)) for size in kernel] * 2
        return net.add("ConvTranspose", x, weight, *bias, kernel_shape=kernel, strides=strides, group=groups, pads=pads)
    return net.add("Conv", x, weight, *bias, kernel_shape=kernel, pads=pads, strides=strides, group=groups)


def _pool(net: FloatNet, x: str) -> str:
    sizes = net.shape(x)[1:]
    op = net.one_of("MaxPool", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    if op.startswith("Global"):
        return net.add(op, x)
    kernel = [min(size, net.one_of(1, 2, 3)) for size in sizes]
    return net.add(op, x, kernel_shape=kernel, strides=[net.one_of(1, 2) for _ in sizes])


def _unary(net: FloatNet, x: str) -> str:
    op, attrs, operands = net.one_of(*(row for row in UNARY if _SINCE.get(row[0], 0) <= net.opset))
    if op == "Exp" and np.abs(net.values[x]).max() > 8:
        op = "Tanh"
    return net.add(op, x, *(net.constant(np.float32(value)) for value in operands), **attrs)


def _root(net: FloatNet, x: str) -> str:
    if np.abs(net.values[x]).max() > 60:
        return x
    y = net.add("Softplus", x)
    return net.add(net.one_of("Sqrt", "Log", "Reciprocal"), net.add("Add", y, net.constant(np.float32(0.5))))


def _pair(net: FloatNet, x: str) -> str:
    op, shape = net.one_of("Add", "Add", "Mul", "Sub", "Max", "Min"), net.shape(x)
    alike = [name for name in net.floats_alike() if net.shape(name) == shape and name != x]
    if alike and net.rng.random() < 0.7:
        other = net.one_of(*alike)
    elif op not in ("Max", "Min") and net.rng.random() < 0.5:
        other = net.floats(*net.one_of(shape[-1:], (shape[0], *[1] * (len(shape) - 1)), (1,)))
    else:
        other = net.add(net.one_of("Sigmoid", "Tanh", "Relu"), x)
    operands = [x, other]
    return net.add(op, *(operands if net.rng.random() < 0.5 else operands[::-1]))


def _concat(net: FloatNet, x: str) -> str:
    shape = net.shape(x)
    axis = int(net.rng.integers(len(shape)))
    alike = [
        name for name in net.floats_alike()
        if len(net.shape(name)) == len(shape)
        and all(a == b for k, (a, b) in enumerate(zip(net.shape(name), shape, strict=True)) if k != axis)
    ]  # fmt: skip
    return net.add("Concat", x, net.one_of(*alike), axis=net.one_of(axis + 1, axis - len(shape)))


def _moved(net: FloatNet, x: str) -> str:
    shape = net.shape(x)
    rank, size = len(shape), int(np.prod(shape))
    kind = net.one_of(
        "transpose", "reshape", "flatten", "tile", "expand", "slice", "split", "unsqueeze", "pad", "gather"
    )
    if size > 400 and kind in ("tile", "expand"):
        kind = "reshape"
    if kind == "transpose" and rank > 1:
        return net.add("Transpose", x, perm=[0, *(1 + net.rng.permutation(rank)).tolist()])
    if kind == "flatten":
        axis = net.one_of(1, 1, 1 - rank - 1, *range(1, rank + 1)) if net.batch != "N" else net.one_of(1, -rank)
        return net.add("Flatten", x, axis=axis)
    if kind == "tile":
        return net.add("Tile", x, net.ints(1, *(net.one_of(1, 1, 2) for _ in shape)))
    if kind == "expand":
        if rank > 3:
            return x
        y = net.add("Unsqueeze", x, net.ints(1))
        return net.add("Expand", y, net.ints(1, 2, *[1] * rank))
    if kind == "slice":
        axis = int(net.rng.integers(1, rank + 1))
        return net.add("Slice", x, net.ints(0), net.ints(max(shape[axis - 1] - 1, 1)), net.ints(axis))
    if kind == "split" and shape[-1] % 2 == 0 and net.opset >= 13:
        parts = net.ints(shape[-1] // 2, shape[-1] // 2)
        net.add("Split", x, parts, count=2, axis=-1)
        first, second = net.nodes[-1].output
        return net.add("Concat", second, first, axis=-1)
    if kind == "unsqueeze" and rank < 4:
        return net.add("Unsqueeze", x, net.ints(int(net.rng.integers(1, rank + 2))))
    if kind == "pad" and rank > 1:
        return net.add("Pad", x, net.ints(*[0] * (rank + 1), *[0] * rank, 1))
    if kind == "gather":
        return net.add("Gather", x, net.ints(*net.rng.permutation(shape[-1]).tolist()), axis=rank)
    if rank > 1:
        return net.add("Reshape", x, net.ints(net.one_of(0, -1), size))
    for k in (4, 3, 2):
        if size % k == 0 and size > k:
            first = 0 if net.batch == "N" else net.one_of(0, 1 if net.values[x].shape[0] == 1 else 0)
            return net.add("Reshape", x, net.ints(first, k, size // k))
    return x


def _image(net: FloatNet, x: str) -> str:
    channels, count = net.shape(x)
    for k in (4, 3, 2):
        if count % k == 0 and count > k:
            return net.add("Reshape", x, net.ints(0, channels, k, count // k))
    return x


def _softmax(net: FloatNet, x: str) -> str:
    return net.add("Softmax", x, axis=net.one_of(-1, -1, len(net.shape(x))))


def _attention(net: FloatNet, x: str) -> str:
    """Attention with one head or several, with the scale in front or behind, or without one."""
    count, size = net.shape(x)
    heads = net.one_of(1, 2)
    depth = int(net.rng.integers(2, 5))
    parts = []
    for k in range(3):
        part = net.add("MatMul", x, net.floats(size, heads * depth, size=size**-0.5))
        if net.rng.random() < 0.5:
            part = net.add("Add", part, net.floats(heads * depth, size=0.3))
        order = [0, 2, 3, 1] if k == 1 else [0, 2, 1, 3]
        if heads > 1:
            part = net.add("Reshape", part, net.ints(0, count, heads, depth))
            part = net.add("Transpose", part, perm=order)
        elif k == 1:
            part = net.add("Transpose", part, perm=[0, 2, 1])
        parts.append(part)
    query, key, value = parts
    scores = net.add("MatMul", query, key)
    if net.rng.random() < 0.7:
        scores = net.add(*net.one_of(("Mul", scores, net.constant(np.float32(depth**-0.5))),
                                     ("Div", scores, net.constant(np.float32(depth**0.5)))))  # fmt: skip
    mixed = net.add("MatMul", net.add("Softmax", scores, axis=-1), value)
    if heads > 1:
        mixed = net.add("Transpose", mixed, perm=[0, 2, 1, 3])
        mixed = net.add("Reshape", mixed, net.ints(0, count, heads * depth))
    return net.add("MatMul", mixed, net.floats(heads * depth, size, size=(heads * depth) ** -0.5))


def _reduced(net: FloatNet, x: str) -> str:
    rank, op = len(net.shape(x)) + 1, net.one_of("ReduceMean", "ReduceMean", "ReduceMax")
    axes = [*range(2, rank)]
    if net.opset >= 18:
        return net.add(op, x, net.ints(*axes), keepdims=net.one_of(0, 1))
    return net.add(op, x, axes=axes, keepdims=net.one_of(0, 1))


def _by_shape(net: FloatNet, x: str) -> str:
    """Another shape by that of a tensor, as PyTorch writes it of an open number of samples."""
    first = net.add("Gather", net.add("Shape", x), net.ints(0))
    return net.add("Reshape", x, net.add("Concat", first, net.ints(int(np.prod(net.shape(x)))), axis=0))


_STEPS = {
    1: (_gemm, _gemm, _gemm, _matmul, _matmul, _unary, _unary, _pair, _concat, _moved, _softmax, _root),
    2: (
        _matmul,
        _matmul,
        _attention,
        _attention,
        _unary,
        _pair,
        _moved,
        _moved,
        _reduced,
        _image,
        _softmax,
        _root,
        _conv,
        _by_shape,
    ),
    3: (_conv, _conv, _conv, _conv, _pool, _pool, _unary, _unary, _pair, _concat, _moved, _reduced, _by_shape),
}
_FIRST = {1: (_gemm, _matmul), 2: (_matmul, _attention), 3: (_conv, _conv, _moved)}


def float_network(rng: np.random.Generator) -> tuple[Any, dict[str, Array]]:
    """A random network of floats with samples, numbers of all tensors by name among them."""
    opset = int(rng.choice([13, 14, 15, 17, 18, 19, 20, 21]))
    net = FloatNet(rng, opset, batch="N" if rng.random() < 0.7 else 1)
    shape = [(int(rng.integers(4, 12)),), (int(rng.integers(2, 5)), int(rng.integers(3, 9))),
             (int(rng.integers(1, 4)), 6, int(rng.integers(4, 8)))][rng.integers(3)]  # fmt: skip
    samples = SAMPLES if net.batch == "N" else 1
    net.values["x"] = rng.normal(size=(samples, *shape)).astype(np.float32)
    x, wanted = "x", int(rng.integers(2, 7))
    for _ in range(40):
        if len(net.nodes) >= wanted and x != "x":
            break
        steps = _STEPS.get(len(net.shape(x)), (_moved,))
        if not net.nodes:  # an operator that all tools quantise
            steps = _FIRST[len(net.shape(x))]
        y = steps[rng.integers(len(steps))](net, x)
        values = net.values[y]
        if y != x and values.size <= 4000 * samples and np.isfinite(values).all() and np.abs(values).max() < 1e4:
            x = y
    if net.nodes and rng.random() < 0.5 and len(net.shape(x)) == 1:
        x = _gemm(net, x)
    return net.model(x), net.values


def static(rng: np.random.Generator, proto: Any, samples: Array) -> Any:
    """The network as ``quantize_static`` writes it."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            rows = len(samples) if proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param else 1
            self.left = iter([{"x": samples[k : k + 1]} for k in range(rows)])

        def get_next(self) -> Any:
            return next(self.left, None)

    opset = proto.opset_import[0].version
    wide = rng.random() < 0.15
    kinds = [QuantType.QUInt8, QuantType.QInt8] if not wide else [QuantType.QUInt16, QuantType.QInt16]
    activation = kinds[rng.integers(2)]
    weights = [QuantType.QInt8] + [QuantType.QUInt8] * (activation != QuantType.QInt8)
    extra = {
        "ActivationSymmetric": bool(rng.random() < 0.3), "WeightSymmetric": bool(rng.random() < 0.8),
        "ForceQuantizeNoInputCheck": bool(rng.random() < 0.2), "AddQDQPairToWeight": bool(rng.random() < 0.1),
        "DedicatedQDQPair": bool(rng.random() < 0.1), "QDQKeepRemovableActivations": bool(rng.random() < 0.2),
        "QuantizeBias": bool(rng.random() < 0.8), "UseQDQContribOps": bool(wide and opset < 21),
    }  # fmt: skip
    options = {
        "quant_format": QuantFormat.QDQ, "per_channel": bool(rng.random() < 0.5),
        "reduce_range": bool(rng.random() < 0.3), "activation_type": activation,
        "weight_type": weights[rng.integers(len(weights))], "extra_options": extra,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        before, path = Path(name) / "float.onnx", Path(name) / "quantised.onnx"
        onnx.save(proto, before)
        if rng.random() < 0.5:
            quant_pre_process(before, before, skip_symbolic_shape=True)
        quantize_static(before, path, Reader(), **options)
        return onnx.load(path)


_ENDS = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
_MOVES = ("Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "MaxPool", "Tile",
          "Expand", "GlobalMaxPool", "Max", "Concat")  # fmt: skip


class PairWriter:
    """Puts QuantizeLinear and DequantizeLinear into a network of floats, as tools other than ONNX Runtime do.

    Parameters
    ----------
    rng : numpy.random.Generator
    proto : ModelProto
    values : dict of arrays
        Numbers of its tensors.
    """

    def __init__(self, rng: np.random.Generator, proto: Any, values: dict[str, Array]):
        self.rng, self.proto, self.values = rng, proto, values
        self.opset = proto.opset_import[0].version
        self.wide = rng.random() < 0.1
        self.domain = MICROSOFT if self.wide and self.opset < 21 else ""
        kinds = ("uint16", "int16") if self.wide else ("uint8", "int8")
        self.kind = kinds[rng.integers(2)]
        self.mixed = rng.random() < 0.15
        self.kinds = kinds
        self.bias = ("float", "float", "right", "other")[rng.integers(4)]
        self.per_channel = rng.random() < 0.5
        self.weight_kind = ("int8", "int8", "int8", "uint8")[rng.integers(4)]
        self.shared = rng.random() < 0.6
        self.unfolded = rng.random() < 0.15
        self.nodes: list[Any] = []
        self.floats = {item.name: numpy_helper.to_array(item) for item in proto.graph.initializer}
        self.constants = dict(self.floats)
        self.schemes: dict[str, tuple[np.float32, Any]] = {}
        self.decoded: dict[str, str] = {}
        self.count = 0

    def name(self, stem: str) -> str:
        """A name that is not in use."""
        self.count += 1
        return f"{stem}_{self.count}"

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = self.name("k")
        self.constants[name] = np.asarray(value)
        return name

    def add(self, op: str, inputs: list[str], output: str, domain: str = "", **attrs: Any) -> str:
        """Append a node."""
        self.nodes.append(node(op, inputs, [output], name=self.name(op), domain=domain, **attrs))
        return output

    def scheme(self, values: Array) -> tuple[np.float32, Any]:
        """Scale and zero point of what reaches from the least to the greatest number."""
        kind = self.kinds[self.rng.integers(2)] if self.mixed else self.kind
        low, high = _ENDS[kind]
        least, most = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
        if kind.startswith("int") and self.rng.random() < 0.6:
            most = max(most, -least)
            least = -most
            low = -high
        scale = np.float32(max((most - least) / (high - low), 1e-4) * self.rng.choice([1.0, 1.0, 0.8]))
        return scale, np.array(np.clip(np.rint(low - least / scale), low, high), dtype=kind)

    def pair(self, x: str, scheme: tuple[np.float32, Any]) -> str:
        """The tensor behind a pair."""
        operands = [self.constant(scheme[0]), self.constant(scheme[1])]
        codes = self.add("QuantizeLinear", [x, *operands], self.name("q"), self.domain)
        result = self.add("DequantizeLinear", [codes, *operands], self.name("d"), self.domain)
        self.schemes[result] = scheme
        return result

    def weight(self, name: str, axis: int) -> tuple[str, Array]:
        """A constant as codes, and its scales."""
        value = self.floats[name]
        several = tuple(k for k in range(value.ndim) if k != axis) if self.per_channel and value.ndim > 1 else None
        if self.weight_kind == "int8":
            scale = np.maximum(np.abs(value).max(axis=several), 1e-6).astype(np.float32) / np.float32(127)
            zero = np.zeros(scale.shape, np.int8)
        else:
            least, most = np.minimum(value.min(axis=several), 0), np.maximum(value.max(axis=several), 1e-6)
            scale = ((most - least) / 255).astype(np.float32)
            zero = np.clip(np.rint(-least / scale), 0, 255).astype(np.uint8)
        shape = [-1 if k == axis else 1 for k in range(value.ndim)] if several is not None else []
        ends = _ENDS[self.weight_kind]
        codes = np.clip(np.rint(value / scale.reshape(shape)) + zero.reshape(shape), *ends).astype(self.weight_kind)
        attrs = {"axis": axis} if several is not None else {}
        steps = [self.constant(scale), self.constant(zero)]
        made = self.constant(codes)
        if self.unfolded:
            made = self.add("QuantizeLinear", [self.constant(value), *steps], self.name("wq"), **attrs)
        return self.add("DequantizeLinear", [made, *steps], self.name("w"), **attrs), scale.reshape(-1)

    def biased(self, name: str, scale: Array, op: str) -> str:
        """A bias as floats, as codes in the scale of the sums, or as others.

        Where codes of int32 of a Gemm have another scale, ONNX Runtime takes them for some of that of the sums.
        """
        value = self.floats[name]
        if self.bias == "float":
            return name
        kind, zero = np.int32, 0
        if self.bias == "other":
            most = 100 if op == "Gemm" else self.rng.choice([100, 127, 30000])
            scale = np.float32(np.abs(value).max() / most + 1e-6).reshape(1)
        codes = np.rint(value / scale).astype(np.int64)
        if np.abs(codes).max() > 2**31 - 1:
            return name
        if self.bias == "other" and np.abs(codes).max() <= 100 and (op == "Gemm" or self.rng.random() < 0.5):
            kind, zero = np.int8, int(self.rng.integers(-20, 20))
        single = len(scale) == 1
        operands = [self.constant((codes + zero).astype(kind)), self.constant(scale[0] if single else scale)]
        if zero or self.rng.random() < 0.5:
            operands.append(self.constant(np.full(() if single else len(scale), zero, kind)))
        return self.add("DequantizeLinear", operands, self.name("b"), **({} if single else {"axis": 0}))

    def quantised(self, name: str) -> str:
        """The tensor with its pair."""
        if name in self.floats:
            value = self.floats[name]
            if value.dtype != np.float32:
                return name
            scale, zero = self.scheme(value)
            low, high = _ENDS[zero.dtype.name]
            codes = np.clip(np.rint(value / scale) + zero, low, high).astype(zero.dtype)
            operands = [self.constant(codes), self.constant(scale), self.constant(zero)]
            return self.add("DequantizeLinear", operands, self.name("d"), self.domain)
        return self.decoded[name]

    def model(self) -> Any:
        """The model."""
        graph = self.proto.graph
        readers: dict[str, list[Any]] = {}
        for part in graph.node:
            for name in part.input:
                readers.setdefault(name, []).append(part)
        outputs = {item.name for item in graph.output}
        self.decoded["x"] = self.pair("x", self.scheme(self.values["x"]))
        for part in graph.node:
            attrs = {item.name: helper.get_attribute_value(item) for item in part.attribute}
            op, inputs = part.op_type, list(part.input)
            weighted = op in ("Conv", "ConvTranspose", "Gemm", "MatMul") and inputs[1] in self.floats
            if op == "Shape" or not all(
                name in self.floats or self.values[name].dtype == np.float32 for name in inputs
            ):
                self._as_it_is(part)
                continue
            if weighted:
                axis = 0 if op == "Conv" or attrs.get("transB") else 1
                weight, scale = self.weight(inputs[1], axis)
                if op == "ConvTranspose" and len(scale) > 1:
                    scale = np.tile(scale, attrs.get("group", 1))
                first = self.decoded[inputs[0]]
                inputs = [first, weight, *inputs[2:]]
                if len(inputs) > 2:
                    inputs[2] = self.biased(inputs[2], self.schemes[first][0] * scale, op)
            elif op in ("Clip", "Pow", "Pad", "Slice", "Resize"):
                inputs[0] = self.decoded[inputs[0]]
            elif (
                any(name in self.floats and self.floats[name].ndim == 0 for name in inputs) and self.rng.random() < 0.5
            ):
                inputs = [self.decoded.get(name, name) for name in inputs]
            elif (
                op == "Add" and self.bias == "float" and len(readers.get(part.input[0], [])) == 1
                and any(name in self.floats for name in inputs) and self.rng.random() < 0.7
                and self._open(part)
            ):  # fmt: skip
                inputs = [name if name in self.floats else self.open[name] for name in inputs]
            else:
                inputs = [self.quantised(name) for name in inputs]
            results = [self.name("y") for _ in part.output]
            self.nodes.append(node(op, inputs, results, name=part.name, **attrs))
            for result, name in zip(results, part.output, strict=True):
                self._end(part, name, result, inputs, readers, outputs)
        results = [item.name for item in graph.output]
        for name in results:
            self.nodes.append(node("Identity", [self.decoded[name]], [f"{name}/end"]))
        opset, dims = self.opset, graph.input[0].type.tensor_type.shape.dim
        shape = [dim.dim_param or dim.dim_value for dim in dims]
        used = {name for part in self.nodes for name in part.input}
        constants = {name: value for name, value in self.constants.items() if name in used}
        domains = (MICROSOFT,) if self.domain else ()
        return model(self.nodes, {"x": shape}, [f"{name}/end" for name in results], constants, opset, domains)

    def _as_it_is(self, part: Any) -> None:
        """A node of whole numbers, or one that such numbers give a shape."""
        inputs = [self.decoded.get(name, name) for name in part.input]
        attrs = {item.name: helper.get_attribute_value(item) for item in part.attribute}
        for name in part.output:
            self.decoded[name] = self.name("y")
        self.nodes.append(node(part.op_type, inputs, [self.decoded[name] for name in part.output], **attrs))
        for name in part.output:
            if self.values[name].dtype == np.float32:
                self.decoded[name] = self.pair(
                    self.decoded[name], self.schemes.get(inputs[0], self.scheme(self.values[name]))
                )

    @property
    def open(self) -> dict[str, str]:
        """Tensors by name as they are in front of their pairs."""
        return self._fronts

    def _open(self, part: Any) -> bool:
        """True if the other operand of an Add is a product."""
        names = [name for name in part.input if name not in self.floats]
        makers = {name: other for other in self.proto.graph.node for name in other.output}
        return len(names) == 1 and names[0] in makers and makers[names[0]].op_type == "MatMul" and names[0] in self.open

    def _end(
        self, part: Any, name: str, result: str, inputs: list[str], readers: dict[str, list[Any]], outputs: set[str]
    ) -> None:
        """A pair behind a result, or none where the only reader is fused with it."""
        self._fronts = getattr(self, "_fronts", {})
        self._fronts[name] = result
        scheme = self.scheme(self.values[name])
        if part.op_type in _MOVES and self.shared and inputs[0] in self.schemes:
            scheme = self.schemes[inputs[0]]
        only = readers.get(name, [])
        fused = len(only) == 1 and name not in outputs and (
            (only[0].op_type in ("Relu", "Clip") and part.op_type in ("Conv", "Gemm", "MatMul", "Add"))
            or (only[0].op_type in _MOVES[:6] and part.op_type not in ("Softmax",) and self.rng.random() < 0.3)
            or (only[0].op_type == "Add" and part.op_type == "MatMul" and self.bias == "float"
                and any(other in self.floats for other in only[0].input))
        )  # fmt: skip
        if fused and self.rng.random() < 0.8 and only[0].op_type != "Concat":
            self.decoded[name] = result
        else:
            self.decoded[name] = self.pair(result, scheme)


def network(seed: int) -> tuple[Any, Array, str]:
    """A random QDQ network, samples of its input, and which of the two forms it is in."""
    rng = np.random.default_rng(seed)
    proto, values = float_network(rng)
    rows = 4 if proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param else 1
    samples = rng.normal(size=(rows, *values["x"].shape[1:])).astype(np.float32)
    if rng.random() < 0.5:
        return static(rng, proto, values["x"]), samples, "static"
    return PairWriter(rng, proto, values).model(), samples, "pairs"


@dataclass(frozen=True)
class Comparison:
    """Codes of the outputs of a network beside those of ONNX Runtime, optimised or not.

    Parameters
    ----------
    count : int
        Codes.
    different : int
        Of which so many differ.
    furthest : int
        The largest difference.
    """

    count: int
    different: int
    furthest: int


def tensor(name: str, value: Array) -> Any:
    """A constant of a model."""
    return numpy_helper.from_array(np.asarray(value), name)


def compared(network: Any, proto: Any, x: Array, optimised: bool) -> Comparison:
    """The outputs of an integer network beside those of ONNX Runtime; wide outputs by their place in all numbers."""
    own = network.run({"x": x})
    theirs = dict(zip(own, results(proto, {"x": x}, optimised), strict=True))
    count = different = furthest = 0
    for name, codes in own.items():
        if codes.dtype == np.float32:
            scale = np.abs(theirs[name]).max() + 1e-9
            distance = np.floor(np.abs(codes - theirs[name]) / scale * 1e4).astype(np.int64)
        else:
            scheme, theirs_ = network.scheme(name), theirs[name]
            if theirs_.dtype.kind == "f":
                theirs_ = np.rint(theirs_ / np.float32(scheme.scale)).astype(np.int64) + scheme.zero
            distance = np.abs(codes.astype(np.int64) - theirs_)
        count, different = count + distance.size, different + int((distance > 0).sum())
        furthest = max(furthest, int(distance.max(initial=0)))
    return Comparison(count, different, furthest)
