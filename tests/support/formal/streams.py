"""Streams: what is offered stays, and comes out once, in order, as it went in."""

from __future__ import annotations

from amaranth import *
from amaranth.lib import data

from concord.spec import link
from concord_rtl.link.deframer import Deframer
from concord_rtl.link.framer import Framer
from concord_rtl.link.words import WordAssembler, WordSplitter
from concord_rtl.parts.register_slice import RegisterSlice

from .bench import Bench
from .mutant import Change
from .proof import Sequential


class Line:
    """What went into a stream and has not come out yet, as it should come out.

    Attributes
    ----------
    level : Signal
        Number of items on the way.
    items : list of Signal
        They, the oldest first; those beyond ``level`` mean nothing.
    """

    def __init__(self, bench: Bench, shape, places: int, name: str, *, put, item, take):
        bench.m.submodules[name] = m = Module()
        self.items = [Signal(shape, name=f"{name}_{k}") for k in range(places)]
        self.level = Signal(range(places + 1), name=f"{name}_level")
        self.overrun = Signal(name=f"{name}_overrun")
        after = Signal.like(self.level, name=f"{name}_after")
        m.d.comb += [after.eq(self.level - take), self.overrun.eq(put & (after == places))]
        m.d.sync += self.level.eq(after + put)
        for k, place in enumerate(self.items):
            following = self.items[k + 1] if k + 1 < places else place
            with m.If(put & (after == k)):
                m.d.sync += place.eq(item)
            with m.Elif(take):
                m.d.sync += place.eq(following)


def offer(bench: Bench, stream, name: str) -> None:
    """Drive a stream with anything, as the rules of streams say: what is offered stays until it is taken."""
    valid, payload = bench.free(1, f"{name}_valid"), bench.free(len(Value.cast(stream.p)), f"{name}_payload")
    bench.m.d.comb += [stream.valid.eq(valid), Value.cast(stream.p).eq(payload)]
    waiting = bench.past(valid & ~stream.ready, f"{name}_waiting")
    bench.assume(valid, given=waiting)
    bench.assume(payload == bench.past(payload, f"{name}_offered"), given=waiting)


def stays(bench: Bench, stream, name: str) -> None:
    """What the unit offers stays until it is taken."""
    waiting = bench.past(stream.valid & ~stream.ready, f"{name}_waits")
    bench.must(stream.valid, given=waiting)
    bench.must(Value.cast(stream.p) == bench.past(stream.p, f"{name}_was"), given=waiting)


def register_slice() -> Bench:
    bench = Bench()
    dut = RegisterSlice(4)
    inside = bench.unit(dut, "dut")
    offer(bench, dut.i, "i")
    bench.m.d.comb += dut.o.ready.eq(bench.free(1, "ready"))
    put, take = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
    line = Line(bench, 4, 2, "line", put=put, item=dut.i.p, take=take)
    stays(bench, dut.o, "o")
    bench.must(~line.overrun)
    bench.must(dut.o.p == line.items[0], given=dut.o.valid)
    # One transfer per cycle, one cycle later: what was taken is there, and nothing waits in front of a free receiver.
    bench.must(dut.o.valid == (line.level != 0))
    bench.must(dut.i.ready, given=bench.past(dut.o.ready, "free"))
    # For the induction: the two places.
    empty, kept = inside["empty"], inside["kept"]
    bench.must(line.level == dut.o.valid + ~empty)
    bench.must(kept == line.items[1], given=~empty)
    bench.reach((line.level == 2) & (line.items[0] == 5) & (line.items[1] == 10))
    bench.reach(take & put & bench.past(take & put, "moves"))
    return bench


#: Bytes of the words, and bits of the widest.
WORD_BITS = 20


