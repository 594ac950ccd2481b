"""Samples as lanes, for gradients of the weights of windows.

A tap of a window is an address then, and the gradient of the weights is a convolution of the input with the gradient of
the result: one transposition of a tile of inputs is enough for all taps.
"""

from __future__ import annotations

from concord.program.chains import Address, ChainLoops, Window
from concord.spec.isa import Mem
from concord.train.npu.batch import TrainingBatch
from concord.train.npu.chains import ProductSource, VectorPlace
from concord.train.npu.gradient_tiles import GradientTiles
from concord.train.npu.operations import TrainedProduct
from concord.train.npu.plan import sample_tiles
from concord.train.npu.products import ProductSteps
from concord.train.npu.update import UpdateSteps


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
