"""Networks with more weights than ``ecp5-85f`` holds: cycles, and results beside those of an NPU that holds them all.

``python -m concord_bench.external_memory [NAME ...]``. The networks have seeded random weights; the LSTM takes
minutes, and with ``--on rtl`` half an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
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


def resnet() -> onnx.ModelProto:
    """The larger network for images of MLPerf Tiny 1.4: a ResNet with 40, 80 and 160 channels."""
    sizes: dict[str, tuple[int, ...]] = {}

    def conv(name: str, source: str, shape: tuple[int, int, int], stride: int = 1) -> str:
        outputs, inputs, kernel = shape
        sizes.update({f"w{name}": (outputs, inputs, kernel, kernel), f"b{name}": (outputs,)})
        pads, steps = f"pads=[{', '.join([str(kernel // 2)] * 4)}]", f"strides=[{stride}, {stride}]"
        return f"{name} = Conv<{pads}, {steps}>({source}, w{name}, b{name}) "

    text, last, channels = conv("s", "x", (40, 3, 3)) + "r = Relu(s) ", "r", 40
    for k, outputs in enumerate((40, 80, 160)):
        stride = outputs // channels
        text += conv(f"c{k}", last, (outputs, channels, 3), stride) + f"d{k} = Relu(c{k}) "
        text += conv(f"e{k}", f"d{k}", (outputs, outputs, 3))
        if stride > 1:
            text += conv(f"p{k}", last, (outputs, channels, 1), stride)
            last = f"p{k}"
        text += f"a{k} = Add({last}, e{k}) f{k} = Relu(a{k}) "
        last, channels = f"f{k}", outputs
    text += f"g = GlobalAveragePool({last}) h = Flatten(g) y = Gemm<transB=1>(h, w, b)"
    return _model(text, "float[n, 3, 32, 32] x", sizes | {"w": (10, 160), "b": (10,)})


def mobilenet() -> onnx.ModelProto:
    """MobileNetV2 with 0.35 of its channels, for 96 x 96 pixels and 1,000 classes."""
    sizes: dict[str, tuple[int, ...]] = {}

    def scaled(channels: int) -> int:
        eighths = max(8, int(0.35 * channels + 4) // 8 * 8)
        return eighths + 8 * (eighths < 0.9 * 0.35 * channels)

    def conv(name: str, source: str, shape: tuple[int, int, int], stride: int = 1, groups: int = 1) -> str:
        outputs, inputs, kernel = shape
        sizes.update({f"w{name}": (outputs, inputs, kernel, kernel), f"b{name}": (outputs,)})
        pads, steps = f"pads=[{', '.join([str(kernel // 2)] * 4)}]", f"strides=[{stride}, {stride}]"
        return f"{name} = Conv<{pads}, {steps}, group={groups}>({source}, w{name}, b{name}) "

    def clipped(name: str, source: str) -> str:
        return f"{name} = Clip({source}, low, high) "

    text, last, channels = conv("s", "x", (scaled(32), 3, 3), 2) + clipped("r", "s"), "r", scaled(32)
    stages = (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)
    for k, (factor, width, count, step) in enumerate(stages):
        for n in range(count):
            name, inner, outputs, stride = f"{k}_{n}", factor * channels, scaled(width), step if n == 0 else 1
            source = last
            if factor > 1:
                text += conv(f"e{name}", last, (inner, channels, 1)) + clipped(f"f{name}", f"e{name}")
                source = f"f{name}"
            text += conv(f"d{name}", source, (inner, 1, 3), stride, inner) + clipped(f"g{name}", f"d{name}")
            text += conv(f"p{name}", f"g{name}", (outputs, inner, 1))
            last, residual = f"p{name}", last
            if stride == 1 and outputs == channels:
                text += f"a{name} = Add({residual}, {last}) "
                last = f"a{name}"
            channels = outputs
    text += conv("t", last, (1280, channels, 1)) + clipped("u", "t")
    text += "v = GlobalAveragePool(u) h = Flatten(v) y = Gemm<transB=1>(h, w, b)"
    limits = "low = Constant<value = float {0.0}>() high = Constant<value = float {6.0}>() "
    return _model(limits + text, "float[n, 3, 96, 96] x", sizes | {"w": (1000, 1280), "b": (1000,)})


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
    """

    make: Callable[[], onnx.ModelProto]
    config: NpuConfig = ECP5_85F


@dataclass(frozen=True)
class Figures:
    """Figures of a sample: instructions, cycles, those in which copies go on, and whether the results are those of an
    NPU with a matrix memory for all weights, which no FPGA has.
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


def measured(model: Path, config: NpuConfig, x: Array, on: str) -> Figures:
    """Figures of a sample."""
    network = concord.compile(model, config=config)
    with concord.connect(on, network) as device:
        got = network.run(x, on=device)
        cycles = device.counters()["CYCLES"] or 0
    large = config.replace(name="large", matrix_depth=1 << 17, dram="", dram_refresh=0)
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
    caption = "copies: share of cycles; bits: beside an NPU that holds all weights"
    table = Table(*columns, caption=caption)
    for name in names or NETWORKS:
        model, config = NETWORKS[name].make(), NETWORKS[name].config
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        sample = [SAMPLES, *(shape if name == "lstm" else shape[1:])]
        x = np.random.default_rng(1).normal(size=sample).astype(np.float32)
        weights = sum(int(np.prod(t.dims)) for t in model.graph.initializer if len(t.dims) > 1)
        with TemporaryDirectory() as folder:
            onnx.save(model, path := Path(folder) / "model.onnx")
            figures = measured(path, config, x, on)
        sizes = f"{weights:,}", f"{config.narrow_depth:,}", f"{figures.words:,}", f"{figures.cycles:,}"
        rates = f"{config.clock_hz / figures.cycles:.3g}", f"{figures.bus_cycles / figures.cycles:.0%}"
        table.add_row(name, *sizes, *rates, "the same" if figures.same else "others")
    wide_console().print(table)


if __name__ == "__main__":
    main()
