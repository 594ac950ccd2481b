"""The elements of a window."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import NpuConfig
from concord.spec.feeder import CODE_PAGE_BITS, FEED_LAYOUTS, FeedOp
from concord_rtl.feeder.pointers import pointer_bits
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of
from concord_rtl.pipe.counters import Countdown
from concord_rtl.pipe.loop_address import LoopAddress


def position_shape() -> Shape:
    """A line of an image or a place in it, with room for those of taps outside."""
    return signed(14)


class WindowElements(Component):
    """Walks over the lines, taps and elements of one window.

    Words of a script are held during the walk. Every strobe takes effect in the next cycle; at most one of them at a
    time.

    Parameters
    ----------
    config : NpuConfig
        Gives the size of the inbox.
    """

    window = Input(shape_of(FEED_LAYOUTS[FeedOp.WINDOW]), "Taps, and distances between them in positions.")
    image = Input(shape_of(FEED_LAYOUTS[FeedOp.IMAGE]), "Positions that there are.")
    size = Input(shape_of(FEED_LAYOUTS[FeedOp.SIZE]), "Elements of a position.")
    taps = Input(shape_of(FEED_LAYOUTS[FeedOp.TAPS]), "Distances of taps in bytes.")
    double = Input(1, "Elements have two bytes.")
    begin = Input(1, "Go to the first element of the window at ``y``, ``x``, whose address is ``first``.")
    y = Input(position_shape(), "Line of the first tap.")
    x = Input(position_shape(), "Its place in the line.")
    first = Input(lambda self: self.bits, "Its address in the inbox.")
    step = Input(1, "Go to the next element.")
    skip = Input(1, "Pass over a byte.")
    at = Output(lambda self: self.bits, "Address of the element; behind the last one, where it ends.")
    channel = Output(CODE_PAGE_BITS, "Number of the element in its position, modulo the pages of a code book.")
    inside = Output(1, "Its tap is inside the image.")
    final = Output(1, "No element comes behind it.")
    ended = Output(1, "There was no element left.")

    def __init__(self, config: NpuConfig):
        self.bits = pointer_bits(config)
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        window, image = self.window, self.image
        turns = {"elements": self.size.channels, "columns": window.kw, "lines": window.kh}
        loops = {name: Countdown(len(count), held=True) for name, count in turns.items()}
        elements, columns, lines = loops.values()
        for name, loop in loops.items():
            m.submodules[name] = loop
            m.d.comb += [loop.load.eq(self.begin), loop.turns.eq(turns[name])]
        next_tap, next_line = Signal(), Signal()
        m.d.comb += [
            next_tap.eq(self.step & elements.last),
            next_line.eq(next_tap & columns.last),
            elements.step.eq(self.step),
            columns.step.eq(next_tap),
            lines.step.eq(next_line),
        ]
        m.submodules.address = address = LoopAddress(self.bits, with_shift=True)
        m.d.comb += [
            address.load.eq(self.begin),
            address.start.eq(self.first),
            address.step.eq(self.step),
            address.last.eq(Cat(elements.last & ~(columns.last & lines.last), columns.last)),
            address.distances[0].eq(1 + self.double),
            address.distances[1].eq(self.taps.tap_x),
            address.distances[2].eq(self.taps.tap_y),
            address.shift.eq(self.skip),
            address.offset.eq(1),
            self.at.eq(address.addr),
            self.final.eq(elements.last & columns.last & lines.last),
        ]
        y, x, left = (Signal(position_shape(), name=name) for name in ("y", "x", "left"))
        m.d.comb += self.inside.eq((y >= 0) & (y < image.height) & (x >= 0) & (x < image.width))
        with m.If(self.begin):
            m.d.sync += [y.eq(self.y), x.eq(self.x), left.eq(self.x), self.channel.eq(0), self.ended.eq(0)]
        with m.Elif(self.step):
            m.d.sync += self.channel.eq(Mux(elements.last, 0, self.channel + 1))
        with m.If(next_tap):
            m.d.sync += x.eq(Mux(columns.last, left, x + window.dil_x))
        with m.If(next_line):
            m.d.sync += [y.eq(y + window.dil_y), self.ended.eq(lines.last)]
        return m
