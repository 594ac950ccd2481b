"""Memory ports of the units that update blocks."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.lazy.widths import EXPONENT, LazyWidths


def word(widths: LazyWidths, lanes: int) -> data.ArrayLayout:
    """Elements side by side."""
    return data.ArrayLayout(widths.element, lanes)


def read_port(unit):
    """Signature of the read port of a unit that uses a memory."""
    return wiring.Signature({"addr": Out(range(unit.depth)), "data": In(word(unit.widths, unit.lanes))})


def write_port(unit):
    """Signature of its write port."""
    elements = word(unit.widths, unit.lanes)
    members = {"en": Out(unit.lanes), "addr": Out(range(unit.depth)), "data": Out(elements), "exp": Out(EXPONENT)}
    return wiring.Signature(members)


def lanes_in_use(last, tail, lanes: int):
    """Bits of the lanes with elements, in the last word of a block those up to ``tail`` only."""
    return [~last | (tail >= k) for k in range(lanes)]
