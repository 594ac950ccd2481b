"""Convolutions whose gradient of the weights has samples as lanes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from concord.program.chains import Address, ChainLoops
from concord.train.npu.chains import ProductSource, VectorPlace
from concord.train.npu.gradient_tiles import GradientTiles
from concord.train.npu.product_inputs import DenseInput, ForwardProduct, window_products
from concord.train.npu.products import DenseSteps
from concord.train.npu.sample_lanes import SampleInput, SampleSteps
from concord.train.npu.tensors import Held


class WindowsOfSamples(SampleInput, DenseInput):
    """Windows over images, for gradients with samples as lanes."""

    def products(self, result: Held) -> Iterator[ForwardProduct]:
        return window_products(self, result)

    def changes(self, *products: tuple[GradientTiles, VectorPlace | None], **steps: Any) -> None:
        own, native, (height, width) = self.own, self.config.native, self.step.window.kernel
        vectors = self.memory.narrow.take(self.transposed_words)
        met = self.taps_met(vectors)
        for c in range(own.input_tiles):
            self.transpose(c, vectors)
            loops = ChainLoops(min(native, own.channels - c * native), width, height)
            for tiles, place in products:
                for o in range(own.output_tiles):
                    words = Address((tiles.first + o * tiles.apart) * self.config.steps)
                    source = ProductSource(
                        met.address, words, self.sample_tiles, tiles.taps(self.config.steps), met.window, met.pad
                    )
                    self.writer.chain(loops, source, vectors=self._of_tile(place, c, o), **steps)
        self.memory.narrow.give_back(vectors)

    def _of_tile(self, place: VectorPlace | None, c: int, o: int) -> VectorPlace | None:
        """Words of a tile of inputs and one of outputs in those of the weights: inputs, columns and rows of taps."""
        if place is None:
            return None
        each, count = place.address.row, self.own.output_tiles
        tap = each * count * self.own.channels
        base = place.address.base + each * (c * self.config.native * count + o)
        return VectorPlace(place.mem, Address(base, each * count, tap, tap * self.step.window.kernel[1]))


class WindowSteps(SampleSteps, DenseSteps):
    """A convolution; a chain for a tile of inputs and one of outputs has the gradient of the weights of all taps."""

    _input: WindowsOfSamples

    def _read_input(self) -> WindowsOfSamples:
        return WindowsOfSamples(self.batch, self.own, self._shared_input())
