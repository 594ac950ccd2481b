"""Convolutions over windows of images, with points or samples as lanes of the gradient of their weights.

With samples as lanes a tap of a window is an address, and the gradient of the weights is a convolution of the input
with the gradient of the result: one transposition of a tile of inputs is enough for all taps. Of depthwise convolutions
tiles of the weights are diagonal; of the products of all channels of a tile with each other only those of a channel
with itself are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from concord.program.chains import Address, ChainLoops, VectorPlace, Window
from concord.program.integers import Planes, ProductTaps
from concord.spec.integers import DIGIT_BITS, digit_span, digits_of
from concord.spec.isa import DIGITS_MAX, Mem, Op
from concord.train.npu.batch import TrainingBatch, Transposition
from concord.train.npu.chains import ProductSource
from concord.train.npu.operations import TrainedOperation
from concord.train.npu.plan import MANTISSA_TOP, WIDE_TOP
from concord.train.npu.products import DenseSteps, ProductChain, ProductSteps
from concord.train.npu.tensors import Features, GradientTiles, Held


class PointWindowSteps(DenseSteps):
    """A convolution whose gradient has points as lanes: tap by tap what it has met is transposed for the weights."""

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        weight, memory, count, inputs = self.own.weight.value, self.memory, self.point_tiles, self.step.inputs
        tiles_met, words = inputs.tiles * count, inputs.tiles * inputs.lanes * count
        with memory.tile_space.lent(tiles_met) as met, memory.space(Mem.NARROW).lent(words) as vectors:
            transposition = Transposition(self.points, inputs.lanes, met, inputs.tiles, vectors)
            for tap in range(self.step.window.taps):
                self._meet(tap, met)
                self.batch.transpose(transposition)
                for tiles, place in products:
                    first = place.address.base + tap * place.address.outer
                    results = VectorPlace(place.mem, replace(place.address, base=first, outer=0))
                    source = tiles.over_points(Address(vectors, 0, count))
                    yield ProductChain(replace(weight.features.loops, outer=1), source, results)

    def _meet(self, tap: int, tiles: int) -> None:
        """Copy the inputs that a tap meets to rows of tiles ``[tile of inputs][tile of points]``."""
        window, outputs, native = self.step.window.tap(tap), self.step.outputs, self.config.native
        padded, identity = window.padded(outputs.size), self.memory["identity"] * self.config.steps
        for c in range(self._x.tiles):
            source = self._x.windows(window, outputs.size, c, identity) if padded else self._x.image(c, window)
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

    def __init__(self, batch: TrainingBatch, step: TrainedOperation):
        super().__init__(batch, step)
        self.turned = Features(self.config.native, batch.size, *step.inputs.size)
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

    def transposed(self) -> Iterator[tuple[int, int]]:
        """Tiles of channels, each with the word from which on it lies with samples as lanes until the next one does."""
        with self.memory.space(Mem.NARROW).lent(self.step.inputs.lanes * self.turned.vectors) as vectors:
            for c in range(self.step.inputs.tiles):
                self._transpose(c, vectors)
                yield c, vectors

    def _transpose(self, c: int, vectors: int) -> None:
        """Write a tile of channels with samples as lanes: ``[channel][y][x][tile of samples]``."""
        inputs, turned, steps, count = self.step.inputs, self.turned, self.config.steps, self.turned.tiles
        with self.memory.tile_space.lent(turned.vectors) as met:
            rows = self._sample_lanes(met * self.config.native, inputs)
            self.writer.chain(self.batch.image_loops(inputs), self._x.image(c), tile_rows=rows)
            place = VectorPlace(Mem.NARROW, Address(vectors, 1, turned.vectors, count))
            tiles = Address(met * steps, steps, 0, count * steps)
            self.batch.pick(ChainLoops(count, inputs.lanes, inputs.positions), tiles, place, self.batch.size)

    def over_taps(self, vectors: int, tiles: GradientTiles, o: int) -> ProductSource:
        """A tile of outputs of the gradient times what the taps of windows meet in a transposed tile of channels, for
        loops over channels, columns and rows of taps.
        """
        window, taps = self.step.window.exchanged(self.step.outputs.size), self.step.window.kernel
        turned = Held(self.turned, Mem.NARROW, 1, vectors, self._x.register)
        return turned.windows(window, taps, 0, tiles.word(o), self.turned.tiles, tiles.taps)


class SampleWindowSteps(SampleSteps, DenseSteps):
    """A convolution with samples as lanes: one chain has the gradient of all taps between two tiles of channels."""

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        native, inputs, (height, width) = self.config.native, self.step.inputs, self.step.window.kernel
        for c, vectors in self.transposed():
            loops = ChainLoops(min(native, inputs.channels - c * native), width, height)
            for tiles, place in products:
                for o in range(self.step.outputs.tiles):
                    yield ProductChain(loops, self.over_taps(vectors, tiles, o), self._of_tile(place, c, o))

    def _of_tile(self, place: VectorPlace, c: int, o: int) -> VectorPlace:
        """Words of a tile of inputs and one of outputs in those of the weights: inputs, columns and rows of taps."""
        each, count = place.address.row, self.step.outputs.tiles
        tap = each * count * self.step.inputs.channels
        base = place.address.base + each * (c * self.config.native * count + o)
        return VectorPlace(place.mem, Address(base, each * count, tap, tap * self.step.window.kernel[1]))


#: Digits that the lower of two wide integers has of a sum.
_LOWER_DIGITS = DIGITS_MAX - 1


class DepthwiseSteps(SampleSteps):
    """A convolution of every channel with its own kernel."""

    def _weight_gradient(self, tiles: GradientTiles, change: Held) -> None:
        self.writer.step(Op.T_MUL, change.register, tiles.register, self._x.register)
        bound = tiles.top * MANTISSA_TOP * self.points
        if bound <= WIDE_TOP:
            self._gradient_of_whole_sums(tiles, change, digits_of(bound))
        else:
            pair = -digit_span(2)[0] * MANTISSA_TOP * self.points
            self._gradient_of_parts(tiles, change, 2 if pair <= WIDE_TOP else 1)

    def _gradient_of_whole_sums(self, tiles: GradientTiles, change: Held, count: int) -> None:
        """Sums of all digits of the gradient, as tiles ``[tap][tile of channels][digit]``."""
        register, layout = change.register, change.features
        with self.memory.tile_space.lent(layout.vectors * count) as first:
            self._diagonals(tiles, {0: range(tiles.digits)}, first, count, count)
            source = self._of_diagonals(first, count, count)
            self.writer.chain(layout.loops, source, vectors=change.vectors, peak=1, tensor=register)
        self.writer.fit(register, register)

    def _gradient_of_parts(self, tiles: GradientTiles, change: Held, each: int) -> None:
        """Sums of parts of the gradient, which have 32 bits where those of all digits may have more.

        Digits of the sums are tiles ``[tap][tile of channels][sum | zeros | sum | zeros | ...]``. There are as many
        zeros as digits in front of the last part, so tiles at one distance belong to the same power of 128.

        Parameters
        ----------
        tiles : GradientTiles
            The gradient.
        change : Held
            The gradient of the weights.
        each : int
            Digits of the gradient in a part.
        """
        writer, memory, native, loops = self.writer, self.memory, self.config.native, change.features.loops
        starts, words = range(0, tiles.digits, each), change.features.vectors
        zeros, last = starts[-1], len(starts) - 1
        part = DIGITS_MAX + zeros
        word = last * part + DIGITS_MAX
        parts = {k * part: range(start, min(start + each, tiles.digits)) for k, start in enumerate(starts)}
        high = self.batch.new(change.features, Mem.WIDE, samples=1)
        with memory.tile_space.lent(words * word) as first:
            nothing = VectorPlace(Mem.NARROW, Address(memory["zeros"]))
            columns = Address((first + DIGITS_MAX) * native, 1, part * native, word * native)
            writer.chain(ChainLoops(zeros * native, last, words), nothing, columns=columns)
            self._diagonals(tiles, parts, first, word, DIGITS_MAX)
            sums = len(starts), part - each
            lower = self._of_diagonals(first, word, _LOWER_DIGITS, *sums)
            writer.chain(loops, lower, vectors=change.vectors)
            more = self._of_diagonals(first + _LOWER_DIGITS, word, zeros + 1, *sums)
            writer.chain(loops, more, vectors=high.vectors)
        self._joined(change, high, _LOWER_DIGITS * DIGIT_BITS)

    def _diagonals(self, tiles: GradientTiles, parts: dict[int, range], first: int, word: int, count: int) -> None:
        """Products of channels with themselves, as diagonal tiles of so many digits.

        Parameters
        ----------
        tiles : GradientTiles
            What is multiplied by the input.
        parts : dict
            By a tile of a word of the weights, digits of the gradient whose products begin there.
        first, word, count : int
            The first tile, tiles of a word of the weights, and digits of a product.
        """
        native, (height, width), outputs = self.config.native, self.step.window.kernel, self.step.outputs
        units = VectorPlace(Mem.NARROW, Address(self.memory["units"], 1))
        loops, planes = ChainLoops(outputs.lanes, width, height), Planes(count, 0, native)
        tap = outputs.tiles * word * native
        for c, vectors in self.transposed():
            for place, digits in parts.items():
                source = self.over_taps(vectors, tiles.part(digits), c)
                columns = Address((first + c * word + place) * native, 1, tap, width * tap)
                self.writer.chain(loops, source, operand=units, columns=columns, planes=planes, mask=1)

    def _of_diagonals(self, first: int, word: int, digits: int, sums: int = 1, apart: int = 0) -> ProductSource:
        """Diagonals as words of the weights: digits of columns of tiles, of several sums some tiles apart."""
        steps, outputs = self.config.steps, self.step.outputs
        return ProductSource(
            Address(self.memory[f"ones.{outputs.lanes}"]),
            Address(first * steps, word * steps, 0, outputs.tiles * word * steps),
            sums,
            ProductTaps(matrix=apart * steps, matrix_digit=steps, digits=digits, of=1),
        )
