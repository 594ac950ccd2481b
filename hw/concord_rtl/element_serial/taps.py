"""The inner loops of a chain in an element-serial configuration."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import clog2
from concord_rtl.element_serial.loops import IMAGE_BITS, near_shape
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.pipe.layouts import Reduction, chain_layout, matrix_addr_bits, vector_addr_bits
from concord_rtl.pipe.loop_address import LoopAddress


class TapLoops(NpuUnit):
    """Walks window taps, column tiles and parts of a tile for one element of a vector.

    Parameters
    ----------
    config : NpuConfig
    """

    chain = Input(lambda self: chain_layout(self.config), "The chain, held while it is walked.")
    start = Input(1, "Begin the walk at ``source``, ``y``, ``x``.")
    step = Input(1, "Go to the next step.")
    rewind = Input(1, "The weights of the walks to come are those at the beginning of the matrix.")
    proceed = Input(1, "The weights of the walks to come are those behind the last walk.")
    source = Input(lambda self: vector_addr_bits(self.config), "Vector address of the first tap.")
    y = Input(near_shape(), "Row of the first tap.")
    x = Input(near_shape(), "Column of the first tap.")
    addr = Output(lambda self: vector_addr_bits(self.config), "Vector address of the step.")
    outside = Output(1, "The tap lies outside the image.")
    matrix = Output(lambda self: matrix_addr_bits(self.config), "Word of the weights.")
    lane = Output(lambda self: clog2(self.config.lanes), "Lane of the tap in a depthwise product.")
    part = Output(lambda self: clog2(self.config.steps), "Part of the tile in a dense product.")
    last = Output(1, "The step is the last one.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        windowed, dense = Signal(), Signal()
        m.d.comb += [
            windowed.eq(self.chain.reduction != Reduction.NONE),
            dense.eq((self.chain.reduction == Reduction.PRODUCT) & ~self.chain.depthwise),
        ]
        new_col, new_kx, new_ky, last_col, last_kx = self._counters(m, windowed, dense)
        self._addresses(m, new_col, last_col, last_kx)
        self._bounds(m, windowed, new_kx, new_ky)
        self._weights(m)
        return m

    def _counters(self, m, windowed, dense):
        """Parts of the tile, column tiles left, window columns left, window rows left."""
        window = self.chain.window
        cols, kx, ky = (Signal.like(window[name], name=f"{name}_left") for name in ("cols", "kw", "kh"))
        last_part, last_col, last_kx, last_ky = Signal(), Signal(), Signal(), Signal()
        new_col, new_kx, new_ky = Signal(), Signal(), Signal()
        m.d.comb += [
            last_part.eq(~dense | (self.part == self.config.steps - 1)),
            last_col.eq(~dense | (cols == 1)),
            last_kx.eq(~windowed | (kx == 1)),
            last_ky.eq(~windowed | (ky == 1)),
            new_col.eq(self.step & last_part),
            new_kx.eq(new_col & last_col),
            new_ky.eq(new_kx & last_kx),
            self.last.eq(last_part & last_col & last_kx & last_ky),
        ]
        with m.If(self.start | self.step):
            m.d.sync += self.part.eq(Mux(self.start | last_part, 0, self.part + 1))
        with m.If(self.start | new_col):
            m.d.sync += cols.eq(Mux(self.start | last_col, window.cols, cols - 1))
        with m.If(self.start | new_kx):
            m.d.sync += kx.eq(Mux(self.start | last_kx, window.kw, kx - 1))
        with m.If(self.start | new_ky):
            m.d.sync += ky.eq(Mux(self.start, window.kh, ky - 1))
        return new_col, new_kx, new_ky, last_col, last_kx

    def _addresses(self, m, new_col, last_col, last_kx):
        """Vector address: column tiles in window columns in window rows."""
        m.submodules.address = address = LoopAddress(vector_addr_bits(self.config))
        m.d.comb += [
            address.load.eq(self.start),
            address.start.eq(self.source),
            address.step.eq(new_col),
            address.last.eq(Cat(last_col, last_kx)),
            address.distances[0].eq(1),
            address.distances[1].eq(self.chain.window.stride_x),
            address.distances[2].eq(self.chain.window.stride_y),
            self.addr.eq(address.addr),
        ]

    def _bounds(self, m, windowed, new_kx, new_ky):
        """Position of the tap and whether it lies outside the image."""
        y, x = Signal(near_shape(), name="tap_y"), Signal(near_shape(), name="tap_x")
        window = self.chain.window
        with m.If(self.start | new_kx):
            m.d.sync += x.eq(Mux(self.start | new_ky, self.x, x + window.dil_x))
        with m.If(self.start | new_ky):
            m.d.sync += y.eq(Mux(self.start, self.y, y + window.dil_y))
        # The bits above an image's are set in negative positions too.
        beyond = Cat(y[IMAGE_BITS:], x[IMAGE_BITS:]).any()
        beyond = beyond | (y[:IMAGE_BITS] >= window.height) | (x[:IMAGE_BITS] >= window.width)
        m.d.comb += self.outside.eq(windowed & (window.height != 0) & beyond)

    def _weights(self, m):
        """Lane of the tap (depthwise) and word in the matrix memory."""
        first = Signal.like(self.matrix)
        last_lane = Signal()
        m.d.comb += last_lane.eq(~self.chain.depthwise | (self.lane == self.config.lanes - 1) | self.last)
        with m.If(self.start):
            m.d.sync += [self.lane.eq(0), self.matrix.eq(first)]
        with m.Elif(self.step):
            m.d.sync += self.lane.eq(Mux(last_lane, 0, self.lane + 1))
            with m.If(last_lane):
                m.d.sync += self.matrix.eq(self.matrix + 1)
        with m.If(self.rewind):
            m.d.sync += first.eq(self.chain.matrix)
        with m.Elif(self.proceed):
            m.d.sync += first.eq(self.matrix)
