"""Layers of image networks: convolutions by windows, depthwise convolution, pooling, residual sum.

Images are stored position by position, row by row; a position has C native vectors of channels. They arrive narrow, as
the layer before would have left them; only the residual sum needs its input wide as well, and converts it.
"""

from __future__ import annotations

import numpy as np

from concord.examples.base import Example, chain, program
from concord.program.allocator import Allocator
from concord.spec.config import NpuConfig
from concord.spec.isa import VECTOR_ADDR_BITS
from concord.spec.memmap import RegionId
from concord.utils.arrays import FloatArray


def _patches(x: FloatArray, kernel: int, stride: int, pad: int, fill: float) -> FloatArray:
    """Windows of a batch of images ``[n, height, width, channel]``: ``[n, y, x, ky, kx, channel]``."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(1, 2))[:, ::stride, ::stride]
    return np.moveaxis(windows, 3, -1)


class _Images:
    """Allocator of a layer from one image to another, and the text that all of them share."""

    def __init__(
        self,
        config: NpuConfig,
        shape: tuple[int, int, int],
        outputs: int,
        *,
        kernel: int,
        stride: int,
        wide: bool = False,
    ):
        self.shape, self.kernel, self.stride = shape, kernel, stride
        height, width, channels = shape
        self.pad = (kernel - 1) // 2
        out_height, out_width = (-(-side // stride) for side in (height, width))
        self.output_shape = (out_height, out_width, outputs)
        self.allocator = allocator = Allocator(config)
        self.size = {
            "C": allocator.tiles(channels),
            "K": allocator.tiles(outputs),
            "H": height,
            "W": width,
            "HO": out_height,
            "WO": out_width,
        }
        if wide:
            allocator.input("x_in", shape, "image, C vectors a position")
            allocator.narrow("x", height * width * self.size["C"], "the same, narrow")
        else:
            allocator.input("x", shape, "image, C vectors a position", RegionId.NARROW)
        allocator.output("y", self.output_shape, "result, K vectors a position")

    def convert(self) -> tuple[str, list[str]]:
        """The section that converts the image to narrow, one position a vector group."""
        lines = ["set_shape C, 1", "set_iters W, H"]
        lines += chain("v_rd wide, x_in, row=1, inner=C, outer=W*C; v_wr narrow, x, row=1, inner=C, outer=W*C")
        return "Image to narrow.", lines

    def window(self) -> list[str]:
        """Instructions that set window and padding."""
        if self.kernel == 1:
            return []
        first = (self.allocator["x"] - self.pad * (self.shape[1] + 1) * self.size["C"]) % (1 << VECTOR_ADDR_BITS)
        lines = [f"first = {first}  # the tap above and left of the image: x - (W + 1)*C modulo 2**{VECTOR_ADDR_BITS}"]
        lines.append(f"set_window {self.kernel}, {self.kernel}, stride_y=W*C, stride_x=C, dil_y=1, dil_x=1")
        position = f"y0=-{self.pad}, x0=-{self.pad}, step_y={self.stride}, step_x={self.stride}"
        return [*lines, f"set_pad {position}, height=H, width=W"]

    def read(self, row: str = "") -> str:
        """The ``v_rd`` of the layer."""
        start = "x" if self.kernel == 1 else "first"
        steps = "" if self.stride == 1 else f"{self.stride}*"
        return f"v_rd_inc narrow, {start}{row}, inner={steps}C, outer={steps}W*C"

    def write(self, memory: str = "wide, y") -> str:
        """A ``v_wr`` of the layer."""
        return f"v_wr_inc {memory}, row=1, inner=K, outer=WO*K"

    def example(self, name: str, title: str, sections: list[tuple[str, list[str]]], **rest: object) -> Example:
        """The finished example."""
        return Example(
            name=name,
            title=title,
            allocator=self.allocator,
            text=program(self.allocator, self.size, sections),
            **rest,  # type: ignore[arg-type]
        )


def _weights(kernel: int, inputs: int, outputs: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """Weights ``[out, ky, kx, in]`` and bias of a convolution."""
    rng = np.random.default_rng(seed)
    scale = np.sqrt(2.0 / (kernel * kernel * inputs))
    return rng.normal(0, scale, (outputs, kernel, kernel, inputs)), rng.normal(0, 0.2, outputs)


def _convolution(
    config: NpuConfig, name: str, kernel: int, stride: int, side: int, inputs: int, outputs: int
) -> Example:
    weight, bias = _weights(kernel, inputs, outputs, seed=3)
    images = _Images(config, (side, side, inputs), outputs, kernel=kernel, stride=stride)
    images.allocator.matrix("w", weight, "weights")
    images.allocator.constant("b", bias, "bias")

    def reference(x: FloatArray) -> FloatArray:
        patches = _patches(x, kernel, stride, images.pad, 0.0)
        return np.asarray(np.maximum(np.einsum("nyxhwc,khwc->nyxk", patches, weight) + bias, 0))

    positions = images.output_shape[0] * images.output_shape[1]
    lines = ["set_shape K, C", "set_iters WO, HO", *images.window()]
    lines += chain(f"{images.read()}; mv_mul w; vv_add b, row=1; v_relu; {images.write()}")
    return images.example(
        name,
        f"Convolution {kernel}x{kernel}, stride {stride}: {side}x{side}x{inputs} to {outputs} channels, ReLU.",
        [("Every position: all taps and channels, bias, ReLU.", lines)],
        reference=reference,
        tolerance=0.03,
        macs=positions * weight.size,
    )


def conv1x1(config: NpuConfig, *, side: int = 8, inputs: int = 64, outputs: int = 64) -> Example:
    """A 1x1 convolution with bias and ReLU."""
    return _convolution(config, "conv1x1", 1, 1, side, inputs, outputs)


def conv3x3(config: NpuConfig, *, side: int = 9, inputs: int = 32, outputs: int = 64) -> Example:
    """A 3x3 convolution with padding and stride 2, bias and ReLU."""
    return _convolution(config, "conv3x3", 3, 2, side, inputs, outputs)


def depthwise3x3(config: NpuConfig, *, side: int = 8, channels: int = 64) -> Example:
    """A depthwise 3x3 convolution with padding, bias and ReLU."""
    rng = np.random.default_rng(4)
    weight, bias = rng.normal(0, np.sqrt(2.0 / 9), (channels, 3, 3)), rng.normal(0, 0.2, channels)
    images = _Images(config, (side, side, channels), channels, kernel=3, stride=1)
    images.allocator.depthwise("w", weight, "weights, one kernel a channel")
    images.allocator.constant("b", bias, "bias")

    def reference(x: FloatArray) -> FloatArray:
        patches = _patches(x, 3, 1, 1, 0.0)
        return np.asarray(np.maximum(np.einsum("nyxhwc,chw->nyxc", patches, weight) + bias, 0))

    lines = ["set_shape K, 1", "set_iters WO, HO", *images.window()]
    read = images.read(", row=1")
    lines += chain(f"{read}; mv_mul w, mode=depthwise; vv_add b, row=1; v_relu; {images.write()}")
    return images.example(
        "depthwise3x3",
        f"Depthwise convolution 3x3: {side}x{side}x{channels}, ReLU.",
        [("Every position and channel vector: nine taps, bias, ReLU.", lines)],
        reference=reference,
        tolerance=0.03,
        macs=side * side * weight.size,
    )


def maxpool3x3(config: NpuConfig, *, side: int = 9, channels: int = 64) -> Example:
    """Max-pooling 3x3 with padding and stride 2."""
    images = _Images(config, (side, side, channels), channels, kernel=3, stride=2)

    def reference(x: FloatArray) -> FloatArray:
        return np.asarray(_patches(x, 3, 2, 1, -np.inf).max(axis=(3, 4)))

    lines = ["set_shape K, 1", "set_iters WO, HO", *images.window()]
    read = images.read(", row=1")
    lines += chain(f"{read}; v_max; {images.write()}")
    return images.example(
        "maxpool3x3",
        f"Max-pooling 3x3, stride 2: {side}x{side}x{channels}.",
        [("Every position and channel vector: the maximum over the taps inside the image.", lines)],
        reference=reference,
        tolerance=0.02,
        macs=0,
    )


def residual(config: NpuConfig, *, side: int = 8, channels: int = 64) -> Example:
    """A residual block end: 1x1 convolution, bias, sum with the input, ReLU; written wide and narrow in one chain."""
    weight, bias = _weights(1, channels, channels, seed=5)
    images = _Images(config, (side, side, channels), channels, kernel=1, stride=1, wide=True)
    images.allocator.matrix("w", weight, "weights")
    images.allocator.constant("b", bias, "bias")
    images.allocator.narrow(
        "next", side * side * images.size["K"], "the same result, narrow, for the layer that follows"
    )

    def reference(x: FloatArray) -> FloatArray:
        return np.asarray(np.maximum(x @ weight[:, 0, 0].T + bias + x, 0))

    lines = ["set_shape K, C", "set_iters WO, HO"]
    add = "vv_add b, row=1; vv_add_inc x_in, row=1, inner=C, outer=W*C"
    lines += chain(f"{images.read()}; mv_mul w; {add}; v_relu; {images.write()}; {images.write('narrow, next')}")
    return images.example(
        "residual",
        f"Residual sum: 1x1 convolution of {side}x{side}x{channels}, plus its input, ReLU.",
        [
            images.convert(),
            ("Product, bias (first unit), residual and ReLU (second unit), two destinations.", lines),
        ],
        reference=reference,
        tolerance=0.03,
        macs=side * side * weight.size,
    )
