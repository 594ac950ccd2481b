"""Convolutions and products with vectors on the NPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from concord.program.chains import Address, ChainLoops, Pad
from concord.program.integers import Planes, ProductTaps
from concord.spec.integers import DIGIT_BITS, WIDE_BITS, digit_span
from concord.spec.isa import Mem, Op
from concord.train.npu.batch import GRADIENT_BITS, TrainingBatch
from concord.train.npu.chains import ProductSource, VectorPlace
from concord.train.npu.features import Features
from concord.train.npu.gradient_tiles import GradientTiles
from concord.train.npu.operations import TrainedProduct
from concord.train.npu.plan import (
    GRADIENT_DIGITS,
    GRADIENT_TOP,
    MANTISSA_TOP,
    WIDE_TOP,
    ProductMemory,
    digits_of,
)
from concord.train.npu.steps import OperationSteps
from concord.train.npu.tensors import Gradient, Held
from concord.train.npu.update import UpdateSteps


class ForwardProduct(NamedTuple):
    """A chain of the forward pass: its loops, products, biases and results."""

    loops: ChainLoops
    source: ProductSource
    bias: Address
    results: VectorPlace


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
        for loops, source, bias, place in written:
            writer.chain(
                loops, source, operand=VectorPlace(Mem.NARROW, bias), vectors=place, add=1, peak=1,
                tensor=result.register,
            )  # fmt: skip
        self._in_range(result.register)
        batch.made(step.makes, result)

    def _read(self) -> Held:
        """The input as an activation, which is to be released."""
        return self.batch.share(self.batch.activation(self.step.reads[0]))

    def _products(self, result: Held) -> Iterator[ForwardProduct]:
        """Chains of the forward pass: over windows of images."""
        for o in range(self.own.output_tiles):
            loops = self.batch.image_loops(self.step.outputs)
            yield ForwardProduct(loops, self._window_product(o), Address(self.own.bias + o), result.image(o))

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
        parts = list(self._input_products(digits, result))

        def write(written: int = 0, **steps: Any) -> None:
            for loops, source, place in parts:
                self.writer.chain(loops, source, vectors=place if written else None, **steps)

        self._intermediate(write, result.register, bound)
        return Gradient(result, min(bound, WIDE_TOP))

    def _bias_gradient(self, tiles: GradientTiles, changes: int, change: int) -> None:
        self.writer.step(Op.T_MUL, change, tiles.register, y=self.memory.unscaled)
        source, place = self._sums(tiles), VectorPlace(Mem.WIDE, Address(changes, 2))

        def write(written: int = 0, **steps: Any) -> None:
            self.writer.chain(
                ChainLoops(rows=self.own.output_tiles), source, vectors=place if written else None, **steps
            )

        self._intermediate(write, change, tiles.top * self.points, own_exponent=False)

    def _intermediate(self, write: Callable[..., None], register: int, bound: int, own_exponent: bool = True) -> None:
        """Chains that make an intermediate; if it may have more bits than that, the greatest magnitude comes first.

        An exponent that is that of another tensor (``own_exponent`` false) is one of training.
        """
        if bound <= WIDE_TOP:
            write(written=1, peak=1, tensor=register)
            if own_exponent:
                self._in_range(register)
            return
        write(peak=1, tensor=register)
        self.writer.step(Op.T_FIT, register, register, bits=WIDE_BITS, place=1)
        write(written=1, round1=1)

    def _joined(self, low: VectorPlace, high: VectorPlace, bits: int, change: int) -> None:
        """Sums of two wide integers for each weight, the second one so many bits higher, in the place of the first."""
        writer, loops, register = self.writer, self.own.loops, self.memory.registers.take()
        writer.step(Op.T_SET, register, exp=bits)
        writer.step(Op.T_MUL, register, register, y=change)
        writer.chain(loops, high, peak=1, tensor=register)
        writer.step(Op.T_BIAS, change, change, y=register)
        writer.chain(loops, low, operand=high, add=1, peak=1, tensor=change)
        writer.step(Op.T_FIT, change, change, bits=WIDE_BITS, place=1)
        writer.chain(loops, low, operand=high, vectors=low, add=1, round1=1)
        self.memory.registers.give_back(register)

    # What kinds of products have of their own --------------------------------------------------------

    def _window_product(self, o: int) -> ProductSource:
        """Products of windows for a tile of outputs."""
        raise NotImplementedError

    @property
    def _input_terms(self) -> int:
        """Terms of a sum of the gradient of the input."""
        raise NotImplementedError

    def _input_products(self, digits: Held, result: Held) -> Iterator[tuple[ChainLoops, ProductSource, VectorPlace]]:
        """Chains that make the gradient of the input."""
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

    def _input_products(self, digits: Held, result: Held) -> Iterator[tuple[ChainLoops, ProductSource, VectorPlace]]:
        own, step, steps, count = self.own, self.step, self.config.steps, GRADIENT_DIGITS
        assert own.transposed_tiles is not None
        first = own.transposed_tiles * steps
        if step.flat:
            rows = self.own.point_rows
            taps = ProductTaps(vector=count, vector_digit=1, matrix=rows * steps, digits=count)
            source = ProductSource(
                Address(digits.first, 0, count * own.output_tiles), Address(first, steps), own.output_tiles, taps
            )
            yield ChainLoops(rows, self.points), source, result.every(rows)
            return
        taps = ProductTaps(vector=count, vector_digit=1, matrix=own.input_tiles * steps, digits=count)
        for c in range(own.input_tiles):
            source = self._windows_back(digits, 0, Address(first + c * steps), own.output_tiles, taps)
            yield self.batch.image_loops(step.inputs), source, result.image(c)

    def _weight_gradient(self, tiles: GradientTiles, changes: int, change: int) -> None:
        own, space = self.own, self.memory
        place = VectorPlace(Mem.WIDE, own.words(changes, 2))
        self.writer.step(Op.T_MUL, change, tiles.register, y=self._x.register)
        low = None if self.step.flat else _low_digits(tiles, self.points)
        if low is not None:
            upper = space.wide.take(2 * own.weight_words)
            high = VectorPlace(Mem.WIDE, own.words(upper, 2))
            parts = range(low), range(low, tiles.digits)
            self._changes(*zip(map(tiles.part, parts), (place, high), strict=True))
            self._joined(place, high, low * DIGIT_BITS, change)
            space.wide.give_back(upper)
            return

        def write(written: int = 0, **steps: Any) -> None:
            self._changes((tiles, place if written else None), **steps)

        self._intermediate(write, change, tiles.top * MANTISSA_TOP * self.points)

    def _changes(self, *products: tuple[GradientTiles, VectorPlace | None], **steps: Any) -> None:
        """Sums over points of gradients times the input, each to the words of the weights there."""
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
