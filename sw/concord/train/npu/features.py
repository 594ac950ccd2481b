"""Images and vectors of features in the memories, and the windows over them."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from concord.graph.ir import Shape
from concord.image.packing import from_vectors, to_vectors
from concord.program.chains import Pad, Window
from concord.spec.config import NpuConfig
from concord.train.layers.windows import Geometry
from concord.train.npu.words import Ints


@dataclass(frozen=True)
class Features:
    """A sample of a tensor; a vector is an image of one position.

    In a vector memory it is ``[y][x][tile of channels]``.

    Parameters
    ----------
    channels, height, width : int
        Channels, and height and width of a map in positions.
    """

    channels: int
    height: int = 1
    width: int = 1

    @classmethod
    def of(cls, shape: Shape) -> Features:
        """Features of a sample ``[1, C]``, ``[1, C, W]`` or ``[1, C, H, W]``; other shapes are vectors as a whole."""
        if len(shape) == 4 and shape[0] == 1:
            return cls(*shape[1:])
        if len(shape) == 3 and shape[0] == 1:
            return cls(shape[1], 1, shape[2])
        return cls(prod(shape))

    @property
    def positions(self) -> int:
        """Pixels."""
        return self.height * self.width

    @property
    def elements(self) -> int:
        """Numbers."""
        return self.channels * self.positions

    def tiles(self, native: int) -> int:
        """Vectors of a position."""
        return -(-self.channels // native)

    def vectors(self, native: int) -> int:
        """Vectors of a sample."""
        return self.positions * self.tiles(native)

    def pack(self, values: Any, config: NpuConfig) -> Ints:
        """Vectors of samples ``[samples, ...]`` whose elements are ``[C, H, W]``."""
        images = np.asarray(values).reshape(-1, self.channels, self.positions)
        return to_vectors(images.swapaxes(1, 2).astype(np.int64), config)

    def unpack(self, vectors: Ints, config: NpuConfig) -> Ints:
        """Inverse of :meth:`pack`: ``[samples, C * H * W]``."""
        samples = len(vectors) // self.vectors(config.native)
        images = from_vectors(vectors, (samples, self.positions, self.channels), config)
        return np.ascontiguousarray(images.swapaxes(1, 2)).reshape(len(images), -1)


@dataclass(frozen=True)
class WindowShape:
    """Windows over images: of vertical and horizontal numbers each.

    Parameters
    ----------
    kernel, strides, dilations : (int, int)
        Taps, and steps from window to window and from tap to tap.
    pads : (int, int, int, int)
        Rows above, columns to the left, rows below and columns to the right.
    """

    kernel: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    @classmethod
    def of(cls, geometry: Geometry) -> WindowShape:
        """Window of a layer over one or two axes."""
        kernel, attrs, pads = geometry.kernel, geometry.attrs, tuple(geometry.attrs["pads"])
        if len(kernel) == 1:
            return cls((1, kernel[0]), (1, attrs["strides"][0]), (1, attrs["dilations"][0]), (0, pads[0], 0, pads[1]))
        return cls(tuple(kernel), tuple(attrs["strides"]), tuple(attrs["dilations"]), pads)  # type: ignore[arg-type]

    @property
    def taps(self) -> int:
        """Taps of a window."""
        return prod(self.kernel)

    def place(self, tap: int) -> tuple[int, int]:
        """Row and column of a tap of the first window, in the image without padding."""
        y, x = divmod(tap, self.kernel[1])
        return y * self.dilations[0] - self.pads[0], x * self.dilations[1] - self.pads[1]

    def inside(self, tap: int, inputs: Features, outputs: Features) -> bool:
        """True if all windows have a tap in the image."""
        y, x = self.place(tap)
        last = y + (outputs.height - 1) * self.strides[0], x + (outputs.width - 1) * self.strides[1]
        return min(y, x) >= 0 and last[0] < inputs.height and last[1] < inputs.width

    def chain_window(self, vectors: int, width: int) -> Window:
        """Window of a chain over images of a width with so many vectors a position."""
        return Window.over(self.kernel, self.dilations, width * vectors, vectors)

    def chain_pad(self, inputs: Features, outputs: Features) -> Pad:
        """Bounds of a chain whose outer and inner loops are over rows and columns of the outputs."""
        return self._pad(inputs, outputs, self.strides)

    def weight_window(self, outputs: Features, vectors: int, width: int) -> Window:
        """Window of a chain over what a tap meets, in images of a width with so many vectors a position."""
        return Window.over((outputs.height, outputs.width), self.strides, width * vectors, vectors)

    def weight_pad(self, inputs: Features, outputs: Features) -> Pad:
        """The bounds of that, for loops over rows and columns of taps."""
        return self._pad(inputs, outputs, self.dilations)

    def gathered(self, values: Any, inputs: Features, outputs: Features) -> Ints:
        """Elements that windows meet of samples ``[samples, C, H, W]``, as channels ``[samples, taps * C, H, W]``."""
        (down, right), (top, left, bottom, side) = self.strides, self.pads
        images = np.asarray(values).reshape(-1, inputs.channels, inputs.height, inputs.width)
        images = np.pad(images, ((0, 0), (0, 0), (top, bottom), (left, side)))
        taps = []
        for tap in range(self.taps):
            y, x = (place + pad for place, pad in zip(self.place(tap), (top, left), strict=True))
            taps.append(images[:, :, y : y + down * outputs.height : down, x : x + right * outputs.width : right])
        return np.concatenate(taps, axis=1)

    def _pad(self, inputs: Features, outputs: Features, steps: tuple[int, int]) -> Pad:
        if all(self.inside(tap, inputs, outputs) for tap in range(self.taps)):
            return Pad()
        return Pad(*self.place(0), *steps, inputs.height, inputs.width)
