"""The chain pipe of an element-serial configuration."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, wiring

from concord.spec import timing
from concord.spec.config import SERIAL_ROWS, NpuConfig, clog2
from concord.spec.formats import Flag
from concord.spec.operations import ADDRESSED, Op
from concord_rtl.arith.block_float import activations, weights
from concord_rtl.element_serial.address_book import AddressBook, book_port
from concord_rtl.element_serial.dot_product import DotProduct
from concord_rtl.element_serial.element import ElementUnit
from concord_rtl.element_serial.grid_adder import GridAdder
from concord_rtl.element_serial.loops import VectorLoops
from concord_rtl.element_serial.mfu_stages import MfuStages
from concord_rtl.element_serial.taps import TapLoops
from concord_rtl.element_serial.vector_end import VectorEnd
from concord_rtl.parts.component import Input, Output
from concord_rtl.parts.control import ACTS, AddOp, Take
from concord_rtl.parts.shapes import shape_of
from concord_rtl.pipe.layouts import Reduction, matrix_addr_bits, vector_addr_bits
from concord_rtl.pipe.ports import PipePorts, VectorPort

#: Cycles from the beginning of a stage of the multifunction units to the one in which the element changes.
STATION_CYCLES = {
    Take.MUL: timing.serial_cycles(Op.VV_MUL),
    Take.ADD: timing.serial_cycles(Op.VV_ADD),
    **{Take[act.name]: timing.serial_cycles(op) for op, act in ACTS.items()},
    Take.TABLE: timing.serial_cycles(Op.V_TBL),
}


class _Parts:
    """Units and registers of a pipe, made in ``m``.

    Attributes
    ----------
    book, loops, taps, dot, unit, stations, end
        The units.
    count : Signal
        Cycles in this state.
    element : Signal
        Number of the element of the result.
    member : Signal
        Element of the source in a maximum over all elements.
    reading : Signal
        The element comes from a source that is no product, since one cycle.
    outside : Signal
        The tap lies outside the image, since one cycle.
    term : Signal
        A term of a sum is there: in the second cycle of a stage the element, later the operand.
    port : Signal
        Operand whose address is wanted.
    following : Signal
        Operand that goes to the next vector.
    summed : Signal
        The sum of the element is there already: it was made together with the one before.
    flags : Signal
        Flags of the vector.
    """

    def __init__(self, m: Module, config: NpuConfig, dot: DotProduct, unit: ElementUnit):
        m.submodules.book = self.book = AddressBook(config)
        m.submodules.loops = self.loops = VectorLoops(config)
        m.submodules.taps = self.taps = TapLoops(config)
        m.submodules.dot = self.dot = dot
        m.submodules.unit = self.unit = unit
        m.submodules.stations = self.stations = MfuStages(config)
        m.submodules.end = self.end = VectorEnd(config)
        self.count = Signal(range(16))
        self.element = Signal(range(config.native))
        self.member = Signal(range(config.native))
        self.reading = Signal()
        self.outside = Signal()
        self.term = Signal()
        self.port = Signal(range(len(ADDRESSED)))
        self.following = Signal(range(len(ADDRESSED)))
        self.summed = Signal()
        self.flags = Signal(len(Flag))

    def go(self, m, state):
        """Go to ``state``, whose cycles are counted."""
        m.d.sync += self.count.eq(0)
        m.next = state

    def note(self, m, raised):
        """Set the flags that are raised."""
        for flag, value in raised.items():
            with m.If(value):
                m.d.sync += self.flags[flag].eq(1)


class ElementSerialPipe(PipePorts):
    """Everything between chain descriptors and memories: one element after the other, from read to write.

    For each element of each vector the taps are walked, at one tile step per cycle in products; then follow the
    stages of the multifunction units, the same unit serving as both. A walk of a dense product makes two elements: the
    sum of the second waits in an accumulator of its own. When all elements of a vector are known they are converted
    and written. There is nothing to wait for, as nothing overlaps.

    Parameters
    ----------
    config : NpuConfig
    table_init, slot_init : list of int
        Initial contents of table memory and table descriptors.
    """

    enter = Input(lambda self: book_port(self.config), "Addresses of the chain to come.")
    narrow = Output(
        lambda self: VectorPort(
            vector_addr_bits(self.config), activations(self.config).word, columns=self.config.native + 1
        ),
        "Narrow vector memory; ``write.en`` has a bit per column.",
    )
    wide = Output(
        lambda self: VectorPort(
            vector_addr_bits(self.config), shape_of(self.config.wide_word), columns=self.config.native
        ),
        "Wide vector memory, likewise.",
    )
    matrix_addr = Output(
        lambda self: matrix_addr_bits(self.config) + clog2(self.config.rows // SERIAL_ROWS),
        "Address of two rows of the matrix memory.",
    )
    matrix_data = Input(lambda self: data.ArrayLayout(weights(self.config).word, SERIAL_ROWS), "The two rows.")

    def __init__(self, config: NpuConfig, *, table_init=(), slot_init=()):
        self.config = config
        self.unit = ElementUnit(config, table_init=table_init, slot_init=slot_init)
        self.dot = DotProduct(config, term=self.unit.term.shape(), shift=self.unit.shift.shape())
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        parts = _Parts(m, self.config, self.dot, self.unit)
        self._connect(m, parts)
        m.d.sync += [
            parts.count.eq(parts.count + 1),
            parts.reading.eq(0),
            parts.term.eq(0),
            self.unit.second.eq(parts.count != 0),
        ]
        with m.FSM():
            self._start(m, parts)
            self._source(m, parts)
            self._operate(m, parts)
            self._finish(m, parts)
        return m

    def _connect(self, m, parts):
        """Connects the inputs of the units that do not depend on the state."""
        chain, book, loops, taps, dot, unit, end = (
            self.chains.p,
            parts.book,
            parts.loops,
            parts.taps,
            parts.dot,
            parts.unit,
            parts.end,
        )
        wiring.connect(m, wiring.flipped(self.enter), book.enter)
        wiring.connect(m, wiring.flipped(self.tables), unit.tables)
        member = Signal.like(parts.element)
        narrow = self.narrow.read.data
        m.d.comb += [
            self.drained.eq(~self.chains.valid),
            self.events.chain.eq(self.chains.valid & self.chains.ready),
            self.events.vector.eq(self.retired.valid),
            parts.stations.chain.eq(chain),
            loops.chain.eq(chain),
            taps.chain.eq(chain),
            book.port.eq(parts.port),
            book.last_row.eq(loops.last_row),
            book.last_inner.eq(loops.last_inner),
            taps.source.eq(book.addr),
            taps.y.eq(loops.y),
            taps.x.eq(loops.x),
            self.matrix_addr.eq(Cat(parts.element[clog2(SERIAL_ROWS) :], taps.matrix)),
            parts.summed.eq(parts.element[0] & ~chain.depthwise),
            member.eq(Mux(parts.reading & (chain.reduction == Reduction.MAX_ALL), parts.member, parts.element)),
            unit.other.eq(self.wide.read.data.elem[member]),
            dot.depthwise.eq(chain.depthwise),
            dot.own.eq(narrow.mant[member]),
            dot.x.eq(narrow),
            dot.w.eq(self.matrix_data),
            unit.acc.eq(dot.acc),
            dot.term.eq(unit.term),
            dot.shift.eq(unit.shift),
            dot.term_valid.eq(parts.term),
            unit.narrow.eq(parts.reading & ~chain.wide_source),
            unit.add.eq(Mux(parts.reading, AddOp.MAX, parts.stations.add)),
            unit.mant.eq(narrow.mant[member]),
            unit.exp.eq(narrow.exp),
            self.narrow.read.addr.eq(taps.addr),
            end.element.eq(parts.element),
            end.i.eq(unit.o),
            end.ctrl.eq(chain.quant),
            self.narrow.write.addr.eq(book.addr),
            self.narrow.write.data.mant.eq(Cat(end.code for _ in range(self.config.native))),
            self.narrow.write.data.exp.eq(end.exp),
            self.wide.write.addr.eq(book.addr),
            self.wide.write.data.elem.eq(Cat(end.wide for _ in range(self.config.native))),
            self.retired.pc.eq(chain.pc),
            self.retired.flags.eq(parts.flags),
        ]
        # The controls of a step follow it to the data.
        m.d.sync += [dot.lane.eq(taps.lane), dot.part.eq(taps.part)]

    def _start(self, m, parts):
        chain, loops, taps, unit = self.chains.p, parts.loops, parts.taps, parts.unit
        with m.State("IDLE"):
            m.d.sync += [parts.element.eq(0), parts.member.eq(0), parts.flags.eq(0)]
            m.d.comb += [loops.load.eq(1), taps.rewind.eq(1)]
            with m.If(self.chains.valid):
                parts.go(m, "SELECT")
        with m.State("SELECT"):
            m.d.comb += parts.port.eq(ADDRESSED.index("source"))
            parts.go(m, "BEGIN")
        with m.State("BEGIN"):
            m.d.comb += [
                taps.start.eq(1),
                parts.dot.clear.eq((1 << SERIAL_ROWS) - 1),
                unit.take.eq(Take.LOWEST),
                unit.en.eq(parts.member == 0),
            ]
            parts.go(m, "READ")
            with m.If(chain.reduction == Reduction.PRODUCT):
                parts.go(m, "STEP")

    def _source(self, m, parts):
        chain, taps, unit = self.chains.p, parts.taps, parts.unit
        with m.State("STEP"):
            valid = Signal()
            m.d.comb += [
                self.narrow.read.en.eq(1),
                taps.step.eq(1),
                valid.eq(~taps.outside),
                self.events.dense_step.eq(~chain.depthwise & (parts.element == 0)),
                self.events.depthwise_step.eq(chain.depthwise & (parts.element == 0)),
            ]
            m.d.sync += parts.dot.valid.eq(valid)
            with m.If(taps.last):
                parts.go(m, "SUM")
        with m.State("SUM"):
            m.d.comb += [
                self.narrow.read.en.eq(1),
                unit.take.eq(Take.SUM),
                parts.dot.second.eq(parts.element[0]),
            ]
            m.d.sync += parts.dot.valid.eq(0)
            with m.If(parts.count == Mux(parts.summed, 0, DotProduct.LATENCY) + GridAdder.LATENCY):
                self._take(m, parts)
                m.d.comb += parts.stations.step.eq(1)
                parts.go(m, "STATION")
        with m.State("READ"):
            plain = chain.reduction == Reduction.NONE
            m.d.comb += [
                self.narrow.read.en.eq(~chain.wide_source),
                self.wide.read.en.eq(chain.wide_source),
                self.wide.read.addr.eq(taps.addr),
                unit.take.eq(Mux(plain, Take.SOURCE, Take.ADD)),
            ]
            m.d.sync += parts.reading.eq(1)
            m.d.sync += parts.outside.eq(taps.outside)
            skipped = parts.outside & (parts.count == timing.SERIAL_OUTSIDE)
            with m.If(skipped | (parts.count == timing.SERIAL_READ)):
                m.d.comb += [unit.en.eq(~skipped), taps.step.eq(1)]
                parts.go(m, "READ")
                with m.If(taps.last):
                    m.d.sync += parts.member.eq(parts.member + 1)
                    parts.go(m, "SELECT")
                    with m.If((chain.reduction != Reduction.MAX_ALL) | parts.member.all()):
                        m.d.sync += parts.member.eq(0)
                        m.d.comb += parts.stations.step.eq(1)
                        parts.go(m, "STATION")

    def _take(self, m, parts):
        """The element changes, and its flags are noted."""
        unit = parts.unit
        m.d.comb += unit.en.eq(1)
        parts.note(m, {flag: getattr(unit, flag.name.lower()) for flag in Flag if flag is not Flag.SATURATED})

    def _operate(self, m, parts):
        unit, stage = parts.unit, parts.stations
        with m.State("STATION"):
            m.d.comb += [
                parts.port.eq(stage.port),
                unit.take.eq(stage.take),
                unit.slot.eq(stage.slot),
                self.wide.read.en.eq(1),
                self.wide.read.addr.eq(parts.book.addr),
            ]
            # A sum: clear the accumulator, add the element, add the operand, which is there by then.
            m.d.comb += [
                parts.dot.clear.eq(parts.count == 0),  # of the first row
            ]
            adds = stage.wanted & (stage.take == Take.ADD)
            m.d.sync += parts.term.eq(adds & ((parts.count == 0) | (parts.count == timing.SERIAL_OPERAND - 1)))
            last = Signal(range(max(STATION_CYCLES.values()) + 1))
            with m.Switch(stage.take):
                for take, cycles in STATION_CYCLES.items():
                    with m.Case(take):
                        m.d.comb += last.eq(cycles)
            with m.If(~stage.wanted | (parts.count == last)):
                with m.If(stage.wanted):
                    self._take(m, parts)
                m.d.comb += stage.step.eq(~stage.last)
                parts.go(m, "STATION")
                with m.If(stage.last):
                    parts.go(m, "STORE")

    def _finish(self, m, parts):
        chain, loops, taps, end = self.chains.p, parts.loops, parts.taps, parts.end
        last = parts.element == self.config.native - 1
        column = Cat(parts.element == k for k in range(self.config.native))
        with m.State("STORE"):
            m.d.comb += end.en.eq(1)
            m.d.sync += parts.element.eq(parts.element + 1)
            parts.go(m, "SELECT")
            with m.If((chain.reduction == Reduction.PRODUCT) & ~chain.depthwise & ~parts.element[0]):
                parts.go(m, "SUM")
            with m.If(last):
                parts.go(m, "WIDE")
        with m.State("WIDE"):
            m.d.comb += parts.port.eq(ADDRESSED.index("wide"))
            with m.If(parts.count == timing.SERIAL_MEMORY):
                m.d.comb += self.wide.write.en.eq(Mux(chain.to_wide, column, 0))
                parts.go(m, "NARROW")
        with m.State("NARROW"):
            m.d.comb += parts.port.eq(ADDRESSED.index("narrow"))
            with m.If(~chain.to_narrow | (parts.count == end.LATENCY)):
                with m.If(chain.to_narrow):
                    m.d.comb += self.narrow.write.en.eq(Cat(column, last))
                    parts.note(m, {Flag.NONFINITE: end.wild, Flag.SATURATED: end.saturated})
                m.d.sync += parts.element.eq(parts.element + 1)
                parts.go(m, "WIDE")
                with m.If(last):
                    parts.go(m, "RETIRE")
        following = parts.following
        with m.State("RETIRE"):
            m.d.comb += self.retired.valid.eq(1)
            m.d.sync += following.eq(0)
            parts.go(m, "ADVANCE")
        with m.State("ADVANCE"):
            m.d.comb += parts.port.eq(following)
            with m.If(parts.count == timing.SERIAL_MEMORY):
                m.d.comb += parts.book.advance.eq(1)
                m.d.sync += following.eq(following + 1)
                parts.go(m, "ADVANCE")
                with m.If(following == len(ADDRESSED) - 1):
                    m.d.sync += parts.flags.eq(0)
                    m.d.comb += [loops.step.eq(1), taps.rewind.eq(loops.last_row), taps.proceed.eq(1)]
                    parts.go(m, "SELECT")
                    with m.If(loops.last):
                        m.d.comb += self.chains.ready.eq(1)
                        parts.go(m, "IDLE")
