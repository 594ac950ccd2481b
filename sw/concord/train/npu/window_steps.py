"""Convolutions over windows of images, with points or samples as lanes of the gradient of their weights.

With samples as lanes a tap of a window is an address, and the gradient of the weights is a convolution of the input
with the gradient of the result: one transposition of a tile of inputs is enough for all taps.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from concord.program.chains import Address, ChainLoops, Pad, VectorPlace, Window
from concord.spec.isa import Mem
from concord.train.npu.batch import TrainingBatch, Transposition
from concord.train.npu.chains import ProductSource
from concord.train.npu.operations import TrainedProduct
from concord.train.npu.plan import sample_tiles
from concord.train.npu.products import DenseSteps, ProductChain, ProductSteps
from concord.train.npu.tensors import GradientTiles
from concord.train.npu.update import UpdateSteps


class PointWindowSteps(DenseSteps):
    """A convolution whose gradient has points as lanes: tap by tap what it has met is transposed for the weights."""

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
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
                first = place.address.base + tap * place.address.outer
                words = replace(place.address, base=first, outer=0)
                yield ProductChain(loops, source, VectorPlace(place.mem, words))
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


class SampleSteps(ProductSteps):
    """A product of windows whose gradient has samples as lanes, and is ``[y][x][sample]``."""

    point_order = False

    def __init__(self, batch: TrainingBatch, step: TrainedProduct, updates: UpdateSteps):
        super().__init__(batch, step, updates)
        self.sample_tiles = sample_tiles(batch.size, batch.config.native)
        self.point_tiles = step.outputs.positions * self.sample_tiles

    def _point_columns(self, first: int) -> Address:
        position = self.sample_tiles * self.config.native
        return Address(first, 1, position, self.step.outputs.width * position)

    def _sums(self, tiles: GradientTiles) -> ProductSource:
        outputs, ones = self.step.outputs, Address(self.memory.ones[self.batch.size])
        words = Address(tiles.first * self.config.steps, tiles.apart * self.config.steps)
        window = Window(outputs.height, outputs.width)
        return ProductSource(ones, words, self.sample_tiles, tiles.taps(self.config.steps), window)

    @property
    def transposed_words(self) -> int:
        """Narrow words of a tile of channels with samples as lanes."""
        return self.own.lanes * self.step.inputs.positions * self.sample_tiles

    def transpose(self, c: int, vectors: int) -> None:
        """Write a tile of channels with samples as lanes: ``[channel][y][x][tile of samples]``."""
        inputs, count, native, steps = self.step.inputs, self.sample_tiles, self.config.native, self.config.steps
        space, line = self.memory.tiles, inputs.width * count
        met = space.take(inputs.positions * count)
        rows = Address(met * native, 1, count * native, line * native)
        self.writer.chain(self.batch.image_loops(inputs), self._x.image(c), tile_rows=rows)
        self.writer.chain(
            ChainLoops(count, self.own.lanes, inputs.positions),
            ProductSource(Address(self.memory.units, 0, 1), Address(met * steps, steps, 0, count * steps)),
            vectors=VectorPlace(Mem.NARROW, Address(vectors, 1, inputs.positions * count, count)),
            valid=self.batch.size % native,
        )
        space.give_back(met)

    def over_taps(self, vectors: int, tiles: GradientTiles, o: int) -> ProductSource:
        """A tile of outputs of the gradient times what the taps of windows meet in a transposed tile of channels, for
        loops over channels, columns and rows of taps.
        """
        window, inputs, outputs, column = self.step.window, self.step.inputs, self.step.outputs, self.sample_tiles
        line, (y, x), (down, right) = inputs.width * column, window.place(0), window.dilations
        return ProductSource(
            Address(vectors + y * line + x * column, inputs.height * line, right * column, down * line),
            Address((tiles.first + o * tiles.apart) * self.config.steps),
            column,
            tiles.taps(self.config.steps),
            window.weight_window(outputs, column, inputs.width),
            window.weight_pad(inputs, outputs),
        )


class SampleWindowSteps(SampleSteps, DenseSteps):
    """A convolution with samples as lanes: one chain has the gradient of all taps between two tiles of channels."""

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        own, native, (height, width) = self.own, self.config.native, self.step.window.kernel
        vectors = self.memory.narrow.take(self.transposed_words)
        for c in range(own.input_tiles):
            self.transpose(c, vectors)
            loops = ChainLoops(min(native, own.channels - c * native), width, height)
            for tiles, place in products:
                for o in range(own.output_tiles):
                    yield ProductChain(loops, self.over_taps(vectors, tiles, o), self._of_tile(place, c, o))
        self.memory.narrow.give_back(vectors)

    def _of_tile(self, place: VectorPlace, c: int, o: int) -> VectorPlace:
        """Words of a tile of inputs and one of outputs in those of the weights: inputs, columns and rows of taps."""
        each, count = place.address.row, self.own.output_tiles
        tap = each * count * self.own.channels
        base = place.address.base + each * (c * self.config.native * count + o)
        return VectorPlace(place.mem, Address(base, each * count, tap, tap * self.step.window.kernel[1]))
