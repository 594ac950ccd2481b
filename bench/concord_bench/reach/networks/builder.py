"""A small builder of ONNX models, with the layers that exporters write, and the list of all networks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from concord.utils.extras import missing

Array = npt.NDArray[Any]
Shape = Sequence[int | str]
#: Makes the values of an input, ``[samples, *shape]``, of a generator and that shape.
Values = Callable[[np.random.Generator, tuple[int, ...]], Array]
_ML = "ai.onnx.ml"


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Standard normal numbers, float32."""
    return rng.standard_normal(shape).astype(np.float32)


def uniform(low: float, high: float) -> Values:
    """Numbers that lie evenly between two, float32."""
    return lambda rng, shape: rng.uniform(low, high, shape).astype(np.float32)


def whole(low: int, high: int, kind: Any = np.int64) -> Values:
    """Integers from ``low`` to ``high - 1``."""
    return lambda rng, shape: rng.integers(low, high, shape).astype(kind)


class Builder:
    """Nodes, constants, inputs and outputs of one model; methods add them and give the names of their results.

    Parameters
    ----------
    name : str
        Of the graph.
    opset : int
        Version of the operators.
    seed : int
        Of the weights.
    """

    def __init__(self, name: str, opset: int = 17, seed: int = 0):
        self.name, self.opset = name, opset
        self.rng = np.random.default_rng([seed, *name.encode()])
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []
        self.values: dict[str, Values] = {}
        self.domains: set[str] = set()
        self._known: dict[tuple[str, str, tuple[int, ...], bytes], str] = {}

    def input(self, name: str, shape: Shape, kind: int = TensorProto.FLOAT, values: Values = normal) -> str:
        """Add an input; texts in ``shape`` leave a size open."""
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        self.values[name] = values
        return name

    def output(self, *names: str, kind: int = TensorProto.FLOAT, shape: Shape | None = None) -> None:
        """Let tensors be results."""
        self.outputs += [
            helper.make_tensor_value_info(name, kind, None if shape is None else list(shape)) for name in names
        ]

    def result(self, name: str, value: str, kind: int = TensorProto.FLOAT, shape: Shape | None = None) -> None:
        """Let a tensor be the result ``name``; ``shape`` where ONNX does not infer it."""
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"out_{name}"))
        self.output(name, kind=kind, shape=shape)

    def const(self, value: Any, name: str | None = None, kind: Any = None) -> str:
        """Add an initializer; equal ones are one."""
        if kind is None:
            kind = np.float32 if isinstance(value, float) else None
        array = np.asarray(value, kind)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        key = (name or "", array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = name or f"const_{len(self.constants)}"
            self.constants.append(numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def ints(self, *values: int) -> str:
        """Add a list of int64."""
        return self.const(np.array(values, np.int64))

    def scalar(self, value: float) -> str:
        """Add a number without axes, float32."""
        return self.const(np.float32(value))

    def weight(self, *shape: int, fan: int | None = None, gain: float = 1.0) -> str:
        """Add random weights whose products keep the size of their operands; ``fan``: terms of a sum."""
        fan = math.prod(shape[1:]) if fan is None else fan
        return self.const((self.rng.standard_normal(shape) * gain / math.sqrt(fan)).astype(np.float32))

    def small(self, *shape: int, size: float = 0.1, middle: float = 0.0) -> str:
        """Add random numbers around ``middle``, as biases and scales are."""
        return self.const((middle + size * self.rng.standard_normal(shape)).astype(np.float32))

    def op(self, kind: str, *operands: str, results: int = 1, domain: str = "", **attributes: Any) -> Any:
        """Add a node; the name of its result, or a list of names for several ``results``."""
        number = len(self.nodes)
        names = [f"/{kind.lower()}_{number}/{kind}_output_{k}" for k in range(results)]
        self.nodes.append(
            helper.make_node(
                kind, list(operands), names, name=f"/{kind.lower()}_{number}/{kind}", domain=domain, **attributes
            )
        )
        self.domains.add(domain)
        return names[0] if results == 1 else names

    def ml(self, kind: str, *operands: str, results: int = 1, **attributes: Any) -> Any:
        """Add a node of ai.onnx.ml."""
        return self.op(kind, *operands, results=results, domain=_ML, **attributes)

    # Layers as exporters of PyTorch write them.

    def conv(
        self, x: str, cin: int, cout: int, k: int | Sequence[int] = 3, *, s: int = 1,
        p: int | Sequence[int] | None = None, g: int = 1, d: int = 1, bias: bool = True, axes: int = 2,
        gain: float = 1.4,
    ) -> str:  # fmt: skip
        """Add a convolution, ``p`` by default so that stride 1 keeps the size."""
        size = [k] * axes if isinstance(k, int) else list(k)
        pads = [d * (n - 1) // 2 for n in size] * 2 if p is None else [p] * 2 * axes if isinstance(p, int) else list(p)
        operands = [x, self.weight(cout, cin // g, *size, gain=gain)] + ([self.small(cout)] if bias else [])
        n = len(size)
        return str(
            self.op("Conv", *operands, kernel_shape=size, strides=[s] * n, pads=pads, group=g, dilations=[d] * n)
        )

    def conv_relu(self, x: str, cin: int, cout: int, k: int | Sequence[int] = 3, **options: Any) -> str:
        """Add a convolution, in which its batch normalisation is, and Relu."""
        return str(self.op("Relu", self.conv(x, cin, cout, k, **options)))

    def conv_transpose(self, x: str, cin: int, cout: int, k: int, s: int, p: int = 0, **attributes: Any) -> str:
        """Add a transposed convolution."""
        weight = self.weight(cin, cout, k, k, fan=max(1, cin * k * k // s**2), gain=1.4)
        return str(
            self.op(
                "ConvTranspose",
                x,
                weight,
                self.small(cout),
                kernel_shape=[k] * 2,
                strides=[s] * 2,
                pads=[p] * 4,
                **attributes,
            )
        )

    def linear(self, x: str, cin: int, cout: int, gain: float = 1.0) -> str:
        """Add ``nn.Linear`` of two axes: Gemm."""
        return str(self.op("Gemm", x, self.weight(cout, cin, gain=gain), self.small(cout), transB=1))

    def dense(self, x: str, cin: int, cout: int, gain: float = 1.0, bias: bool = True) -> str:
        """Add ``nn.Linear`` of more axes: MatMul and Add."""
        y = str(self.op("MatMul", x, self.weight(cin, cout, fan=cin, gain=gain)))
        return str(self.op("Add", self.small(cout), y)) if bias else y

    def batchnorm(self, x: str, c: int) -> str:
        """Add a batch normalisation that is not part of a convolution."""
        variance = self.const(self.rng.uniform(0.5, 2, c).astype(np.float32))
        return str(
            self.op(
                "BatchNormalization", x, self.small(c, middle=1.0), self.small(c), self.small(c), variance, epsilon=1e-5
            )
        )

    def layernorm(self, x: str, c: int) -> str:
        """Add a layer normalisation over the last axis; before opset 17 it is written out."""
        if self.opset < 17:
            rest = self.op("Sub", x, self.mean(x, -1))
            variance = self.mean(self.op("Pow", rest, self.scalar(2)), -1)
            unit = self.op("Div", rest, self.op("Sqrt", self.add(variance, self.scalar(1e-5))))
            return self.add(self.mul(unit, self.small(c, middle=1.0)), self.small(c))
        return str(self.op("LayerNormalization", x, self.small(c, middle=1.0), self.small(c), axis=-1, epsilon=1e-5))

    def maxpool(self, x: str, k: int, s: int | None = None, p: int = 0) -> str:
        """Add a pooling of maxima."""
        return str(self.op("MaxPool", x, kernel_shape=[k] * 2, strides=[s or k] * 2, pads=[p] * 4))

    def avgpool(self, x: str, k: int, s: int | None = None, p: int = 0) -> str:
        """Add a pooling of means."""
        return str(
            self.op("AveragePool", x, kernel_shape=[k] * 2, strides=[s or k] * 2, pads=[p] * 4, count_include_pad=1)
        )

    def flatten_pool(self, x: str) -> str:
        """Add ``AdaptiveAvgPool2d(1)`` and ``flatten``."""
        return str(self.op("Flatten", self.op("GlobalAveragePool", x)))

    def reshape(self, x: str, *shape: int) -> str:
        """Add Reshape."""
        return str(self.op("Reshape", x, self.ints(*shape)))

    def transpose(self, x: str, *perm: int) -> str:
        """Add Transpose."""
        return str(self.op("Transpose", x, perm=list(perm)))

    def clip(self, x: str, low: float, high: float) -> str:
        """Add Clip."""
        return str(self.op("Clip", x, self.scalar(low), self.scalar(high)))

    def gelu(self, x: str) -> str:
        """Add GELU, written out as by opsets before 20."""
        gate = self.op("Add", self.op("Erf", self.op("Div", x, self.scalar(2**0.5))), self.scalar(1))
        return str(self.op("Mul", self.op("Mul", x, gate), self.scalar(0.5)))

    def silu(self, x: str) -> str:
        """Add x times its sigmoid."""
        return str(self.op("Mul", x, self.op("Sigmoid", x)))

    def add(self, x: str, y: str) -> str:
        """Add Add."""
        return str(self.op("Add", x, y))

    def mul(self, x: str, y: str) -> str:
        """Add Mul."""
        return str(self.op("Mul", x, y))

    def concat(self, *parts: str, axis: int = 1) -> str:
        """Add Concat."""
        return str(self.op("Concat", *parts, axis=axis))

    def slice(self, x: str, start: int, end: int, axis: int, step: int = 1) -> str:
        """Add Slice of one axis."""
        return str(self.op("Slice", x, self.ints(start), self.ints(end), self.ints(axis), self.ints(step)))

    def mean(self, x: str, *axes: int, keep: bool = True, op: str = "ReduceMean") -> str:
        """Add a reduction, in the form of the opset."""
        if self.opset >= (13 if op == "ReduceSum" else 18):
            return str(self.op(op, x, self.ints(*axes), keepdims=int(keep)))
        return str(self.op(op, x, axes=list(axes), keepdims=int(keep)))

    def unsqueeze(self, x: str, axis: int) -> str:
        """Add Unsqueeze of one axis."""
        return str(self.op("Unsqueeze", x, self.ints(axis)))

    def squeeze(self, x: str, axis: int) -> str:
        """Add Squeeze of one axis."""
        return str(self.op("Squeeze", x, self.ints(axis)))

    def group_norm(self, x: str, c: int, groups: int, size: Sequence[int], instance: int = 1) -> str:
        """Add ``nn.GroupNorm`` as the exporter of PyTorch writes it, by an InstanceNormalization of flat groups."""
        scale, bias = self.const(np.ones(groups, np.float32)), self.const(np.zeros(groups, np.float32))
        flat = self.op("InstanceNormalization", self.reshape(x, 0, groups, -1), scale, bias, epsilon=1e-5)
        back = self.reshape(flat, instance, c, *size)
        shape = [c] + [1] * len(size)
        return self.add(self.mul(back, self.small(*shape, middle=1.0)), self.small(*shape))

    def model(self) -> onnx.ModelProto:
        """Return the model, checked, with the shapes that ONNX infers of its results."""
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", self.opset)]
        opsets += [helper.make_opsetid(domain, 3) for domain in sorted(self.domains) if domain == _ML]
        ir_version = 8 if self.opset < 19 else 10
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="concord_bench")
        known = {value.name: value for value in onnx.shape_inference.infer_shapes(model).graph.output}
        for value in model.graph.output:
            if value.type.tensor_type.elem_type and not value.type.tensor_type.HasField("shape"):
                if known[value.name].type.tensor_type.HasField("shape"):
                    value.CopyFrom(known[value.name])
        return model


@dataclass(frozen=True)
class Model:
    """A model and what its inputs are like.

    Parameters
    ----------
    proto : onnx.ModelProto
        The model.
    values : mapping of str to callable
        What makes the values of every input.
    """

    proto: onnx.ModelProto
    values: Mapping[str, Values]

    def samples(self, count: int, seed: int) -> dict[str, Array]:
        """Random values of every input, ``[count, *shape]``, with the shape of the model for one sample."""
        arrays = {}
        for number, value in enumerate(self.proto.graph.input):
            shape = tuple(dim.dim_value or 1 for dim in value.type.tensor_type.shape.dim)
            rng = np.random.default_rng([seed, number])
            arrays[value.name] = np.stack([self.values[value.name](rng, shape) for _ in range(count)])
        return arrays


@dataclass(frozen=True)
class Network:
    """A network of the survey.

    Parameters
    ----------
    name : str
        Unique.
    source : str
        Where such a network comes from.
    family : str
        What it is for.
    build : callable
        Makes it.
    needs : tuple of str
        Modules of Python that it cannot be made without.
    """

    name: str
    source: str
    family: str
    build: Callable[[], Model]
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> str:
        """Modules that it needs and that are not installed, and how to get them; empty if there are none."""
        names = missing(self.needs)
        return f"needs {', '.join(names)}: make torch installs it" if names else ""


@dataclass
class Family:
    """Networks for one purpose, in the order of their sources."""

    title: str
    networks: list[Network] = field(default_factory=list)

    def network(self, source: str, opset: int = 17) -> Callable[[Callable[[Builder], None]], Callable[[Builder], None]]:
        """Decorate a function that builds a network; its name is that of the network."""

        def add(function: Callable[[Builder], None]) -> Callable[[Builder], None]:
            def build() -> Model:
                builder = Builder(function.__name__, opset)
                function(builder)
                return Model(builder.model(), builder.values)

            self.networks.append(Network(function.__name__, source, self.title, build))
            return function

        return add
