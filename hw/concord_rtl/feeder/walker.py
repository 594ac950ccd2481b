"""The loops of a FILL."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import NpuConfig
from concord.spec.feeder import CODE_PAGE_BITS, FEED_LAYOUTS, SCRIPT_WORD, FeedOp
from concord.spec.formats import BINARY16_WIDTH
from concord_rtl.feeder.pointers import pointer_bits
from concord_rtl.feeder.window_elements import WindowElements, position_shape
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of

#: Words of a script that describe the loops.
DESCRIBING = (FeedOp.WINDOW, FeedOp.SLIDE, FeedOp.IMAGE, FeedOp.SIZE, FeedOp.TAPS, FeedOp.MOVES, FeedOp.START)


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
    load = Input(1, "The next window is the first one of the input that begins at ``base``.")
    base = Input(lambda self: self.bits, "Address of an input in the inbox.")
    begin = Input(1, "Go to the first element of the next window.")
    step = Input(1, "Go to the next element.")
    double = Input(1, "Elements have two bytes.")
    skip = Input(1, "Pass over a byte.")
    at = Output(lambda self: self.bits, "Address of the element.")
    channel = Output(
        CODE_PAGE_BITS,
        "Number of the element in its position, modulo the pages that a code book can have; together with ``at``.",
    )
    inside = Output(1, "Its tap is inside the image.")
    final = Output(1, "No element of the window comes behind it.")
    ended = Output(1, "There was no element left.")
    last = Output(1, "The window is the last one.")
    lines = Output(12, "Lines of windows that are left, that of the next window included.")
    needed = Output(lambda self: self.bits, "Nothing in front of this address will be asked for.")
    border = Output(BINARY16_WIDTH, "What elements outside the image are.")

    def __init__(self, config: NpuConfig):
        self.config = config
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

        # The next window: its place in the image and in the inbox.
        y, x = Signal(position_shape()), Signal(position_shape())
        row, position = Signal(self.bits), Signal(self.bits)
        rows, cols = self.lines, Signal(12)
        last_col = Signal()
        kept_from = Signal(self.bits)  # what the lines of the window have to be kept from
        m.d.comb += last_col.eq(cols == 1)
        with m.If(self.load):
            m.d.sync += [y.eq(slide.y0), x.eq(slide.x0), rows.eq(size.rows), cols.eq(size.cols)]
            m.d.sync += [row.eq(self.base + start.start), position.eq(self.base + start.start)]
        with m.If(self.begin):
            m.d.sync += [self.last.eq(last_col & (rows == 1)), kept_from.eq(Mux(y > 0, row, self.base))]
            m.d.sync += [cols.eq(cols - 1), x.eq(x + slide.step_x), position.eq(position + moves.move_x)]
            with m.If(last_col):
                m.d.sync += [rows.eq(rows - 1), cols.eq(size.cols), x.eq(slide.x0), y.eq(y + slide.step_y)]
                m.d.sync += [row.eq(row + moves.move_y), position.eq(row + moves.move_y)]

        m.submodules.elements = elements = WindowElements(self.config)
        m.d.comb += [
            elements.window.eq(window),
            elements.image.eq(image),
            elements.size.eq(size),
            elements.taps.eq(taps),
            elements.double.eq(self.double),
            elements.begin.eq(self.begin),
            elements.y.eq(y),
            elements.x.eq(x),
            elements.first.eq(position),
            elements.step.eq(self.step),
            elements.skip.eq(self.skip),
            self.at.eq(elements.at),
            self.channel.eq(elements.channel),
            self.inside.eq(elements.inside),
            self.final.eq(elements.final),
            self.ended.eq(elements.ended),
        ]
        single = Signal()
        m.d.sync += single.eq((window.kh == 1) & (window.kw == 1))
        m.d.comb += self.needed.eq(Mux(single, self.at, kept_from))
        return m
