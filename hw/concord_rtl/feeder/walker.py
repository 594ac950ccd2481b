"""The loops of a FILL."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import NpuConfig, clog2
from concord.spec.feeder import CODE_PAGE_BITS, FEED_LAYOUTS, OUTBOX_SHARE, SCRIPT_WORD, FeedOp
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of

#: Words of a script that describe the loops.
DESCRIBING = (FeedOp.WINDOW, FeedOp.SLIDE, FeedOp.IMAGE, FeedOp.SIZE, FeedOp.TAPS, FeedOp.MOVES, FeedOp.START)


def pointer_bits(config: NpuConfig) -> int:
    """Bits of an address in the inbox: one more than it needs, so that full and empty differ."""
    return clog2(config.inbox) + 1


def result_bits(config: NpuConfig) -> int:
    """The same for the outbox."""
    return clog2(config.inbox // OUTBOX_SHARE) + 1


class FeedWalker(Component):
    """Walks over windows, taps and elements as :mod:`concord.spec.feeder` says.

    Does not know what is in the inbox. Every strobe takes effect in the next cycle; at most one of them at a time.

    Parameters
    ----------
    config : NpuConfig
        Gives the size of the inbox.
    """

    word = Input(shape_of(SCRIPT_WORD), "Word of a script.")
    set = Input(1, "Keep ``word`` if it describes loops.")
    load = Input(1, "Go to the first window of the input that begins at ``base``.")
    base = Input(lambda self: self.bits, "Address of an input in the inbox.")
    begin = Input(1, "Go to the first element of the window.")
    step = Input(
        1,
        "Go to the next element. Not in the cycle behind ``begin`` or another one.",
    )
    double = Input(1, "Elements have two bytes.")
    skip = Input(1, "Pass over a byte.")
    proceed = Input(1, "Go to the next window; ``begin`` must follow.")
    at = Output(lambda self: self.bits, "Address of the element.")
    channel = Output(
        CODE_PAGE_BITS,
        "Number of the element in its position, modulo the pages that a code book can have; together with ``at``.",
    )
    inside = Output(1, "Its tap is inside the image; from the second cycle behind ``begin`` or ``step``.")
    ended = Output(1, "There was no element left.")
    last = Output(1, "The window is the last one.")
    needed = Output(lambda self: self.bits, "Nothing in front of this address will be asked for.")
    border = Output(16, "What elements outside the image are.")

    def __init__(self, config: NpuConfig):
        self.bits = pointer_bits(config)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        kept: dict[FeedOp, Any] = {}
        for op in DESCRIBING:
            layout = shape_of(FEED_LAYOUTS[op])
            kept[op] = Signal(layout, name=op.name.lower())
            with m.If(self.set & (self.word.op == op)):
                m.d.sync += kept[op].eq(self.word.as_value())
        window, slide, image, size, taps, moves, start = (kept[op] for op in DESCRIBING)
        m.d.comb += self.border.eq(start.border)

        # The window: its place in the image and in the inbox.
        y, x = Signal(signed(14)), Signal(signed(14))
        row, position = Signal(self.bits), Signal(self.bits)
        rows, cols = Signal(12), Signal(12)
        last_col = Signal()
        m.d.comb += [last_col.eq(cols == 1), self.last.eq(last_col & (rows == 1))]
        with m.If(self.load):
            m.d.sync += [y.eq(slide.y0), x.eq(slide.x0), rows.eq(size.rows), cols.eq(size.cols)]
            m.d.sync += [row.eq(self.base + start.start), position.eq(self.base + start.start)]
        with m.If(self.proceed):
            m.d.sync += [cols.eq(cols - 1), x.eq(x + slide.step_x), position.eq(position + moves.move_x)]
            with m.If(last_col):
                m.d.sync += [rows.eq(rows - 1), cols.eq(size.cols), x.eq(slide.x0), y.eq(y + slide.step_y)]
                m.d.sync += [row.eq(row + moves.move_y), position.eq(row + moves.move_y)]

        self._taps(m, window, image, size, taps, y, x, position)
        single = Signal()
        m.d.sync += single.eq((window.kh == 1) & (window.kw == 1))
        m.d.comb += self.needed.eq(Mux(single, self.at, Mux(y > 0, row, self.base)))
        return m

    def _taps(self, m, window, image, size, taps, y, x, position):
        """The element within the window."""
        tap_y, tap_x = Signal(signed(14)), Signal(signed(14))
        line, tap = Signal(self.bits), Signal(self.bits)  # addresses of the first tap of a line, and of a tap
        lines, columns, left = Signal(6), Signal(6), Signal(12)
        last_element, last_column, last_line = Signal(), Signal(), Signal()
        m.d.sync += [
            self.inside.eq((tap_y >= 0) & (tap_y < image.height) & (tap_x >= 0) & (tap_x < image.width)),
            last_element.eq(left == 1),
            last_column.eq(columns == 1),
            last_line.eq(lines == 1),
        ]
        with m.If(self.begin):
            m.d.sync += [line.eq(position), tap.eq(position), self.at.eq(position), self.ended.eq(0)]
            m.d.sync += self.channel.eq(0)
            m.d.sync += [tap_y.eq(y), tap_x.eq(x), lines.eq(window.kh), columns.eq(window.kw), left.eq(size.channels)]
        with m.If(self.skip):
            m.d.sync += self.at.eq(self.at + 1)
        with m.If(self.step):
            m.d.sync += [left.eq(left - 1), self.at.eq(self.at + 1 + self.double), self.channel.eq(self.channel + 1)]
            with m.If(last_element):
                m.d.sync += self.channel.eq(0)
                further = (tap + taps.tap_x)[: self.bits]
                m.d.sync += [left.eq(size.channels), columns.eq(columns - 1), tap_x.eq(tap_x + window.dil_x)]
                m.d.sync += tap.eq(further)
                with m.If(~(last_column & last_line)):  # behind the last one the address stays at its end
                    m.d.sync += self.at.eq(further)
                with m.If(last_column):
                    down = (line + taps.tap_y)[: self.bits]
                    m.d.sync += [
                        columns.eq(window.kw),
                        lines.eq(lines - 1),
                        tap_x.eq(x),
                        tap_y.eq(tap_y + window.dil_y),
                    ]
                    m.d.sync += [line.eq(down), tap.eq(down), self.ended.eq(last_line)]
                    with m.If(~last_line):
                        m.d.sync += self.at.eq(down)
