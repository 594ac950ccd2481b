"""The chain pipe of a serial configuration."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import Flag

from ..control import AddOp
from ..memories.column_memory import ColumnMemory
from ..pipe.chain_walker import PORTS
from ..pipe.layouts import Reduction, matrix_addr_bits, vector_addr_bits
from ..pipe.ports import VectorPort, pipe_ports
from ..shapes import shape_of
from .address_book import AddressBook, book_port
from .dot_product import DotProduct
from .element import ElementUnit, Take
from .loops import VectorLoops
from .stations import Stations
from .taps import TapLoops
from .vector_end import VectorEnd

#: Cycles from an address at a memory to its data.
MEMORY_LATENCY = 1
#: Cycles until an operand is there: address book and memory.
OPERAND = ColumnMemory.LATENCY + MEMORY_LATENCY


class SerialPipe(wiring.Component):
    """Everything between chain descriptors and memories: one element after the other, from read to write.

    For each element of each vector the taps are walked, at one tile step per cycle in products; then follow the
    stations of the multifunction units, the same unit serving as both. When all elements of a vector are known they
    are converted and written. There is nothing to wait for, as nothing overlaps.

    Parameters
    ----------
    config : NpuConfig
    table_init, slot_init : list of int
        Initial contents of table memory and table descriptors.

    Members
    -------
    chains : In(stream)
        Chain descriptors without addresses, taken when the last vector has been written.
    enter : In(book_port)
        Addresses of the chain to come.
    narrow, wide : Out(VectorPort)
        Vector memories; ``write`` has a bit per column.
    matrix_addr, matrix_data : Out, In
        Row address and row of the matrix memory.
    drained, retired, retired_pc, retired_flags, dense_step, depthwise_step, stalled
        As in :class:`concord_rtl.pipe.pipe.ChainPipe`; nothing ever stalls.
    table_write, table_slot_write, table_host_sel, table_host_addr, table_host_data
        Likewise.
    """

    def __init__(self, config: NpuConfig, *, table_init=(), slot_init=()):
        self.config = config
        addr = vector_addr_bits(config)
        self.unit = ElementUnit(config, table_init=table_init, slot_init=slot_init)
        self.dot = DotProduct(config, term=self.unit.term.shape(), shift=self.unit.shift.shape())
        narrow, wide = shape_of(config.narrow_word), shape_of(config.wide_word)
        super().__init__(
            {
                **pipe_ports(config),
                "enter": In(book_port(config)),
                "narrow": Out(VectorPort(addr, narrow, columns=config.native + 1)),
                "wide": Out(VectorPort(addr, wide, columns=config.native)),
                "matrix_addr": Out(matrix_addr_bits(config) + len(Signal(range(config.rows)))),
                "matrix_data": In(shape_of(config.matrix_row)),
            }
        )

    def elaborate(self, platform):
        m = Module()
        m.submodules.book = self.book = AddressBook(self.config)
        m.submodules.loops = self.loops = VectorLoops(self.config)
        m.submodules.taps = self.taps = TapLoops(self.config)
        m.submodules.dot = self.dot
        m.submodules.unit = self.unit
        m.submodules.stations = self.stations = Stations(self.config)
        m.submodules.end = self.end = VectorEnd(self.config)
        self.count = Signal(range(16))  # cycles in this state
        self.element = Signal(range(self.config.native))
        self.member = Signal(range(self.config.native))  # element of the source in a maximum over all elements
        self.across = Signal()  # that element is read, not the one with the number of the result
        self.port = Signal(range(len(PORTS)))
        self.following = Signal(range(len(PORTS)))  # operand that goes to the next vector
        self.flags = Signal(len(Flag))
        self._connect(m)
        m.d.sync += self.count.eq(self.count + 1)
        with m.FSM():
            self._start(m)
            self._source(m)
            self._operate(m)
            self._finish(m)
        return m

    def _go(self, m, state):
        m.d.sync += self.count.eq(0)
        m.next = state

    def _connect(self, m):
        """What the units always see."""
        chain, book, loops, taps, dot, unit, end = (
            self.chains.p, self.book, self.loops, self.taps, self.dot, self.unit, self.end,
        )  # fmt: skip
        wiring.connect(m, wiring.flipped(self.enter), book.enter)
        for name in ("write", "slot_write"):
            wiring.connect(m, wiring.flipped(getattr(self, f"table_{name}")), getattr(unit, name))
        member = Signal.like(self.element)
        narrow = self.narrow.read_data
        m.d.comb += [
            unit.host_sel.eq(self.table_host_sel),
            unit.host_addr.eq(self.table_host_addr),
            self.table_host_data.eq(unit.host_data),
            self.drained.eq(~self.chains.valid),
            self.stations.chain.eq(chain),
            loops.chain.eq(chain),
            taps.chain.eq(chain),
            book.port.eq(self.port),
            book.last_row.eq(loops.last_row),
            book.last_inner.eq(loops.last_inner),
            taps.source.eq(book.addr),
            taps.y.eq(loops.y),
            taps.x.eq(loops.x),
            self.matrix_addr.eq(Cat(self.element, taps.matrix)),
            member.eq(Mux(self.across, self.member, self.element)),
            unit.other.eq(self.wide.read_data.elem[member]),
            dot.depthwise.eq(chain.depthwise),
            dot.own.eq(narrow.mant[member]),
            dot.x.eq(narrow),
            dot.w.eq(self.matrix_data),
            unit.acc.eq(dot.acc),
            dot.term.eq(unit.term),
            dot.shift.eq(unit.shift),
            unit.mant.eq(narrow.mant[member]),
            unit.exp.eq(narrow.exp),
            self.narrow.read_addr.eq(taps.addr),
            end.element.eq(self.element),
            end.i.eq(unit.o),
            end.ctrl.eq(chain.quant),
            self.narrow.write_addr.eq(book.addr),
            self.narrow.write_data.mant.eq(Cat(end.code for _ in range(self.config.native))),
            self.narrow.write_data.exp.eq(end.exp),
            self.wide.write_addr.eq(book.addr),
            self.wide.write_data.elem.eq(Cat(end.wide for _ in range(self.config.native))),
            self.retired_pc.eq(chain.pc),
            self.retired_flags.eq(self.flags),
        ]
        # The controls of a step follow it to the data.
        m.d.sync += [dot.lane.eq(taps.lane), dot.half.eq(taps.half)]

    def _start(self, m):
        chain, loops, taps, unit = self.chains.p, self.loops, self.taps, self.unit
        with m.State("IDLE"):
            m.d.sync += [self.element.eq(0), self.member.eq(0), self.flags.eq(0)]
            m.d.comb += [loops.load.eq(1), taps.rewind.eq(1)]
            with m.If(self.chains.valid):
                self._go(m, "SELECT")
        with m.State("SELECT"):
            m.d.comb += self.port.eq(PORTS.index("source"))
            self._go(m, "BEGIN")
        with m.State("BEGIN"):
            m.d.comb += [
                taps.start.eq(1),
                self.dot.clear.eq(1),
                unit.take.eq(Take.LOWEST),
                unit.en.eq(self.member == 0),
            ]
            self._go(m, "READ")
            with m.If(chain.reduction == Reduction.PRODUCT):
                self._go(m, "STEP")

    def _source(self, m):
        chain, taps, unit = self.chains.p, self.taps, self.unit
        with m.State("STEP"):
            valid = Signal()
            m.d.comb += [
                self.narrow.read.eq(1),
                taps.step.eq(1),
                valid.eq(~taps.outside),
                self.dense_step.eq(~chain.depthwise & (self.element == 0)),
                self.depthwise_step.eq(chain.depthwise & (self.element == 0)),
            ]
            m.d.sync += self.dot.valid.eq(valid)
            with m.If(taps.last):
                self._go(m, "SUM")
        with m.State("SUM"):
            m.d.comb += [self.narrow.read.eq(1), unit.take.eq(Take.SUM)]
            m.d.sync += self.dot.valid.eq(0)
            with m.If(self.count == DotProduct.LATENCY + unit.LATENCY):
                self._take(m)
                m.d.sync += self.stations.number.eq(0)
                self._go(m, "STATION")
        with m.State("READ"):
            plain = chain.reduction == Reduction.NONE
            m.d.comb += [
                self.narrow.read.eq(~chain.wide_source),
                self.wide.read.eq(chain.wide_source),
                self.wide.read_addr.eq(taps.addr),
                self.across.eq(chain.reduction == Reduction.MAX_ALL),
                unit.narrow.eq(~chain.wide_source),
                unit.take.eq(Mux(plain, Take.SOURCE, Take.ADD)),
                unit.add.eq(AddOp.MAX),
            ]
            with m.If(taps.outside | (self.count == MEMORY_LATENCY + unit.LATENCY)):
                m.d.comb += [unit.en.eq(~taps.outside), taps.step.eq(1)]
                self._go(m, "READ")
                with m.If(taps.last):
                    m.d.sync += [self.stations.number.eq(0), self.member.eq(self.member + 1)]
                    self._go(m, "SELECT")
                    with m.If((chain.reduction != Reduction.MAX_ALL) | self.member.all()):
                        m.d.sync += self.member.eq(0)
                        self._go(m, "STATION")

    def _take(self, m):
        """The element changes, and its flags are noted."""
        unit = self.unit
        m.d.comb += unit.en.eq(1)
        self._note(m, {flag: getattr(unit, flag.name.lower()) for flag in Flag if flag is not Flag.SATURATED})

    def _note(self, m, raised):
        for flag, value in raised.items():
            with m.If(value):
                m.d.sync += self.flags[flag].eq(1)

    def _operate(self, m):
        unit, station = self.unit, self.stations
        with m.State("STATION"):
            m.d.comb += [
                self.port.eq(station.port),
                unit.take.eq(station.take),
                unit.add.eq(station.add),
                unit.slot.eq(station.slot),
                self.wide.read.eq(1),
                self.wide.read_addr.eq(self.book.addr),
            ]
            # A sum: clear the accumulator, add the element, add the operand, which is there by then.
            m.d.comb += [
                self.dot.clear.eq(self.count == 0),
                unit.second.eq(self.count != 1),
                self.dot.term_valid.eq((self.count == 1) | (self.count == OPERAND)),
            ]
            with m.If(~station.wanted | (self.count == OPERAND + DotProduct.TERM_LATENCY + unit.LATENCY)):
                with m.If(station.wanted):
                    self._take(m)
                m.d.sync += station.number.eq(station.number + 1)
                self._go(m, "STATION")
                with m.If(station.last):
                    self._go(m, "STORE")

    def _finish(self, m):
        chain, loops, taps, end = self.chains.p, self.loops, self.taps, self.end
        last = self.element == self.config.native - 1
        column = Cat(self.element == k for k in range(self.config.native))
        with m.State("STORE"):
            m.d.comb += end.en.eq(1)
            m.d.sync += self.element.eq(self.element + 1)
            self._go(m, "SELECT")
            with m.If(last):
                self._go(m, "WIDE")
        with m.State("WIDE"):
            m.d.comb += self.port.eq(PORTS.index("wide"))
            with m.If(self.count == MEMORY_LATENCY):
                m.d.comb += self.wide.write.eq(Mux(chain.to_wide, column, 0))
                self._go(m, "NARROW")
        with m.State("NARROW"):
            m.d.comb += self.port.eq(PORTS.index("narrow"))
            with m.If(~chain.to_narrow | (self.count == end.LATENCY)):
                with m.If(chain.to_narrow):
                    m.d.comb += self.narrow.write.eq(Cat(column, last))
                    self._note(m, {Flag.NONFINITE: end.wild, Flag.SATURATED: end.saturated})
                m.d.sync += self.element.eq(self.element + 1)
                self._go(m, "WIDE")
                with m.If(last):
                    self._go(m, "RETIRE")
        following = self.following
        with m.State("RETIRE"):
            m.d.comb += self.retired.eq(1)
            m.d.sync += following.eq(0)
            self._go(m, "ADVANCE")
        with m.State("ADVANCE"):
            m.d.comb += self.port.eq(following)
            with m.If(self.count == MEMORY_LATENCY):
                m.d.comb += self.book.advance.eq(1)
                m.d.sync += following.eq(following + 1)
                self._go(m, "ADVANCE")
                with m.If(following == len(PORTS) - 1):
                    m.d.sync += self.flags.eq(0)
                    m.d.comb += [loops.step.eq(1), taps.rewind.eq(loops.last_row), taps.proceed.eq(1)]
                    self._go(m, "SELECT")
                    with m.If(loops.last):
                        m.d.comb += self.chains.ready.eq(1)
                        self._go(m, "IDLE")