def word_assembler() -> Bench:
    bench = Bench()
    m = bench.m
    dut = WordAssembler(WORD_BITS)
    inside = bench.unit(dut, "dut")
    size = bench.constant(dut.size.shape(), "size")
    bench.assume((size >= 1) & (size <= dut.nbytes))
    offer(bench, dut.i, "i")
    m.d.comb += [dut.size.eq(size), dut.o.ready.eq(bench.free(1, "ready"))]
    put, take = dut.i.valid & dut.i.ready, dut.o.valid & dut.o.ready
    # Bytes that have come since the last word left.
    count, word = Signal(range(dut.nbytes + 1)), Signal(8 * dut.nbytes)
    with m.If(take):
        m.d.sync += [count.eq(0), word.eq(0)]
    with m.If(put):
        m.d.sync += count.eq(count + 1)
        m.d.sync += word.word_select(count, 8).eq(dut.i.p)
    stays(bench, dut.o, "o")
    bench.must(~(put & (count == size)))
    bench.must(count == size, given=dut.o.valid)
    bench.must(dut.o.p == word[:WORD_BITS], given=dut.o.valid)
    since = Signal(range(4))
    m.d.sync += since.eq(Mux((count == size) & ~take, since + (since != 3), 0))
    bench.must(dut.o.valid, given=since == 1)
    _assembler_inside(bench, dut, inside, size, count, word)
    bench.reach(dut.o.valid & (size == dut.nbytes) & (word == 0x65432))
    bench.reach(take & (size == 1) & (word == 0x77))
    return bench


def _assembler_inside(bench: Bench, dut, inside, size, count, word) -> None:
    """For the induction: the byte that is on its way, and those that are in place, but not those of a word taken."""
    full, index, place, byte, taken = (inside[name] for name in ("full", "index", "place", "byte", "taken"))
    late = place != 0
    shown = Signal.like(word, name="shown")
    bench.m.d.comb += shown.eq(Mux(taken, 0, Cat(dut.o.p, Const(0, 8))))
    arrived = Signal.like(word, name="arrived")
    for n in range(dut.nbytes):
        bench.m.d.comb += arrived.word_select(n, 8).eq(Mux(place[n], byte, shown.word_select(n, 8)))
    bench.must(full == (count == size))
    bench.must(index == Mux(full, 0, count))
    bench.must(place == Mux(late, 1 << (count - 1)[:2], 0))
    bench.must(arrived[:WORD_BITS] == word[:WORD_BITS])
    bench.must(~late, given=dut.o.valid | (count == 0))
    bench.must(count <= size)
    bench.must(full, given=dut.o.valid)
    bench.must((count == 0) & ~dut.o.valid, given=taken)
    for n in range(dut.nbytes):
        bench.must(word.word_select(n, 8) == 0, given=count <= n)


def word_splitter() -> Bench:
    bench = Bench()
    m = bench.m
    dut = WordSplitter(WORD_BITS)
    inside = bench.unit(dut, "dut")
    size = bench.constant(dut.size.shape(), "size")
    bench.assume((size >= 1) & (size <= dut.nbytes))
    offer(bench, dut.i, "i")
    m.d.comb += [dut.size.eq(size), dut.o.ready.eq(bench.free(1, "ready"))]
    take = dut.o.valid & dut.o.ready
    free = ~dut.o.valid | dut.o.ready
    # The next byte to come of the word that is offered.
    index = Signal(range(dut.nbytes))
    step = free & dut.i.valid
    with m.If(step):
        m.d.sync += index.eq(Mux(index + 1 == size, 0, index + 1))
    line = Line(bench, 8, 1, "line", put=step, item=dut.i.p.word_select(index, 8), take=take)
    stays(bench, dut.o, "o")
    bench.must(dut.i.ready == (step & (index + 1 == size)), given=dut.i.valid)
    bench.must(dut.o.valid == (line.level != 0))
    bench.must(dut.o.p == line.items[0], given=dut.o.valid)
    bench.must(inside["index"] == index)
    bench.must(index < size)
    bench.reach(take & (size == dut.nbytes) & (index == 0) & (dut.o.p == 6))
    return bench


