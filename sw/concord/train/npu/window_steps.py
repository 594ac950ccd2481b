"""Convolutions over windows of images."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from concord.program.chains import Address, ChainLoops, Pad
from concord.train.npu.batch import Transposition
from concord.train.npu.chains import ProductSource, VectorPlace
from concord.train.npu.gradient_tiles import GradientTiles
from concord.train.npu.products import DenseSteps
from concord.train.npu.sample_lanes import SampleSteps


class PointWindowSteps(DenseSteps):
    """A convolution whose gradient has points as lanes: tap by tap what it has met is transposed for the weights."""

    def _changes(self, *products: tuple[GradientTiles, VectorPlace | None], **steps: Any) -> None:
        own, space, count, lanes = self.own, self.memory, self.point_tiles, self.own.lanes
        met = space.tiles.take(own.input_tiles * count)
        transposition = Transposition(self.points, lanes, met, own.input_tiles)
        transposition.vectors = vectors = space.narrow.take(own.input_tiles * lanes * count)
        for tap in range(own.taps):
            self._meet(tap, met)
            self.batch.transpose(transposition)
            loops = ChainLoops(own.output_tiles, own.channels)
            for tiles, place in products:
                source = tiles.over_points(Address(vectors, 0, count), self.config.steps)
                self.writer.chain(loops, source, vectors=_of_tap(place, tap), **steps)
        space.tiles.give_back(met)
        space.narrow.give_back(vectors)

    def _meet(self, tap: int, tiles: int) -> None:
        """Copy the inputs that a tap meets to rows of tiles ``[tile of inputs][tile of points]``."""
        batch, step, native = self.batch, self.step, self.config.native
        window, outputs, inputs = step.window, step.outputs, step.inputs
        place, loops = window.place(tap), batch.image_loops(outputs)
        for c in range(self.own.input_tiles):
            met = self._x.image(c, place, window.strides)
            rows = Address((tiles + c * self.point_tiles) * native, outputs.positions, 1, outputs.width)
            if window.inside(tap, inputs, outputs):
                self.writer.chain(loops, met, tile_rows=rows)
            else:
                pad = Pad(*place, *window.strides, inputs.height, inputs.width)
                tile = Address(self.memory.identity * self.config.steps)
                self.writer.chain(loops, ProductSource(met.address, tile, pad=pad), tile_rows=rows)


def _of_tap(place: VectorPlace | None, tap: int) -> VectorPlace | None:
    """Words of a tap in those of the weights."""
    if place is None:
        return None
    return VectorPlace(
        place.mem, replace(place.address, base=place.address.base + tap * place.address.outer, outer=0)
    )  # fmt: skip


class SampleWindowSteps(SampleSteps, DenseSteps):
    """A convolution with samples as lanes: one chain has the gradient of all taps between two tiles of channels."""

    def _changes(self, *products: tuple[GradientTiles, VectorPlace | None], **steps: Any) -> None:
        own, native, (height, width) = self.own, self.config.native, self.step.window.kernel
        vectors = self.memory.narrow.take(self.transposed_words)
        for c in range(own.input_tiles):
            self.transpose(c, vectors)
            loops = ChainLoops(min(native, own.channels - c * native), width, height)
            for tiles, place in products:
                for o in range(own.output_tiles):
                    source = self.over_taps(vectors, tiles, o)
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
