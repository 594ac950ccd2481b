"""Convolutions and products with vectors on the NPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from concord.program.chains import Address, ChainLoops, Pad, VectorPlace
from concord.program.integers import Planes, ProductTaps
from concord.spec.integers import DIGIT_BITS, WIDE_BITS, digit_span
from concord.spec.isa import Mem, Op
from concord.train.npu.batch import GRADIENT_BITS, OperationSteps, TrainingBatch
from concord.train.npu.chains import ProductSource
from concord.train.npu.features import Features
from concord.train.npu.operations import TrainedProduct
from concord.train.npu.plan import (
    GRADIENT_DIGITS,
    GRADIENT_TOP,
    MANTISSA_TOP,
    WIDE_TOP,
    ProductMemory,
    digits_of,
)
from concord.train.npu.tensors import Gradient, GradientTiles, Held
from concord.train.npu.update import UpdateSteps


class ProductChain(NamedTuple):
    """A chain of products: its loops and source, where its results go, and biases that are added."""

    loops: ChainLoops
    source: ProductSource
    results: VectorPlace
    bias: VectorPlace | None = None


class ProductSteps(OperationSteps[TrainedProduct]):
    """A product with its bias; gradients of its input and of its parameters, and their updates.

    Members
    -------
    points, point_tiles : int
        Vectors of the gradient, and tiles whose lanes they are.
    point_order : bool
        Whether they are in these in the order of the vectors.
    """

    point_order = True

    def __init__(self, batch: TrainingBatch, step: TrainedProduct, updates: UpdateSteps):
        super().__init__(batch, step, updates)
        self.own: ProductMemory = self.memory.products[step.name]
        self.points = batch.points(step)
        self.point_tiles = -(-self.points // self.config.native)

    # Forward ------------------------------------------------------------------------------------------

    def forward(self) -> None:
        batch, step, writer = self.batch, self.step, self.writer
        self._x = self._read()
        result = batch.new(step.outputs, Mem.WIDE)
        written = list(self._products(result))
        writer.step(Op.T_MUL, result.register, self._x.register, y=self.own.weight_registers.value)
        writer.step(Op.T_BIAS, result.register, result.register, y=self.own.bias_registers.value)
        self._write(written, add=1, peak=1, tensor=result.register)
        self._in_range(result.register)
        batch.made(step.makes, result)

    def _read(self) -> Held:
        """The input as an activation, which is to be released."""
        return self.batch.share(self.batch.activation(self.step.reads[0]))

    def _products(self, result: Held) -> Iterator[ProductChain]:
        """Chains of the forward pass: over windows of images."""
        for o in range(self.own.output_tiles):
            loops, bias = self.batch.image_loops(self.step.outputs), VectorPlace(Mem.NARROW, Address(self.own.bias + o))
            yield ProductChain(loops, self._window_product(o), result.image(o), bias)

    def _windows(self, tile: int, words: int, cols: int, taps: ProductTaps) -> ProductSource:
        """Windows over the input, as :meth:`concord.train.npu.tensors.Held.windows`."""
        return self._x.windows(self.step.window, self.step.outputs, tile, words, cols, taps)

    # Backward -----------------------------------------------------------------------------------------

    def backward(self, gradient: Gradient) -> None:
        tiles, vectors = self._digits(gradient)
        if vectors is not None:
            self.batch.send(self.step.reads[0], self._input_gradient(vectors))
            self.batch.release(vectors)
        space, change = self.memory, self.memory.registers.take()
        changes = space.wide.take(2 * self.own.weight_words)
        self._weight_gradient(tiles, changes, change)
        self.updates.weight(self.own, changes, change)
        self._bias_gradient(tiles, changes, change)
        self.updates.bias(self.own, changes, change)
        space.wide.give_back(changes)
        space.registers.give_back(change)
        space.tiles.give_back(tiles.first)
        space.registers.give_back(tiles.register)
        self.forget()

    def forget(self) -> None:
        self.batch.release(self._x)

    def _digits(self, gradient: Gradient) -> tuple[GradientTiles, Held | None]:
        """The gradient, which is released: tiles for the weights, vectors for the product with them."""
        batch, writer, registers = self.batch, self.writer, self.memory.registers
        count, native, whole = digits_of(gradient.top), self.config.native, gradient.whole
        first = self.memory.tiles.take(self.own.output_tiles * count * self.point_tiles)
        vectors = self._digit_vectors() if self.step.back[0] else None
        planes = Planes(count, 1, self.point_tiles * native)
        if gradient.mask is not None:
            register = registers.take() if vectors is None else batch.share_register(vectors)
            writer.step(Op.T_FIT, register, whole.register, bits=GRADIENT_BITS, place=1)
            self._digit_chains(gradient, first, vectors, planes)
            batch.release_gradient(gradient)
            return self._gradient_tiles(first, gradient.top, register), vectors
        self._digit_chains(gradient, first, None, planes)
        if vectors is not None:
            writer.step(Op.T_FIT, vectors.register, whole.register, bits=GRADIENT_BITS, place=1)
            self._digit_chains(gradient, None, vectors, Planes(GRADIENT_DIGITS, 1))
        return self._gradient_tiles(first, gradient.top, batch.detach(whole)), vectors

    def _gradient_tiles(self, first: int, top: int, register: int) -> GradientTiles:
        count = digits_of(top)
        return GradientTiles(first, count, top, register, self.point_tiles, count * self.point_tiles)

    def _digit_vectors(self) -> Held:
        """A place for the digits of the gradient, zeros in between where windows leave out positions."""
        strides, outputs = self.step.window.strides, self.step.outputs
        if self.step.flat or strides == (1, 1):
            return self.batch.new(outputs, Mem.NARROW, GRADIENT_DIGITS)
        apart = [1 + (size - 1) * s for size, s in zip((outputs.height, outputs.width), strides, strict=True)]
        held = self.batch.new(Features(outputs.channels, *apart), Mem.NARROW, GRADIENT_DIGITS)
        if held.features != outputs:
            self.batch.clear(held)
        return held

    def _digit_chains(self, gradient: Gradient, tiles: int | None, vectors: Held | None, planes: Planes) -> None:
        """Write digits to tiles or to vectors, or to both."""
        batch, outputs, whole, mask = self.batch, self.step.outputs, gradient.whole, gradient.mask
        native, count = self.config.native, self.own.output_tiles
        output = planes.count * self.point_tiles * native
        first = 0 if tiles is None else tiles * native
        steps: dict[str, Any] = {"round1": int(mask is not None or tiles is None), "mask": int(mask is not None)}
        if self.point_order and (vectors is None or vectors.features == outputs):
            self.writer.chain(
                batch.loops(whole),
                whole.every(count),
                operand=None if mask is None else mask.every(count),
                vectors=None if vectors is None else vectors.every(count),
                columns=None if tiles is None else Address(first, output, 1),
                planes=planes,
                **steps,
            )
            return
        for o in range(count):
            self.writer.chain(
                batch.image_loops(outputs),
                whole.image(o),
                operand=None if mask is None else mask.image(o),
                vectors=None if vectors is None else vectors.image(o, (0, 0), self.step.window.strides),
                columns=None if tiles is None else self._point_columns(first + o * output),
                planes=planes,
                **steps,
            )

    def _input_gradient(self, digits: Held) -> Gradient:
        step, batch = self.step, self.batch
        result = batch.new(step.inputs, Mem.WIDE)
        self.writer.step(Op.T_MUL, result.register, digits.register, y=self.own.weight_registers.value)
        bound = GRADIENT_TOP * MANTISSA_TOP * self._input_terms
        self._intermediate(lambda: self._input_products(digits, result), result.register, bound)
        return Gradient(result, min(bound, WIDE_TOP))

    def _bias_gradient(self, tiles: GradientTiles, changes: int, change: int) -> None:
        self.writer.step(Op.T_MUL, change, tiles.register, y=self.memory.unscaled)
        place = VectorPlace(Mem.WIDE, Address(changes, 2))
        sums = ProductChain(ChainLoops(rows=self.own.output_tiles), self._sums(tiles), place)
        self._intermediate(lambda: [sums], change, tiles.top * self.points, own_exponent=False)

    def _intermediate(
        self, chains: Callable[[], Iterable[ProductChain]], register: int, bound: int, own_exponent: bool = True
    ) -> None:
        """Chains that make an intermediate; if it may have more bits than that, the greatest magnitude comes first.

        An exponent that is that of another tensor (``own_exponent`` false) is one of training.
        """
        if bound <= WIDE_TOP:
            self._write(chains(), peak=1, tensor=register)
            if own_exponent:
                self._in_range(register)
            return
        self._write(chains(), written=False, peak=1, tensor=register)
        self.writer.step(Op.T_FIT, register, register, bits=WIDE_BITS, place=1)
        self._write(chains(), round1=1)

    def _write(self, chains: Iterable[ProductChain], written: bool = True, **steps: Any) -> None:
        """Write chains, one after the other, with their results or without."""
        for loops, source, results, bias in chains:
            self.writer.chain(loops, source, operand=bias, vectors=results if written else None, **steps)

    def _joined(self, low: VectorPlace, high: VectorPlace, bits: int, change: int) -> None:
        """Sums of two wide integers for each weight, the second one so many bits higher, in the place of the first."""
        writer, loops, register = self.writer, self.own.loops, self.memory.registers.take()
        writer.step(Op.T_SET, register, exp=bits)
        writer.step(Op.T_MUL, register, register, y=change)
        writer.chain(loops, high, peak=1, tensor=register)
        writer.step(Op.T_BIAS, change, change, y=register)
        writer.rounded(loops, low, change, low, operand=high, add=1)
        self.memory.registers.give_back(register)

    # What kinds of products have of their own --------------------------------------------------------

    def _window_product(self, o: int) -> ProductSource:
        """Products of windows for a tile of outputs."""
        raise NotImplementedError

    @property
    def _input_terms(self) -> int:
        """Terms of a sum of the gradient of the input."""
        raise NotImplementedError

    def _input_products(self, digits: Held, result: Held) -> Iterator[ProductChain]:
        """Chains that make the gradient of the input."""
        for c in range(self.own.input_tiles):
            yield ProductChain(
                self.batch.image_loops(self.step.inputs), self._input_product(digits, c), result.image(c)
            )

    def _input_product(self, digits: Held, c: int) -> ProductSource:
        """Products of windows over the gradient for a tile of inputs."""
        raise NotImplementedError

    def _windows_back(self, digits: Held, o: int, tiles: Address, cols: int, taps: ProductTaps) -> ProductSource:
        """Products of windows over the gradient, from some tile of outputs on; their taps are those of the forward pass
        in the opposite order."""
        window, spread = self.step.window, digits.features
        (top, left), (kh, kw), (down, right) = window.place(0), window.kernel, window.dilations
        place = -top - (kh - 1) * down, -left - (kw - 1) * right
        return ProductSource(
            digits.image(o, place).address, tiles, cols, taps,
            window.chain_window(GRADIENT_DIGITS * self.own.output_tiles, spread.width),
            Pad(*place, 1, 1, spread.height, spread.width),
        )  # fmt: skip

    def _weight_gradient(self, tiles: GradientTiles, changes: int, change: int) -> None:
        """The gradient of the weights, wide integers in the order of their words."""
        raise NotImplementedError

    def _sums(self, tiles: GradientTiles) -> ProductSource:
        """Sums of the gradient over all points, with tiles of outputs as rows of a chain."""
        raise NotImplementedError

    def _point_columns(self, first: int) -> Address:
        """Columns of tiles for the points of an image: samples, columns and rows."""
        outputs = self.step.outputs
        return Address(first, outputs.positions, 1, outputs.width)


class DenseSteps(ProductSteps):
    """A product in which every output reads all inputs of its window."""

    def _window_product(self, o: int) -> ProductSource:
        own, steps = self.own, self.config.steps
        first = (own.tiles + o * own.taps * own.input_tiles) * steps
        return self._windows(0, first, own.input_tiles, ProductTaps(vector=1, matrix=steps))

    @property
    def _input_terms(self) -> int:
        return self.step.outputs.channels * (1 if self.step.flat else self.step.window.taps)

    def _input_products(self, digits: Held, result: Held) -> Iterator[ProductChain]:
        own, rows, count = self.own, self.own.point_rows, GRADIENT_DIGITS
        if not self.step.flat:
            yield from super()._input_products(digits, result)
            return
        source = ProductSource(
            Address(digits.first, 0, count * own.output_tiles),
            self._transposed(0, 1),
            own.output_tiles,
            self._digit_taps(rows),
        )
        yield ProductChain(ChainLoops(rows, self.points), source, result.every(rows))

    def _input_product(self, digits: Held, c: int) -> ProductSource:
        own = self.own
        return self._windows_back(digits, 0, self._transposed(c), own.output_tiles, self._digit_taps(own.input_tiles))

    def _transposed(self, tile: int, row: int = 0) -> Address:
        """Words of the tiles of the weights with inputs as rows."""
        assert self.own.transposed_tiles is not None
        return Address((self.own.transposed_tiles + tile) * self.config.steps, row * self.config.steps)

    def _digit_taps(self, tiles: int) -> ProductTaps:
        """Columns of a product with vectors of digits, whose tiles are so many apart."""
        count = GRADIENT_DIGITS
        return ProductTaps(vector=count, vector_digit=1, matrix=tiles * self.config.steps, digits=count)

    def _weight_gradient(self, tiles: GradientTiles, changes: int, change: int) -> None:
        own, space = self.own, self.memory
        place = VectorPlace(Mem.WIDE, own.words(changes, 2))
        self.writer.step(Op.T_MUL, change, tiles.register, y=self._x.register)
        low = None if self.step.flat else _low_digits(tiles, self.points)
        if low is not None:
            upper = space.wide.take(2 * own.weight_words)
            high = VectorPlace(Mem.WIDE, own.words(upper, 2))
            parts = range(low), range(low, tiles.digits)
            self._write(self._changes(*zip(map(tiles.part, parts), (place, high), strict=True)))
            self._joined(place, high, low * DIGIT_BITS, change)
            space.wide.give_back(upper)
            return
        bound = tiles.top * MANTISSA_TOP * self.points
        self._intermediate(lambda: self._changes((tiles, place)), change, bound)

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        """Sums over points of gradients times the input, each to the words of the weights there.

        What chains read is written as they are asked for, and given back after the last one.
        """
        raise NotImplementedError

    def _sums(self, tiles: GradientTiles) -> ProductSource:
        return tiles.over_points(Address(self.memory.ones[self.points]), self.config.steps)


def _low_digits(tiles: GradientTiles, points: int) -> int | None:
    """Number of the lowest digits of a gradient that are multiplied apart, so that sums over points have 32 bits.

    ``None`` if no sums have more, and if those of two parts may have.
    """
    most = WIDE_TOP // (MANTISSA_TOP * points)
    splits = range(1, tiles.digits) if tiles.top > most else ()
    return next(
        (low for low in splits if max(-digit_span(low)[0], (tiles.top >> low * DIGIT_BITS) + 1) <= most), None
    )  # fmt: skip
