"""Products of vectors side by side, whose inputs are transposed at the end of the forward pass."""

from __future__ import annotations

from collections.abc import Iterator

from concord.program.chains import Address, VectorPlace
from concord.program.integers import ProductTaps
from concord.spec.isa import Mem
from concord.train.npu.batch import ACTIVATION_BITS, Transposition
from concord.train.npu.chains import ProductSource
from concord.train.npu.products import DenseSteps, ProductChain
from concord.train.npu.tensors import GradientTiles, Held


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
        bias = VectorPlace(Mem.NARROW, Address(own.bias.first, 1))
        yield ProductChain(self.batch.loops(result), source, result.every(result.tiles), bias)

    def _write_rows(self, rows: int) -> None:
        """The input as rows of tiles, ``[vector of a point][tile of points]``, to be transposed."""
        batch, x = self.batch, self._x
        if x.rows is not None and x.rows[1] == rows:
            tiles, x.rows = x.rows[0], None
        else:
            tiles = self.memory.tiles.take(rows * self.point_tiles)
            batch.every(x, rows=rows, tile_rows=batch.point_numbers(self.points, tiles))
        self._transposition = Transposition(self.points, self.lanes, tiles, rows)
        batch.waiting.append(self._transposition)

    def _changes(self, *products: tuple[GradientTiles, VectorPlace]) -> Iterator[ProductChain]:
        own, count = self.own, self.point_tiles
        tap = own.tap_lanes * count if own.taps > 1 else 0
        for tiles, place in products:
            source = tiles.over_points(Address(self._transposition.vectors, 0, count, tap))
            yield ProductChain(own.weight.loops, source, place)

    def forget(self) -> None:
        self.memory.narrow.give_back(self._transposition.vectors)
        self.memory.registers.give_back(self._x.register)


class PackedSteps(FlatSteps):
    """All elements of a window in one vector; if they do not come so, a product with tiles that select them does it."""

    @property
    def lanes(self) -> int:
        return self.own.windows.channels

    def _read(self) -> Held:
        own, batch, native = self.own, self.batch, self.config.native
        self._x = x = super()._read()
        if own.selection is None:
            return x
        met = batch.new(own.windows, Mem.NARROW)
        self.writer.fit(met.register, x.register, ACTIVATION_BITS)
        met.rows = self.memory.tiles.take(self.point_tiles), 1
        source = self._windows(0, own.selection * self.config.steps, 1, ProductTaps(matrix=self.config.steps))
        rows = self._point_columns(met.rows[0] * native)
        self.writer.chain(batch.image_loops(self.step.outputs), source, vectors=met.image(0), tile_rows=rows)
        batch.release(x)
        return met
