"""Inputs of products as they are read: forward, and with points as lanes for the gradient of their weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from concord.program.chains import Address, ChainLoops, Pad
from concord.program.integers import ProductTaps
from concord.spec.isa import Mem, Op
from concord.train.npu.batch import ACTIVATION_BITS, TrainingBatch, Transposition
from concord.train.npu.chains import ProductSource, VectorPlace
from concord.train.npu.gradient_tiles import GradientTiles
from concord.train.npu.plan import ProductMemory
from concord.train.npu.tensors import Held


class ForwardProduct(NamedTuple):
    """A chain of the forward pass: its loops, products, biases and results."""

    loops: ChainLoops
    source: ProductSource
    bias: Address
    results: VectorPlace


class ProductInput:
    """The input of a product.

    Parameters
    ----------
    batch : TrainingBatch
        On its way.
    own : ProductMemory
        Of the product.
    x : Held
        The input, for this one to release.
    """

    def __init__(self, batch: TrainingBatch, own: ProductMemory, x: Held):
        self.batch, self.own, self.step, self.x = batch, own, own.step, x
        self.writer, self.config, self.memory = batch.writer, batch.config, batch.memory

    @property
    def register(self) -> int:
        """Tensor register of the input."""
        return self.x.register

    def products(self, result: Held) -> Iterator[ForwardProduct]:
        """Chains of the forward pass."""
        raise NotImplementedError

    def read(self) -> None:
        """The forward pass is over."""

    def release(self) -> None:
        """Nobody needs it any more."""
        raise NotImplementedError


class DenseInput(ProductInput):
    """The input of a product in which every output reads all inputs of its window."""

    def changes(self, *products: tuple[GradientTiles, VectorPlace | None], **steps: Any) -> None:
        """Sums over points of gradients times the input, each to the words of the weights there."""
        raise NotImplementedError


class PointInput(DenseInput):
    """An input whose lanes become points for the gradient of the weights."""

    def __init__(self, batch: TrainingBatch, own: ProductMemory, x: Held):
        super().__init__(batch, own, x)
        self.points = batch.points(own.step)
        self.point_tiles = -(-self.points // self.config.native)


class FlatInput(PointInput):
    """All vectors of a point side by side; transposed at the end of the forward pass."""

    @property
    def rows(self) -> int:
        """Vectors of a point."""
        return self.own.point_rows

    @property
    def lanes(self) -> int:
        """Lanes of a vector that are transposed."""
        return self.config.native if self.rows > 1 else self.own.channels

    def products(self, result: Held) -> Iterator[ForwardProduct]:
        own, steps, rows = self.own, self.config.steps, self.rows
        self._write_rows()
        source = ProductSource(
            Address(self.x.first, 0, rows),
            Address(own.tiles * steps, rows * steps),
            rows,
            ProductTaps(vector=1, matrix=steps),
        )
        loops = ChainLoops(own.output_tiles, self.points)
        yield ForwardProduct(loops, source, Address(own.bias, 1), result.every(own.output_tiles))

    def _write_rows(self) -> None:
        """The input as rows of tiles, ``[vector of a point][tile of points]``, to be transposed."""
        batch, rows, x = self.batch, self.rows, self.x
        if x.rows is not None and x.rows[1] == rows:
            tiles, x.rows = x.rows[0], None
        else:
            tiles = self.memory.tiles.take(rows * self.point_tiles)
            numbers = batch.point_numbers(self.points, tiles)
            self.writer.chain(ChainLoops(rows, self.points), x.every(rows), tile_rows=numbers)
        self._transposition = Transposition(self.points, self.lanes, tiles, rows)
        batch.waiting.append(self._transposition)

    def read(self) -> None:
        self._register = self.batch.detach(self.x)

    def changes(self, *products: tuple[GradientTiles, VectorPlace | None], **steps: Any) -> None:
        own, count = self.own, self.point_tiles
        tap = own.tap_lanes * count if own.taps > 1 else 0
        for tiles, place in products:
            source = tiles.over_points(Address(self._transposition.vectors, 0, count, tap), self.config.steps)
            self.writer.chain(own.loops, source, vectors=place, **steps)

    def release(self) -> None:
        self.memory.narrow.give_back(self._transposition.vectors)
        self.memory.registers.give_back(self._register)


class PackedInput(FlatInput):
    """All elements of a window in one vector; if they do not come so, a product with tiles that select them does it."""

    def __init__(self, batch: TrainingBatch, own: ProductMemory, x: Held):
        super().__init__(batch, own, x if own.selection is None else _packed(batch, own, x))

    @property
    def lanes(self) -> int:
        return self.own.taps * self.own.channels


def _packed(batch: TrainingBatch, own: ProductMemory, x: Held) -> Held:
    """Inputs that all windows meet, as vectors and as rows of tiles of points; the input is released."""
    step, outputs, config = own.step, own.step.outputs, batch.config
    window, points = step.window, batch.points(step)
    assert own.selection is not None
    met = batch.new(own.windows, Mem.NARROW)
    batch.writer.step(Op.T_FIT, met.register, x.register, bits=ACTIVATION_BITS, place=1)
    met.rows = batch.memory.tiles.take(-(-points // config.native)), 1
    source = ProductSource(
        x.image(0, window.place(0), window.strides).address,
        Address(own.selection * config.steps),
        taps=ProductTaps(matrix=config.steps),
        window=window.chain_window(1, step.inputs.width),
        pad=window.chain_pad(step.inputs, outputs),
    )
    rows = Address(met.rows[0] * config.native, outputs.positions, 1, outputs.width)
    batch.writer.chain(batch.image_loops(outputs), source, vectors=met.image(0), tile_rows=rows)
    batch.release(x)
    return met


def window_products(read: ProductInput, result: Held) -> Iterator[ForwardProduct]:
    """Chains of the forward pass over windows of images."""
    own, step, steps, window = read.own, read.step, read.config.steps, read.step.window
    output = own.taps * own.input_tiles * steps
    for o in range(own.output_tiles):
        source = ProductSource(
            read.x.image(0, window.place(0), window.strides).address,
            Address(own.tiles * steps + o * output),
            own.input_tiles,
            ProductTaps(vector=1, matrix=steps),
            window.chain_window(own.input_tiles, step.inputs.width),
            window.chain_pad(step.inputs, step.outputs),
        )
        yield ForwardProduct(read.batch.image_loops(step.outputs), source, Address(own.bias + o), result.image(o))


class WindowInput(PointInput):
    """Windows over images; tap by tap what it has met is transposed when the weights ask for it."""

    def products(self, result: Held) -> Iterator[ForwardProduct]:
        return window_products(self, result)

    def changes(self, *products: tuple[GradientTiles, VectorPlace | None], **steps: Any) -> None:
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
            met = self.x.image(c, place, window.strides)
            rows = Address((tiles + c * self.point_tiles) * native, outputs.positions, 1, outputs.width)
            if window.inside(tap, inputs, outputs):
                self.writer.chain(loops, met, tile_rows=rows)
            else:
                pad = Pad(*place, *window.strides, inputs.height, inputs.width)
                tile = Address(self.memory.identity * self.config.steps)
                self.writer.chain(loops, ProductSource(met.address, tile, pad=pad), tile_rows=rows)

    def release(self) -> None:
        self.batch.release(self.x)


def _of_tap(place: VectorPlace | None, tap: int) -> VectorPlace | None:
    """Words of a tap in those of the weights."""
    if place is None:
        return None
    return VectorPlace(
        place.mem, replace(place.address, base=place.address.base + tap * place.address.outer, outer=0)
    )  # fmt: skip


def product_input(batch: TrainingBatch, own: ProductMemory, x: Held) -> PointInput:
    """The way that is shortest."""
    kind = PackedInput if own.packed else FlatInput if own.step.flat else WindowInput
    return kind(batch, own, x)