def there_and_back() -> Bench:
    """A framer and a deframer behind it."""
    bench = Bench()
    m = bench.m
    framer, deframer = Framer(), Deframer()
    bench.unit(framer, "framer")
    bench.unit(deframer, "deframer")
    offer(bench, framer.i, "i")
    # Between them the line stops now and then.
    flows = bench.free(1, "flows")
    m.d.comb += [
        deframer.i.valid.eq(framer.o.valid & flows),
        deframer.i.p.eq(framer.o.p),
        framer.o.ready.eq(deframer.i.ready & flows),
        deframer.o.ready.eq(bench.free(1, "ready")),
    ]
    put, take = framer.i.valid & framer.i.ready, deframer.o.valid & deframer.o.ready
    end = deframer.o.p.end
    shape = data.StructLayout({"data": 8, "last": 1, "first": 1})
    first = Signal(init=1)  # the next byte begins a frame
    with m.If(put):
        m.d.sync += first.eq(framer.i.p.last)
    item = Signal(shape, name="item")
    m.d.comb += [item.data.eq(framer.i.p.data), item.last.eq(framer.i.p.last), item.first.eq(first)]
    line = Line(bench, shape, 4, "line", put=put, item=item, take=take & ~end)
    ended = Signal()  # the end of the frame is next
    with m.If(take):
        m.d.sync += ended.eq(~end & line.items[0].last)
    stays(bench, framer.o, "line")
    stays(bench, deframer.o, "o")
    # The line is in a frame after reset: it begins with a flag, of which nothing is to be seen.
    bench.must(~line.overrun)
    bench.must(end == ended, given=deframer.o.valid)
    bench.must(~deframer.o.p.damaged, given=deframer.o.valid & end)
    bench.must((line.level != 0) & (deframer.o.p.data == line.items[0].data), given=deframer.o.valid & ~end)
    bench.reach(take & (deframer.o.p.data == link.ESCAPE) & ~end)
    bench.reach(take & end)
    return bench


_SLICE = "concord_rtl.parts.register_slice"
_WORDS = "concord_rtl.link.words"

PROOFS = (
    Sequential(
        "register slice", "offered items stay; each comes out once, in order, a cycle later; one per cycle",
        register_slice, depth=6, steps=1, fast=True,
        changes=(
            Change(_SLICE, "self.o.p.eq(Mux(empty, self.i.p, kept))", "self.o.p.eq(self.i.p)"),
            Change(_SLICE, "self.i.ready.eq(empty)", "self.i.ready.eq(empty | self.o.ready)"),
            Change(_SLICE, "with m.Elif(self.i.valid):", "with m.Elif(self.i.valid & self.o.ready):"),
        ),
    ),
    Sequential(
        "word assembler", "each word has the bytes that came, zeros above, and comes out once",
        word_assembler, depth=8, steps=1, reach=10, fast=True,
        changes=(
            Change(_WORDS, "m.d.sync += self.o.payload.eq(0)", "pass"),
            Change(_WORDS, "m.d.comb += self.i.ready.eq(~full)", "m.d.comb += self.i.ready.eq(~self.o.valid)"),
        ),
    ),
    Sequential(
        "word splitter", "each word goes out as its bytes, once, the last one with the word taken",
        word_splitter, depth=8, steps=1,
        changes=(
            Change(_WORDS, "m.d.comb += self.i.ready.eq(1)", "m.d.comb += self.i.ready.eq(~self.o.valid)"),
        ),
    ),
    Sequential(
        "framer, deframer", "the bytes and ends of frames come back as they went in",
        there_and_back, depth=9,
        changes=(
            Change("concord_rtl.link.framer", "(self.i.p.data == link.FLAG) | ", ""),
            Change("concord_rtl.link.deframer", "self.i.payload ^ Mux(escaped, link.ESCAPE_XOR, 0)", "self.i.payload"),
        ),
    ),
)  # fmt: skip
