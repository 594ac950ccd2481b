"""Convolutions over windows of images, with points or samples as lanes of the gradient of their weights.

With samples as lanes a tap of a window is an address, and the gradient of the weights is a convolution of the input
with the gradient of the result: one transposition of a tile of inputs is enough for all taps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from concord.program.chains import Address, ChainLoops, VectorPlace, Window
from concord.spec.isa import Mem
from concord.train.npu.batch import TrainingBatch, Transposition
from concord.train.npu.chains import ProductSource
from concord.train.npu.features import Features
from concord.train.npu.operations import TrainedOperation
from concord.train.npu.products import DenseSteps, ProductChain, ProductSteps
from concord.train.npu.tensors import GradientTiles
from concord.train.npu.update import UpdateSteps


class PointWindowSteps(DenseSteps):
    """A convolution whose gradient has points as lanes: tap by tap what it has met is transposed for the weights."""

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        weight, space, count, inputs = self.own.weight, self.memory, self.point_tiles, self.step.inputs
        met = space.tiles.take(inputs.tiles * count)
        transposition = Transposition(self.points, inputs.lanes, met, inputs.tiles)
        transposition.vectors = vectors = space.narrow.take(inputs.tiles * inputs.lanes * count)
        for tap in range(self.own.taps):
            self._meet(tap, met)
            self.batch.transpose(transposition)
            for tiles, place in products:
                first = place.address.base + tap * place.address.outer
                words = VectorPlace(place.mem, replace(place.address, base=first, outer=0))
                source = tiles.over_points(Address(vectors, 0, count))
                yield ProductChain(replace(weight.loops, outer=1), source, words)
        space.tiles.give_back(met)
        space.narrow.give_back(vectors)

    def _meet(self, tap: int, tiles: int) -> None:
        """Copy the inputs that a tap meets to rows of tiles ``[tile of inputs][tile of points]``."""
        window, outputs, native = self.step.window.tap(tap), self.step.outputs, self.config.native
        padded, identity = window.padded(outputs.size), self.memory["identity"] * self.config.steps
        for c in range(self._x.tiles):
            source = self._x.windows(window, outputs, c, identity) if padded else self._x.image(c, window)
            rows = self._point_columns((tiles + c * self.point_tiles) * native)
            self.writer.chain(self.batch.image_loops(outputs), source, tile_rows=rows)


class SampleSteps(ProductSteps):
    """A product of windows whose gradient has samples as lanes, and is ``[y][x][sample]``.

    Members
    -------
    turned : Features
        Layout of a channel of the input with samples as lanes.
    """

    point_order = False

    def __init__(self, batch: TrainingBatch, step: TrainedOperation, updates: UpdateSteps):
        super().__init__(batch, step, updates)
        self.turned = Features(batch.config.native, batch.size, *step.inputs.size)
        self.point_tiles = step.outputs.positions * self.turned.tiles

    def _point_columns(self, first: int) -> Address:
        return self._sample_lanes(first, self.step.outputs)

    def _sample_lanes(self, first: int, features: Features) -> Address:
        """Columns or rows of tiles ``[y][x][tile of samples]``, for loops over samples, columns and rows."""
        position = self.turned.tiles * self.config.native
        return Address(first, 1, position, features.width * position)

    def _sums(self, tiles: GradientTiles) -> ProductSource:
        ones = Address(self.memory[f"ones.{self.batch.size}"])
        return ProductSource(ones, tiles.words, self.turned.tiles, tiles.taps, Window(*self.step.outputs.size))

    @property
    def transposed_words(self) -> int:
        """Narrow words of a tile of channels with samples as lanes."""
        return self.step.inputs.lanes * self.turned.vectors

    def transpose(self, c: int, vectors: int) -> None:
        """Write a tile of channels with samples as lanes: ``[channel][y][x][tile of samples]``."""
        inputs, turned, steps, space = self.step.inputs, self.turned, self.config.steps, self.memory.tiles
        count = turned.tiles
        met = space.take(turned.vectors)
        rows = self._sample_lanes(met * self.config.native, inputs)
        self.writer.chain(self.batch.image_loops(inputs), self._x.image(c), tile_rows=rows)
        place = VectorPlace(Mem.NARROW, Address(vectors, 1, turned.vectors, count))
        tiles = Address(met * steps, steps, 0, count * steps)
        self.batch.pick(ChainLoops(count, inputs.lanes, inputs.positions), tiles, place, self.batch.size)
        space.give_back(met)

    def over_taps(self, vectors: int, tiles: GradientTiles, o: int) -> ProductSource:
        """A tile of outputs of the gradient times what the taps of windows meet in a transposed tile of channels, for
        loops over channels, columns and rows of taps.
        """
        window, turned = self.step.window.exchanged(self.step.outputs.size), self.turned
        return ProductSource(
            turned.image(vectors, 1, window),
            Address(tiles.word(o)),
            turned.tiles,
            tiles.taps,
            turned.over(window, 1),
            window.pad(self.step.window.kernel),
        )


class SampleWindowSteps(SampleSteps, DenseSteps):
    """A convolution with samples as lanes: one chain has the gradient of all taps between two tiles of channels."""

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        native, inputs, (height, width) = self.config.native, self.step.inputs, self.step.window.kernel
        vectors = self.memory.narrow.take(self.transposed_words)
        for c in range(inputs.tiles):
            self.transpose(c, vectors)
            loops = ChainLoops(min(native, inputs.channels - c * native), width, height)
            for tiles, place in products:
                for o in range(self.step.outputs.tiles):
                    yield ProductChain(loops, self.over_taps(vectors, tiles, o), self._of_tile(place, c, o))
        self.memory.narrow.give_back(vectors)

    def _of_tile(self, place: VectorPlace, c: int, o: int) -> VectorPlace:
        """Words of a tile of inputs and one of outputs in those of the weights: inputs, columns and rows of taps."""
        each, count = place.address.row, self.step.outputs.tiles
        tap = each * count * self.step.inputs.channels
        base = place.address.base + each * (c * self.config.native * count + o)
        return VectorPlace(place.mem, Address(base, each * count, tap, tap * self.step.window.kernel[1]))
