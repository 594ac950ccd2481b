"""The feeder: raw inputs come over the link once, as narrow as they are, and are laid out on the device.

Bytes that are written to the region ``INBOX`` wait in a ring. The words of the region ``SCRIPT`` say what becomes of
them: a ``FILL`` takes elements from the ring and writes native vectors, ``RUN`` starts the program and waits for its
end, ``SEND`` puts results into a second ring, which the region ``OUTBOX`` shows. ``END`` goes back to the first word,
for the next sample; a script whose first word is ``END`` does nothing. Writing to ``SCRIPT`` stops what is going on and
empties both rings.

A ``FILL`` lays out an image of ``height * width`` positions with ``channels`` elements each; vectors with several
axes are images of one column. Its loops, for addresses in bytes after the first byte of the input::

    for oy in range(rows):
        for ox in range(cols):
            lanes = []
            for ky in range(kh):
                for kx in range(kw):
                    y, x = y0 + oy * step_y + ky * dil_y, x0 + ox * step_x + kx * dil_x
                    for c in range(channels):
                        at = start + oy * move_y + ox * move_x + ky * tap_y + kx * tap_x + c * size
                        lanes.append(element(at) if 0 <= y < height and 0 <= x < width else border)
            lanes are filled up with copies of the last one to native vectors, which go to target, target + 1, ...

An element has one byte, or two (little endian). With ``coded`` its byte is the address of a binary16 number in a page
of the region ``CODES``, else it is the bit pattern of one. All elements have the page ``page``, or with ``paged``
element ``c`` of a position has page ``page + c``, modulo the pages that the configuration has. Narrow vectors are made
of them with a dynamic exponent, rounded to nearest even. With ``blocks`` the elements are mantissas, and a byte with
their exponent precedes every vector (spare lanes are not sent): a position begins with such a byte, and its bytes
follow each other. If the window has several taps then, all of them are inside the image and fill whole vectors. After
a ``FILL`` the input begins ``advance`` bytes later; all addresses are modulo twice the size of the ring, which holds a
byte less than its size. What is not needed any more is let go line by line, where the window has one tap byte by byte;
during the last ``held`` lines of windows nothing is, so that the next ``FILL`` can begin with what they have read.

A ``SEND`` of wide vectors gives two bytes for an element, little endian. One of ``narrow`` vectors gives the exponent
of each and its mantissas, in two's complement: a byte each, or two (little endian) if they have more than 8 bits.
"""

from __future__ import annotations

from enum import IntEnum

from concord.spec.fields import Field, Layout

#: Words of a script.
SCRIPT_DEPTH = 64
#: Binary16 numbers that elements of a byte can stand for: a page of the code book.
CODE_PAGE = 256
#: Bits of the number of a page.
CODE_PAGE_BITS = 2
#: Size of the inbox over that of the outbox, where a configuration does not say how large that is.
OUTBOX_SHARE = 4
#: The address of a read of the outbox: the first byte that is wanted, and the first one that must stay.
OUTBOX_ADDRESS = Layout((Field("first", 12), Field("kept", 12)))
#: The greatest inbox and outbox, as powers of two: both fields of an address count twice the bytes of the outbox.
INBOX_BITS, OUTBOX_BITS = 13, 11


class FeedOp(IntEnum):
    """Operation of a word of a script."""

    END = 0  #: go back to the first word
    WINDOW = 1  #: taps, and distances between them in positions
    SLIDE = 2  #: distances of windows in positions, and the first position
    IMAGE = 3  #: positions that there are
    SIZE = 4  #: windows that are laid out, and elements of a position
    TAPS = 5  #: distances of taps in bytes
    MOVES = 6  #: distances of windows in bytes
    START = 7  #: first byte of the first window, and what taps outside the image are
    TARGET = 8  #: where vectors go, and what elements are
    FILL = 9  #: lay out; then drop bytes
    RUN = 10  #: start the program at pc and wait for its end; a trap stops the script
    SEND = 11  #: elements of vectors to the outbox


#: Bits of a word beside its operation.
VALUE_BITS = 36
_LAYOUTS: dict[FeedOp, tuple[Field, ...]] = {
    FeedOp.END: (),
    FeedOp.WINDOW: (
        Field("kh", 6, doc="lines of a window"),
        Field("kw", 6, doc="taps of a line"),
        Field("dil_y", 6, doc="positions from one line of a window to the next"),
        Field("dil_x", 6, doc="positions from one tap to the next"),
    ),
    FeedOp.SLIDE: (
        Field("step_y", 6, doc="positions from a window to the one below"),
        Field("step_x", 6, doc="positions from a window to the next one"),
        Field("y0", 8, True, doc="line of the first tap of the first window"),
        Field("x0", 8, True, doc="its place in the line"),
    ),
    FeedOp.IMAGE: (Field("height", 12, doc="lines"), Field("width", 12, doc="positions of a line")),
    FeedOp.SIZE: (
        Field("rows", 12, doc="lines of windows"),
        Field("cols", 12, doc="windows of a line"),
        Field("channels", 12, doc="elements of a position"),
    ),
    FeedOp.TAPS: (
        Field("tap_y", 16, doc="bytes from a line of taps to the next one"),
        Field("tap_x", 16, doc="bytes from a tap to the next one"),
    ),
    FeedOp.MOVES: (
        Field("move_y", 16, doc="bytes from a window to the one below"),
        Field("move_x", 16, doc="bytes from a window to the next one"),
    ),
    FeedOp.START: (
        Field("start", 16, doc="first byte of the first window; it may lie in front of the input"),
        Field("border", 16, doc="binary16 pattern of taps outside the image"),
    ),
    FeedOp.TARGET: (
        Field("target", 14, doc="address of the first vector"),
        Field("wide", 1, doc="vectors go to wide memory"),
        Field("double", 1, doc="elements have two bytes"),
        Field("coded", 1, doc="elements are addresses in a page of CODES"),
        Field("blocks", 1, doc="elements are mantissas"),
        Field("page", CODE_PAGE_BITS, doc="this page, or that of element 0 of a position"),
        Field("paged", 1, doc="element c of a position has page + c, modulo the pages that there are"),
    ),
    FeedOp.FILL: (
        Field("advance", 16, doc="bytes that the next input lies behind this one"),
        Field("held", 12, doc="last lines of windows during which no byte is let go"),
    ),
    FeedOp.RUN: (
        Field("pc", 16, doc="first instruction"),
        Field("adds", 1, doc="counters go on from the run before"),
    ),
    FeedOp.SEND: (
        Field("source", 14, doc="address of the first vector"),
        Field("vectors", 12, doc="vectors, which follow each other"),
        Field("lanes", 7, doc="elements of each, from the first on"),
        Field("narrow", 1, doc="vectors of narrow memory"),
    ),
}


def _layout(fields: tuple[Field, ...]) -> Layout:
    used = sum(field.span for field in fields)
    return Layout((Field("op", 4), *fields, *([Field("reserved", VALUE_BITS - used)] if used < VALUE_BITS else [])))


#: Fields of the words by operation.
FEED_LAYOUTS: dict[FeedOp, Layout] = {op: _layout(fields) for op, fields in _LAYOUTS.items()}
#: A word of a script.
SCRIPT_WORD = Layout((Field("op", 4), Field("value", VALUE_BITS)))


def feed_word(op: FeedOp, **values: int) -> int:
    """A word of a script; ``ValueError`` if a value does not fit."""
    layout = FEED_LAYOUTS[op]
    reserved = {"reserved": 0} if "reserved" in layout else {}
    return layout.pack(op=op, **values, **reserved)
