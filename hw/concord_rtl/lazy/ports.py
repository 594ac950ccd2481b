"""Memory ports of the units that update blocks."""

from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord_rtl.lazy.widths import EXPONENT, LazyWidths


def word(widths: LazyWidths, lanes: int) -> data.ArrayLayout:
    """Elements side by side."""
    return data.ArrayLayout(widths.element, lanes)


def ports(widths: LazyWidths, lanes: int, depth: int) -> dict[str, wiring.Member]:
    """Members ``read`` and ``write`` of a unit that uses a memory."""
    addr, elements = range(depth), word(widths, lanes)
    write = {"en": Out(lanes), "addr": Out(addr), "data": Out(elements), "exp": Out(EXPONENT)}
    return {
        "read": Out(wiring.Signature({"addr": Out(addr), "data": In(elements)})),
        "write": Out(wiring.Signature(write)),
    }


def lanes_in_use(last, tail, lanes: int):
    """Bits of the lanes with elements, in the last word of a block those up to ``tail`` only."""
    return [~last | (tail >= k) for k in range(lanes)]
