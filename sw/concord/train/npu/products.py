"""Products with weights on the NPU, those of vectors side by side among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from concord.compiler.ir.layers import LayerWindow
from concord.program.chains import Address, ChainLoops, VectorPlace
from concord.program.integers import Planes, ProductTaps
from concord.spec.integers import DIGIT_BITS, digit_span, digits_of
from concord.spec.isa import Mem, Op
from concord.train.npu.batch import OperationSteps, TrainingBatch, Transposition
from concord.train.npu.chains import ProductSource
from concord.train.npu.operations import TrainedOperation
from concord.train.npu.plan import ACTIVATION_BITS, GRADIENT_BITS, GRADIENT_DIGITS, GRADIENT_TOP, MANTISSA_TOP, WIDE_TOP
from concord.train.npu.tensors import Gradient, GradientTiles, Held


class ProductChain(NamedTuple):
    """A chain of products: its loops and source, where its results go, and biases that are added."""

    loops: ChainLoops
    source: ProductSource
    results: VectorPlace
    bias: VectorPlace | None = None


class ProductSteps(OperationSteps):
    """A product with its bias; gradients of its input and of its parameters, and their updates.

    Members
    -------
    points, point_tiles : int
        Vectors of the gradient, and tiles whose lanes they are.
    point_order : bool
        Whether they are in these in the order of the vectors.
    """

    point_order = True

    def __init__(self, batch: TrainingBatch, step: TrainedOperation):
        super().__init__(batch, step)
        self.own = self.memory.products[step.name]
        self.points = batch.size * step.outputs.positions
        self.point_tiles = self.memory.tiles(self.points)

    # Forward ------------------------------------------------------------------------------------------

    def forward(self) -> None:
        batch, step, writer = self.batch, self.step, self.writer
        self._x = self._read()
        result = batch.new(step.outputs, Mem.WIDE)
        written = list(self._products(result))
        writer.step(Op.T_MUL, result.register, self._x.register, self.own.weight.value.register)
        writer.step(Op.T_BIAS, result.register, result.register, self.own.bias.value.register)
        self._write(written, add=1, peak=1, tensor=result.register)
        writer.fit(result.register, result.register)
        batch.made(step.makes, result)

    def _read(self) -> Held:
        """The input as an activation, which is to be released."""
        return self.batch.share(self.batch.activation(self.step.reads[0]))

    def _products(self, result: Held) -> Iterator[ProductChain]:
        """Chains of the forward pass: over windows of images."""
        step, own, steps, k = self.step, self.own, self.config.steps, self.step.inputs.tiles
        loops = self.batch.image_loops(step.outputs)
        taps = ProductTaps(matrix=result.tiles * steps) if step.depthwise else ProductTaps(vector=1, matrix=steps)
        for o in range(result.tiles):
            bias = VectorPlace(Mem.NARROW, Address(own.bias.value.first + o))
            c, first, cols = (o, own.tiles + o, 1) if step.depthwise else (0, own.tiles + o * step.window.taps * k, k)
            source = self._x.windows(step.window, step.outputs.size, c, first * steps, cols, taps)
            yield ProductChain(loops, source, result.image(o), bias)

    # Backward -----------------------------------------------------------------------------------------

    def backward(self, gradient: Gradient) -> None:
        tiles, vectors = self._digits(gradient)
        if vectors is not None:
            self.batch.send(self.step.reads[0], self._input_gradient(vectors))
            self.batch.release(vectors)
        change = self.batch.new(self.own.weight.value.features, Mem.WIDE, samples=1)
        self._weight_gradient(tiles, change)
        self.batch.updates.weight(self.own, change)
        change.features = self.own.bias.value.features
        self._bias_gradient(tiles, change)
        self.batch.updates.bias(self.own, change)
        self.batch.release(change)
        self.memory.tile_space.give_back(tiles.first)
        self.memory.registers.give_back(tiles.register)
        self.forget()

    def forget(self) -> None:
        self.batch.release(self._x)

    def _digits(self, gradient: Gradient) -> tuple[GradientTiles, Held | None]:
        """The gradient, which is released: tiles for the weights, vectors for the product with them."""
        batch, writer, registers = self.batch, self.writer, self.memory.registers
        count, whole = digits_of(gradient.top), gradient.whole
        first = self.memory.tile_space.take(whole.tiles * count * self.point_tiles)
        vectors = self._digit_vectors() if self.step.back[0] else None
        planes = Planes(count, 1, self.point_tiles * self.config.native)
        if gradient.mask is not None:
            register = registers.take() if vectors is None else registers.share(vectors.register)
            writer.fit(register, whole.register, GRADIENT_BITS)
            self._digit_chains(gradient, first, vectors, planes)
            batch.release(*gradient.parts)
        else:
            self._digit_chains(gradient, first, None, planes)
            if vectors is not None:
                writer.fit(vectors.register, whole.register, GRADIENT_BITS)
                self._digit_chains(gradient, None, vectors, Planes(GRADIENT_DIGITS, 1))
            register = batch.detach(whole)
        apart = count * self.point_tiles
        return GradientTiles(first, count, gradient.top, register, self.point_tiles, apart, self.config.steps), vectors

    def _digit_vectors(self) -> Held:
        """A place for the digits of the gradient, zeros in between where windows leave out positions."""
        outputs, spread = self.step.outputs, self.step.outputs
        if not self.step.flat:
            height, width = (1 + (n - 1) * s for n, s in zip(outputs.size, self.step.window.stride, strict=True))
            spread = replace(outputs, height=height, width=width)
        held = self.batch.new(spread, Mem.NARROW, GRADIENT_DIGITS)
        if spread != outputs:
            self.batch.clear(held)
        return held

    def _digit_chains(self, gradient: Gradient, tiles: int | None, vectors: Held | None, planes: Planes) -> None:
        """Write digits to tiles or to vectors, or to both."""
        batch, outputs, whole, mask = self.batch, self.step.outputs, gradient.whole, gradient.mask
        native = self.config.native
        output = planes.count * self.point_tiles * native
        first = 0 if tiles is None else tiles * native
        steps: dict[str, Any] = {"round1": int(mask is not None or tiles is None), "mask": int(mask is not None)}
        if self.point_order and (vectors is None or vectors.features == outputs):
            columns = None if tiles is None else Address(first, output, 1)
            batch.every(whole, vectors, mask, columns=columns, planes=planes, **steps)
            return
        spread = LayerWindow(stride=self.step.window.stride)
        for o in range(whole.tiles):
            self.writer.chain(
                batch.image_loops(outputs),
                whole.image(o),
                operand=None if mask is None else mask.image(o),
                vectors=None if vectors is None else vectors.image(o, spread),
                columns=None if tiles is None else self._point_columns(first + o * output),
                planes=planes,
                **steps,
            )

    def _input_gradient(self, digits: Held) -> Gradient:
        step, result = self.step, self.batch.new(self.step.inputs, Mem.WIDE)
        self.writer.step(Op.T_MUL, result.register, digits.register, self.own.weight.value.register)
        terms = (1 if step.depthwise else step.outputs.channels) * (1 if step.flat else self.step.window.taps)
        bound = GRADIENT_TOP * MANTISSA_TOP * terms
        self._intermediate(lambda: self._input_products(digits, result), result.register, bound)
        return Gradient(result, min(bound, WIDE_TOP))

    def _input_products(self, digits: Held, result: Held) -> Iterator[ProductChain]:
        """Chains that make the gradient of the input: over windows of the gradient.

        The taps of diagonal tiles, which both passes read, are read from the last to the first.
        """
        step, own, steps, tiles = self.step, self.own, self.config.steps, digits.tiles
        window, loops = step.window.reversed(digits.features.size), self.batch.image_loops(step.inputs)
        taps, first, cols = self._digit_taps(result.tiles), own.transposed_tiles, tiles
        if first is None:
            taps = ProductTaps(vector_digit=1, matrix=-tiles * steps, digits=GRADIENT_DIGITS)
            first, cols = own.tiles + (step.window.taps - 1) * tiles, 1
        for c in range(result.tiles):
            source = digits.windows(window, step.inputs.size, c * step.depthwise, (first + c) * steps, cols, taps)
            yield ProductChain(loops, source, result.image(c))

    def _digit_taps(self, tiles: int) -> ProductTaps:
        """Columns of a product with vectors of digits, whose tiles are so many apart."""
        count = GRADIENT_DIGITS
        return ProductTaps(vector=count, vector_digit=1, matrix=tiles * self.config.steps, digits=count)

    def _bias_gradient(self, tiles: GradientTiles, change: Held) -> None:
        self.writer.step(Op.T_MUL, change.register, tiles.register, self.memory.unscaled)
        place = VectorPlace(Mem.WIDE, Address(change.first, 2))
        sums = ProductChain(ChainLoops(rows=self.step.outputs.tiles), self._sums(tiles), place)
        self._intermediate(lambda: [sums], change.register, tiles.top * self.points, own_exponent=False)

    def _intermediate(
        self, chains: Callable[[], Iterable[ProductChain]], register: int, bound: int, own_exponent: bool = True
    ) -> None:
        """Chains that make an intermediate; if it may have more bits than that, the greatest magnitude comes first.

        An exponent that is that of another tensor (``own_exponent`` false) is one of training.
        """
        if bound <= WIDE_TOP:
            self._write(chains(), peak=1, tensor=register)
            if own_exponent:
                self.writer.fit(register, register)
            return
        self._write(chains(), written=False, peak=1, tensor=register)
        self.writer.fit(register, register)
        self._write(chains(), round1=1)

    def _write(self, chains: Iterable[ProductChain], written: bool = True, **steps: Any) -> None:
        """Write chains, one after the other, with their results or without."""
        for loops, source, results, bias in chains:
            self.writer.chain(loops, source, operand=bias, vectors=results if written else None, **steps)

    def _joined(self, low: Held, high: Held, bits: int) -> None:
        """Sums of two wide integers for each weight, the second one so many bits higher, in the place of the first.

        The second ones are released.
        """
        writer, loops, register = self.writer, low.features.loops, high.register
        writer.step(Op.T_SET, register, exp=bits)
        writer.step(Op.T_MUL, register, register, low.register)
        writer.chain(loops, high.vectors, peak=1, tensor=register)
        writer.step(Op.T_BIAS, low.register, low.register, register)
        writer.rounded(loops, low.vectors, low.register, low.vectors, operand=high.vectors, add=1)
        self.batch.release(high)

    # What kinds of products have of their own --------------------------------------------------------

    def _weight_gradient(self, tiles: GradientTiles, change: Held) -> None:
        """The gradient of the weights, wide integers with their layout."""
        raise NotImplementedError

    def _sums(self, tiles: GradientTiles) -> ProductSource:
        """Sums of the gradient over all points, with tiles of outputs as rows of a chain."""
        return tiles.over_points(Address(self.memory[f"ones.{self.points}"]))

    def _point_columns(self, first: int) -> Address:
        """Columns of tiles for the points of an image: samples, columns and rows."""
        outputs = self.step.outputs
        return Address(first, outputs.positions, 1, outputs.width)


class DenseSteps(ProductSteps):
    """A product in which every output reads all inputs of its window."""

    def _weight_gradient(self, tiles: GradientTiles, change: Held) -> None:
        self.writer.step(Op.T_MUL, change.register, tiles.register, self._x.register)
        low = None if self.step.flat else _low_digits(tiles, self.points)
        if low is None:
            bound = tiles.top * MANTISSA_TOP * self.points
            self._intermediate(lambda: self._changes((tiles, change.vectors)), change.register, bound)
            return
        high = self.batch.new(change.features, Mem.WIDE, samples=1)
        parts = tiles.part(range(low)), tiles.part(range(low, tiles.digits))
        self._write(self._changes(*zip(parts, (change.vectors, high.vectors), strict=True)))
        self._joined(change, high, low * DIGIT_BITS)

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        """Sums over points of gradients times the input, each to the words of the weights there.

        What chains read is written as they are asked for, and given back after the last one.
        """
        raise NotImplementedError


def _low_digits(tiles: GradientTiles, points: int) -> int | None:
    """Number of the lowest digits of a gradient that are multiplied apart, so that sums over points have 32 bits.

    ``None`` if no sums have more, and if those of two parts may have.
    """
    most = WIDE_TOP // (MANTISSA_TOP * points)
    for low in range(1, tiles.digits) if tiles.top > most else ():
        if max(-digit_span(low)[0], (tiles.top >> low * DIGIT_BITS) + 1) <= most:
            return low
    return None


class FlatSteps(DenseSteps):
    """A product of all vectors of a point, side by side; points are lanes for the gradient of the weights."""

    @property
    def lanes(self) -> int:
        """Lanes of a vector that are transposed."""
        return self.config.native if self.own.point_rows > 1 else self.step.inputs.channels

    def forward(self) -> None:
        super().forward()
        self.batch.detach(self._x)

    def _products(self, result: Held) -> Iterator[ProductChain]:
        own, steps, rows = self.own, self.config.steps, self.own.point_rows
        self._write_rows(rows)
        words = Address(own.tiles * steps, rows * steps)
        source = ProductSource(Address(self._x.first, 0, rows), words, rows, ProductTaps(vector=1, matrix=steps))
        bias = VectorPlace(Mem.NARROW, Address(own.bias.value.first, 1))
        yield ProductChain(result.loops(), source, result.every(), bias)

    def _input_products(self, digits: Held, result: Held) -> Iterator[ProductChain]:
        rows, tiles, steps = self.own.point_rows, digits.tiles, self.config.steps
        if not self.step.flat:
            yield from super()._input_products(digits, result)
            return
        assert self.own.transposed_tiles is not None
        words = Address(self.own.transposed_tiles * steps, steps)
        vectors = Address(digits.first, 0, GRADIENT_DIGITS * tiles)
        source = ProductSource(vectors, words, tiles, self._digit_taps(rows))
        yield ProductChain(ChainLoops(rows, self.points), source, result.every(rows))

    def _write_rows(self, rows: int) -> None:
        """The input as rows of tiles, ``[vector of a point][tile of points]``, to be transposed."""
        batch, x = self.batch, self._x
        if x.rows is not None and x.rows[1] == rows:
            tiles, x.rows = x.rows[0], None
        else:
            tiles = self.memory.tile_space.take(rows * self.point_tiles)
            batch.every(x, rows=rows, tile_rows=batch.point_numbers(self.points, tiles))
        self._transposition = Transposition(self.points, self.lanes, tiles, rows)
        batch.waiting.append(self._transposition)

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        own, count = self.own, self.point_tiles
        tap = own.tap_lanes * count if self.step.window.taps > 1 else 0
        for tiles, place in products:
            source = tiles.over_points(Address(self._transposition.vectors, 0, count, tap))
            yield ProductChain(own.weight.value.features.loops, source, place)

    def forget(self) -> None:
        self.memory.space(Mem.NARROW).give_back(self._transposition.vectors)
        self.memory.registers.give_back(self._x.register)


class PackedSteps(FlatSteps):
    """All elements of a window in one vector; if they do not come so, a product with tiles that select them does it."""

    @property
    def lanes(self) -> int:
        return self.step.windows.channels

    def _read(self) -> Held:
        own, batch, native = self.own, self.batch, self.config.native
        self._x = x = super()._read()
        if own.selection is None:
            return x
        met = batch.new(self.step.windows, Mem.NARROW)
        self.writer.fit(met.register, x.register, ACTIVATION_BITS)
        met.rows = self.memory.tile_space.take(self.point_tiles), 1
        steps, outputs = self.config.steps, self.step.outputs
        source = x.windows(self.step.window, outputs.size, 0, own.selection * steps, 1, ProductTaps(matrix=steps))
        rows = self._point_columns(met.rows[0] * native)
        self.writer.chain(batch.image_loops(outputs), source, vectors=met.image(0), tile_rows=rows)
        batch.release(x)
        return met
