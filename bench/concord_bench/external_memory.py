"""Networks with more weights or maps than ``ecp5-85f`` holds: cycles, and results beside those of a larger NPU.

``python -m concord_bench.external_memory [NAME ...]``. The networks have seeded random weights; the LSTM and
ResNet-18 take minutes, and with ``--on rtl`` the LSTM half an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import click
import numpy as np
import onnx
from onnx import numpy_helper
from rich.table import Table

import concord
from concord.cli.common import wide_console
from concord.compiler.pipeline import strategies
from concord.host.copied_weights import copied_weights
from concord.spec.config import NpuConfig
from concord.spec.presets import ECP5_85F
from concord.utils.arrays import Array

SAMPLES = 1


def _model(nodes: str, inputs: str, shapes: dict[str, tuple[int, ...]]) -> onnx.ModelProto:
    """A model with random weights of these shapes; those of one axis are biases."""
    head = '<ir_version: 8, opset_import: ["": 17]>'
    model = onnx.parser.parse_model(f"{head} net ({inputs}) => (float[n, m] y) {{{nodes}}}")
    rng = np.random.default_rng(0)
    for name, shape in shapes.items():
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 100
        values = rng.normal(0, np.sqrt(2 / fan), shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(values, name))
    return model


def perceptron() -> onnx.ModelProto:
    """Products from 784 to 512, 512 and 10, as in the quick start of PyTorch."""
    text = "a = Gemm<transB=1>(x, u, b) c = Relu(a) d = Gemm<transB=1>(c, v, e) f = Relu(d) y = Gemm<transB=1>(f, w, g)"
    sizes = {"u": (512, 784), "b": (512,), "v": (512, 512), "e": (512,), "w": (10, 512), "g": (10,)}
    return _model(text, "float[n, 784] x", sizes)


def mnist() -> onnx.ModelProto:
    """The example for MNIST of PyTorch: two convolutions, a pool and two products."""
    text = """a = Conv(x, u, b) c = Relu(a) d = Conv(c, v, e) f = Relu(d)
        p = MaxPool<kernel_shape=[2, 2], strides=[2, 2]>(f) q = Flatten(p) r = Gemm<transB=1>(q, w, g)
        s = Relu(r) t = Gemm<transB=1>(s, z, h) y = LogSoftmax<axis=1>(t)"""
    sizes = {"u": (32, 1, 3, 3), "b": (32,), "v": (64, 32, 3, 3), "e": (64,), "w": (128, 9216), "g": (128,)}
    return _model(text, "float[n, 1, 28, 28] x", sizes | {"z": (10, 128), "h": (10,)})


@dataclass
class _Convolutions:
    """Text of a network under construction, and the shapes of its weights."""

    text: str = ""
    sizes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def conv(self, name: str, source: str, shape: tuple[int, int, int], stride: int = 1, groups: int = 1) -> str:
        """A convolution with a shape of outputs, inputs of a group and size of the window; returns its name."""
        outputs, inputs, kernel = shape
        self.sizes |= {f"w{name}": (outputs, inputs, kernel, kernel), f"b{name}": (outputs,)}
        pads, steps = f"pads=[{', '.join([str(kernel // 2)] * 4)}]", f"strides=[{stride}, {stride}]"
        return self.then(name, f"Conv<{pads}, {steps}, group={groups}>({source}, w{name}, b{name})")

    def then(self, name: str, operation: str) -> str:
        """An operation; returns its name."""
        self.text += f"{name} = {operation} "
        return name

    def block(self, name: str, source: str, channels: int, outputs: int, stride: int) -> str:
        """A residual block of two convolutions, whose operand passes a convolution where its shape changes."""
        first = self.then(f"d{name}", f"Relu({self.conv(f'c{name}', source, (outputs, channels, 3), stride)})")
        second = self.conv(f"e{name}", first, (outputs, outputs, 3))
        if stride > 1:
            source = self.conv(f"p{name}", source, (outputs, channels, 1), stride)
        return self.then(f"f{name}", f"Relu({self.then(f'a{name}', f'Add({source}, {second})')})")

    def classifier(self, source: str, channels: int, classes: int, size: int) -> onnx.ModelProto:
        """The model, with the mean of all positions and a product, for images of ``size`` pixels a side."""
        self.text += f"g = GlobalAveragePool({source}) h = Flatten(g) y = Gemm<transB=1>(h, w, b)"
        sizes = self.sizes | {"w": (classes, channels), "b": (classes,)}
        return _model(self.text, f"float[n, 3, {size}, {size}] x", sizes)


def resnet() -> onnx.ModelProto:
    """The larger network for images of MLPerf Tiny 1.4: a ResNet with 40, 80 and 160 channels."""
    net = _Convolutions()
    last, channels = net.then("r", f"Relu({net.conv('s', 'x', (40, 3, 3))})"), 40
    for k, outputs in enumerate((40, 80, 160)):
        last, channels = net.block(str(k), last, channels, outputs, outputs // channels), outputs
    return net.classifier(last, 160, 10, 32)


def resnet18() -> onnx.ModelProto:
    """ResNet-18 for 224 x 224 pixels and 1,000 classes."""
    net = _Convolutions()
    last, channels = net.then("r", f"Relu({net.conv('s', 'x', (64, 3, 7), 2)})"), 64
    last = net.then("m", f"MaxPool<kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]>({last})")
    for k, outputs in enumerate((64, 64, 128, 128, 256, 256, 512, 512)):
        last, channels = net.block(str(k), last, channels, outputs, outputs // channels), outputs
    return net.classifier(last, 512, 1000, 224)


def mobilenet() -> onnx.ModelProto:
    """MobileNetV2 with 0.35 of its channels, for 96 x 96 pixels and 1,000 classes."""

    def scaled(channels: int) -> int:
        eighths = max(8, int(0.35 * channels + 4) // 8 * 8)
        return eighths + 8 * (eighths < 0.9 * 0.35 * channels)

    def clipped(name: str, source: str) -> str:
        return net.then(name, f"Clip({source}, low, high)")

    net = _Convolutions("low = Constant<value = float {0.0}>() high = Constant<value = float {6.0}>() ")
    last, channels = clipped("r", net.conv("s", "x", (scaled(32), 3, 3), 2)), scaled(32)
    stages = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    for k, (factor, width, count, step) in enumerate(stages):
        for n in range(count):
            name, inner, outputs, stride = f"{k}_{n}", factor * channels, scaled(width), step if n == 0 else 1
            source, residual = last, last
            if factor > 1:
                source = clipped(f"f{name}", net.conv(f"e{name}", last, (inner, channels, 1)))
            source = clipped(f"g{name}", net.conv(f"d{name}", source, (inner, 1, 3), stride, inner))
            last = net.conv(f"p{name}", source, (outputs, inner, 1))
            if stride == 1 and outputs == channels:
                last = net.then(f"a{name}", f"Add({residual}, {last})")
            channels = outputs
    return net.classifier(clipped("u", net.conv("t", last, (1280, channels, 1))), 1280, 1000, 96)


def lstm() -> onnx.ModelProto:
    """An LSTM with 1,024 inputs and cells and 25 steps."""
    text = "a, h = LSTM<hidden_size=1024>(x, w, r) y = Flatten<axis=2>(h)"
    return _model(text, "float[25, 1, 1024] x", {"w": (1, 4096, 1024), "r": (1, 4096, 1024)})


@dataclass(frozen=True)
class Network:
    """A network of the bench.

    Parameters
    ----------
    make : callable
        Gives its model.
    config : NpuConfig
        What it is compiled for.
    maps : bool
        Whether its maps, too, are more than an NPU without an external memory can hold.
    """

    make: Callable[[], onnx.ModelProto]
    config: NpuConfig = ECP5_85F
    maps: bool = False


@dataclass(frozen=True)
class Figures:
    """Figures of a sample: instructions, cycles, those in which copies go on, and whether the results are those of an
    NPU with a matrix memory for all weights, which no FPGA has, and with more vectors where maps are copied, too.
    """

    words: int
    cycles: int
    bus_cycles: int
    same: bool


NETWORKS = {
    "perceptron": Network(perceptron),
    "mnist": Network(mnist),
    "resnet": Network(resnet),
    "mobilenet": Network(mobilenet),
    "resnet18": Network(resnet18, maps=True),
    "lstm": Network(lstm),
}


@contextmanager
def _windows(network: concord.Network) -> Iterator[None]:
    """Networks are compiled with the first windows of another one, which decide how values share exponents."""
    compilation = network.compilation
    assert compilation is not None
    unfold, every = compilation.compiled.lowered.unfold, strategies.strategies
    with patch.object(strategies, "strategies", lambda *of: [each for each in every(*of) if each.unfold is unfold]):
        yield


def measured(model: Path, config: NpuConfig, x: Array, on: str, maps: bool) -> Figures:
    """Figures of a sample."""
    network = concord.compile(model, config=config)
    with concord.connect(on, network) as device:
        got = network.run(x, on=device)
        cycles = device.counters()["CYCLES"] or 0
    large = config.replace(name="large", matrix_depth=1 << 17)
    if maps:
        large = large.replace(narrow_depth=1 << 14, wide_depth=1 << 14)
    else:
        large = large.replace(dram="", dram_refresh=0)
    with _windows(network):
        want = concord.compile(model, config=large).run(x)
    same = all(got[name].tobytes() == values.tobytes() for name, values in want.items())
    return Figures(len(network.image.program), cycles, copied_weights(network.image).bus_cycles, same)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--on", type=click.Choice(["emulator", "rtl"]), default="emulator", show_default=True)
def main(names: tuple[str, ...], on: str) -> None:
    """Compile networks, run them, and print a table."""
    columns = "network", "weights", "vectors", "instructions", "cycles", "a second", "copies", "bits"
    caption = "copies: share of cycles; bits: beside a larger NPU"
    table = Table(*columns, caption=caption)
    for name in names or NETWORKS:
        model, config = NETWORKS[name].make(), NETWORKS[name].config
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        sample = [SAMPLES, *(shape if name == "lstm" else shape[1:])]
        x = np.random.default_rng(1).normal(size=sample).astype(np.float32)
        weights = sum(int(np.prod(t.dims)) for t in model.graph.initializer if len(t.dims) > 1)
        with TemporaryDirectory() as folder:
            onnx.save(model, path := Path(folder) / "model.onnx")
            figures = measured(path, config, x, on, NETWORKS[name].maps)
        sizes = f"{weights:,}", f"{config.narrow_depth:,}", f"{figures.words:,}", f"{figures.cycles:,}"
        rates = f"{config.clock_hz / figures.cycles:.3g}", f"{figures.bus_cycles / figures.cycles:.0%}"
        table.add_row(name, *sizes, *rates, "the same" if figures.same else "others")
    wide_console().print(table)


if __name__ == "__main__":
    main()
