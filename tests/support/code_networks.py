"""Random networks on codes of what an NPU computes: QDQ form, with any zero points, pads, strides and groups."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.onnx_models import model, node

Shape = tuple[int, ...]


class CodeNetwork:
    """A network under construction: every tensor is quantised by a scheme of its own.

    Parameters
    ----------
    rng : numpy.random.Generator
    signed : bool
        Whether codes are int8, not uint8.
    """

    def __init__(self, rng: np.random.Generator, signed: bool):
        self.rng, self.signed = rng, signed
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[Any]] = {}
        self.shapes: dict[str, Shape] = {}
        self.scales: dict[str, float] = {}
        self.inputs: dict[str, list[int | str]] = {}

    def constant(self, value: Any) -> str:
        """The name of a constant."""
        name = f"c{len(self.constants)}"
        self.constants[name] = np.asarray(value)
        return name

    def zero_point(self) -> int:
        """One at an end of the range, near an end, or anywhere."""
        low, high = (-128, 127) if self.signed else (0, 255)
        near = int(self.rng.integers(0, 6))
        return int(self.rng.choice([low, high, low + near, high - near, int(self.rng.integers(low, high + 1))]))

    def quantised(self, x: str, shape: Shape, scale: float, zero: int | None = None) -> str:
        """The name of a tensor of numbers behind QuantizeLinear and DequantizeLinear."""
        kind = np.int8 if self.signed else np.uint8
        zero = self.zero_point() if zero is None else zero
        names = self.constant(np.float32(scale)), self.constant(kind(zero))
        made = f"{x}_d"
        self.nodes += [
            node("QuantizeLinear", [x, *names], [f"{x}_q"]),
            node("DequantizeLinear", [f"{x}_q", *names], [made]),
        ]
        self.shapes[made], self.scales[made] = shape, scale
        return made

    def input(self, shape: Shape) -> str:
        """An input of the network."""
        name = f"x{len(self.inputs)}"
        self.inputs[name] = ["N", *shape]
        return self.quantised(name, shape, float(self.rng.uniform(0.01, 0.1)))

    def weight(self, *shape: int) -> tuple[str, float]:
        """Symmetric weights with a scale by channel, and about what a result is for numbers of size 1."""
        codes = self.rng.integers(-127, 128, shape).astype(np.int8)
        scales = self.rng.uniform(0.002, 0.01, shape[0]).astype(np.float32)
        names = [self.constant(codes), self.constant(scales), self.constant(np.zeros(shape[0], np.int8))]
        made = f"{names[0]}_d"
        self.nodes.append(node("DequantizeLinear", names, [made], axis=0))
        size = float(np.prod(shape[1:])) ** 0.5 * 70 * float(scales.mean())
        return made, size

    def add(self, op: str, inputs: list[str], shape: Shape, scale: float, zero: int | None = None, **attrs: Any) -> str:
        """A node whose result is quantised, perhaps behind a Relu."""
        made = f"t{len(self.nodes)}"
        self.nodes.append(node(op, inputs, [made], **attrs))
        return self.quantised(made, shape, scale, zero)

    def conv(self, x: str, pads: list[int] | None = None, group: int | None = None) -> str:
        """A convolution with random settings where none are given."""
        (channels, *sizes), rng = self.shapes[x], self.rng
        rank = len(sizes)
        group = int(rng.choice([1, 1, channels])) if group is None else group
        kernel = [int(rng.integers(1, 4)) for _ in sizes]
        pads = [int(rng.integers(0, 3)) for _ in range(2 * rank)] if pads is None else pads
        strides, dilations = ([int(rng.choice([1, 1, 2])) for _ in sizes] for _ in range(2))
        taken = list(zip(sizes, kernel, strides, dilations, pads[:rank], pads[rank:], strict=True))
        places = [(n + a + b - d * (k - 1) - 1) // s + 1 for n, k, s, d, a, b in taken]
        if min(places) < 1:
            return x
        out = channels if group > 1 else int(rng.integers(2, 9))
        weight, size = self.weight(out, channels // group, *kernel)
        scale = self.scales[x] * size * float(rng.uniform(0.5, 2))
        if rng.random() < 0.3:  # results that are far beyond all codes, but for inputs near an end
            codes = self.constants[self.nodes[-1].input[0]]
            codes[: len(codes) // 2 + 1] = np.abs(codes[: len(codes) // 2 + 1])
            scale *= float(rng.uniform(0.03, 0.2))
        bias = self.constant(rng.normal(0, 30 * scale, out).astype(np.float32))
        attrs = {"pads": pads, "strides": strides, "dilations": dilations, "group": group}
        return self.add("Conv", [x, weight, bias], (out, *places), scale, **attrs)

    def pool(self, x: str) -> str:
        """A maximum, or a mean, of windows."""
        (channels, *sizes), rng = self.shapes[x], self.rng
        kernel, pads = [min(2, n) for n in sizes], [int(rng.integers(0, 2)) * (n > 1) for n in sizes * 2]
        rank, strides = len(sizes), [int(rng.integers(1, 3)) for _ in sizes]
        taken = zip(sizes, kernel, strides, pads[:rank], pads[rank:], strict=True)
        shape = (channels, *((n + a + b - k) // s + 1 for n, k, s, a, b in taken))
        attrs = {"kernel_shape": kernel, "strides": strides, "pads": pads}
        if rng.random() < 0.5:
            zero = int(self.constants[self.nodes[-1].input[2]]) if self.nodes[-1].output[0] == x else None
            return self.add("MaxPool", [x], shape, self.scales[x], zero, **attrs)
        return self.add("AveragePool", [x], shape, self.scales[x] * float(rng.uniform(0.8, 1.2)), **attrs)

    def step(self, x: str, others: list[str]) -> str:
        """One more operation on a tensor ``[channels, *sizes]``."""
        rng, shape = self.rng, self.shapes[x]
        kind = str(rng.choice(["conv", "conv", "conv", "pool", "table", "relu", "sum", "concat"]))
        same = [name for name in others if self.shapes[name] == shape and name != x]
        if kind == "conv":
            return self.conv(x)
        if kind == "pool":
            return self.pool(x)
        if kind == "table":
            return self.add(str(rng.choice(["Sigmoid", "Tanh", "HardSwish"])), [x], shape, 1 / 128)
        if kind == "sum" and same:
            return self.add("Add", [x, same[0]], shape, 2 * max(self.scales[x], self.scales[same[0]]))
        if kind == "concat" and same:
            return self.add("Concat", [x, same[0]], (2 * shape[0], *shape[1:]), self.scales[x], axis=1)
        return self.add("Relu", [x], shape, self.scales[x])


def code_network(seed: int) -> tuple[Any, dict[str, NDArray[np.int64]], bool]:
    """A network, samples of codes for its inputs, and whether they are signed."""
    rng = np.random.default_rng(seed)
    net = CodeNetwork(rng, bool(rng.integers(2)))
    sizes = [(5, 6), (4, 4), (7,)][int(rng.integers(3))]
    tensors = [net.input((int(rng.integers(1, 6)), *sizes)) for _ in range(int(rng.integers(1, 3)))]
    for _ in range(int(rng.integers(2, 7))):
        tensors.append(
            net.step(tensors[-1] if rng.random() < 0.7 else tensors[int(rng.integers(len(tensors)))], tensors)
        )
    last = tensors[-1]
    if rng.random() < 0.5:
        channels, *sizes = net.shapes[last]
        mean = net.add("GlobalAveragePool", [last], (channels, *(1 for _ in sizes)), net.scales[last])
        flat = net.add("Flatten", [mean], (channels,), net.scales[last])
        weight, size = net.weight(4, channels)
        tensors.append(net.add("Gemm", [flat, weight], (4,), net.scales[flat] * size, transB=1))
    read = {name for part in net.nodes for name in part.input}
    outputs = [name for name in tensors if name not in read] or tensors[-1:]
    proto = model(net.nodes, net.inputs, outputs, constants=net.constants)
    low = -128 if net.signed else 0
    inputs = {name: rng.integers(low, low + 256, (3, *shape[1:])) for name, shape in net.inputs.items()}
    return proto, inputs, net.signed


def residual_network(seed: int) -> tuple[Any, dict[str, NDArray[np.int64]]]:
    """A network of sums of a tensor, or a convolution of it, and one or two more convolutions; samples of codes."""
    rng = np.random.default_rng(seed)
    net = CodeNetwork(rng, bool(rng.integers(2)))
    step, channels = 1, int(rng.integers(2, 10))

    def conv(x: str, size: int, stride: int = 1) -> str:
        """A convolution with padding such that a stride of 1 keeps the sizes."""
        inside, height, width = net.shapes[x]
        before = (size - 1) // 2 if stride == 1 else int(rng.integers(0, (size + 1) // 2))
        pads = [before, before, size - 1 - before, size - 1 - before]
        weight, scale = net.weight(channels, inside, size, size)
        shape = channels, *((n - 1) // stride + 1 for n in (height, width))
        return net.add("Conv", [x, weight], shape, net.scales[x] * scale, strides=[stride] * 2, pads=pads)

    x = conv(net.input((int(rng.integers(1, 4)), int(rng.integers(7, 14)), int(rng.integers(3, 7)))), 3)
    for _ in range(int(rng.integers(1, 4))):
        step, grown = int(rng.choice([1, 1, 2])), rng.random() < 0.4
        channels = int(rng.integers(2, 10)) if grown else channels
        last = conv(x, int(rng.choice([1, 3])), step)
        last = conv(last, 3) if rng.random() < 0.7 else last
        short = conv(x, 1, step) if grown or step > 1 else x
        terms = [last, short] if rng.random() < 0.5 else [short, last]
        x = net.add("Add", terms, net.shapes[last], max(net.scales[name] for name in terms))
    proto = model(net.nodes, net.inputs, [x], constants=net.constants)
    low = -128 if net.signed else 0
    return proto, {name: rng.integers(low, low + 256, (3, *shape[1:])) for name, shape in net.inputs.items()}
