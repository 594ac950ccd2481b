"""The tile steps of one vector of an integer product."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import clog2
from concord.spec.integers import DIGIT_BITS
from concord.spec.isa import DIGITS_MAX
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.pipe.counters import Countdown
from concord_rtl.pipe.integers.ports import integer_layout, loops_layout
from concord_rtl.pipe.layouts import matrix_addr_bits, position_shape, vector_addr_bits


class StepWalker(NpuUnit):
    """Walks digits, taps of a window, columns and parts of a tile, the last ones first: one step per cycle.

    The first step is there in the cycle after ``load``, which may come with the last step of the vector before.

    Parameters
    ----------
    config : NpuConfig
    """

    loops = Input(lambda self: loops_layout(self.config), "Columns and window, which stay.")
    state = Input(lambda self: integer_layout(self.config), "Distances and digits, likewise.")
    load = Input(1, "A vector begins.")
    vector_start = Input(lambda self: vector_addr_bits(self.config), "Its first source address.")
    matrix_start = Input(lambda self: matrix_addr_bits(self.config), "Its first word of the matrix memory.")
    y_start = Input(position_shape(), "Row of the image that its first tap meets.")
    x_start = Input(position_shape(), "Column of the image, likewise.")
    valid = Output(1, "There is a step.")
    vector = Output(lambda self: vector_addr_bits(self.config), "Source address.")
    matrix = Output(lambda self: matrix_addr_bits(self.config), "Word of the matrix memory.")
    part = Output(lambda self: max(1, clog2(self.config.steps)), "Which L elements of the vector.")
    exp = Output(lambda self: range(DIGIT_BITS * DIGITS_MAX), "Places by which the digit counts more.")
    first = Output(1, "It is the first step of the vector.")
    last = Output(1, "It is the last one.")
    outside = Output(1, "The tap lies outside the image.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        state, window = self.state, self.loops.window
        steps = self.config.steps
        with m.If(self.load):
            m.d.sync += [self.valid.eq(1), self.first.eq(1)]
        with m.Else():
            m.d.sync += self.first.eq(0)
            with m.If(self.last):
                m.d.sync += self.valid.eq(0)
        turns = [Const(steps, steps.bit_length()), window.cols, window.kw, window.kh, state.digits]
        ended = [self.valid]
        for k, count in enumerate(turns):
            m.submodules[f"loop{k}"] = loop = Countdown(len(count), held=True)
            m.d.comb += [loop.load.eq(self.load), loop.turns.eq(count), loop.step.eq(Cat(ended).all())]
            ended.append(loop.last)
            if k == 0:
                m.d.comb += self.part.eq(steps - loop.left)
        tile, col, column_tap, row_tap, digit = (Cat(ended[:k]).all() for k in range(2, 7))
        m.d.comb += self.last.eq(digit)
        # The turn of a loop ends where those inside it end: go on with the first loop outside that is not at its end.
        moves = [tile & ~ended[2], col & ~ended[3], column_tap & ~ended[4], row_tap & ~ended[5]]
        self._vectors(m, moves)
        self._words(m, moves)
        self._positions(m, moves)
        with m.If(self.load):
            m.d.sync += self.exp.eq(0)
        with m.Elif(moves[3]):
            m.d.sync += self.exp.eq(self.exp + DIGIT_BITS)
        return m

    def _vectors(self, m, moves):
        """Source addresses: each loop goes on from where its turn began."""
        state, window = self.state, self.loops.window
        digit = Mux(state.of, 0, state.vector_digit)
        distances = (state.vector_step, window.stride_x, window.stride_y, digit)
        begun = [Signal.like(self.vector, name=f"begun{k}") for k in range(4)]
        m.d.comb += self.vector.eq(begun[0])
        with m.If(self.load):
            m.d.sync += [place.eq(self.vector_start) for place in begun]
        for k, (move, distance) in enumerate(zip(moves, distances, strict=True)):
            with m.Elif(move):
                m.d.sync += [place.eq(begun[k] + distance) for place in begun[: k + 1]]

    def _words(self, m, moves):
        """Words of the tiles: one after the other through all taps, digits from where they began."""
        state = self.state
        word, begun = Signal.like(self.matrix, name="word"), Signal.like(self.matrix, name="word_of_digit")
        following = begun + Mux(state.of, state.matrix_digit, 0)
        m.d.comb += self.matrix.eq(word + (self.part if self.config.steps > 1 else 0))
        with m.If(self.load):
            m.d.sync += [word.eq(self.matrix_start), begun.eq(self.matrix_start)]
        with m.Elif(moves[3]):
            m.d.sync += [word.eq(following), begun.eq(following)]
        with m.Elif(Cat(moves[:3]).any()):
            m.d.sync += word.eq(word + state.matrix_step)

    def _positions(self, m, moves):
        """Position of the tap, and whether it lies outside the image."""
        window = self.loops.window
        y, x = Signal(position_shape(), name="y"), Signal(position_shape(), name="x")
        with m.If(self.load | moves[3]):
            m.d.sync += [y.eq(self.y_start), x.eq(self.x_start)]
        with m.Elif(moves[2]):
            m.d.sync += [y.eq(y + window.dil_y), x.eq(self.x_start)]
        with m.Elif(moves[1]):
            m.d.sync += x.eq(x + window.dil_x)
        beyond = (y < 0) | (y >= window.height) | (x < 0) | (x >= window.width)
        m.d.comb += self.outside.eq(window.height.any() & beyond)
