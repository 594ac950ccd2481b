"""Destinations of integer chains."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data

from concord.spec.config import clog2
from concord.spec.formats import BINARY16_WIDTH
from concord.spec.integers import DIGIT_BITS, WIDE_BITS
from concord_rtl.arith.block_float import activations
from concord_rtl.memories.tile_port import TilePort
from concord_rtl.parts.component import Input, NpuUnit, Output
from concord_rtl.parts.memory_ports import WritePort
from concord_rtl.parts.shapes import shape_of
from concord_rtl.pipe.integers.collector import ELEMENT_BITS
from concord_rtl.pipe.integers.ports import integer_layout, loops_layout, number_bits
from concord_rtl.pipe.integers.vector_loops import VectorLoops
from concord_rtl.pipe.layouts import vector_addr_bits
from concord_rtl.pipe.loop_address import LoopAddress


class IntegerWriter(NpuUnit):
    """Writes vectors to a vector memory, and as columns and rows of tiles, a word of each memory per cycle.

    The words of a vector leave in the cycles from ``ready`` on: digits one after the other, both words of wide
    integers, a column for every digit, then the words of a row. Of an update the new weights are what is written, and
    the accumulators go to the wide memory.

    Parameters
    ----------
    config : NpuConfig
    """

    loops = Input(lambda self: loops_layout(self.config), "Loops of the chain, which stay.")
    state = Input(lambda self: integer_layout(self.config), "Destinations, likewise.")
    accumulators = Input(lambda self: vector_addr_bits(self.config), "From a word of weights to its accumulators.")
    load = Input(1, "A chain begins.")
    closes = Input(1, "A vector is there in the next cycle.")
    ready = Input(1, "The vector is there, and stays for the interval of the chain.")
    i = Input(
        lambda self: data.ArrayLayout(ELEMENT_BITS, self.config.native),
        "Its elements: integers, digits with their halves added, or a weight and above it its accumulator.",
    )
    shift = Output(1, "The next digit is wanted in the next cycle.")
    finished = Output(1, "The interval of the last vector is over.")
    narrow = Output(
        lambda self: WritePort(vector_addr_bits(self.config), activations(self.config).word), "Narrow words."
    )
    wide = Output(lambda self: WritePort(vector_addr_bits(self.config), shape_of(self.config.wide_word)), "Wide words.")
    tiles = Output(lambda self: TilePort(self.config), "Columns and rows of tiles.")

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        run = self.state.run
        m.submodules.loops = loops = VectorLoops(self.config)
        begun, active = Signal(), Signal()
        with m.If(self.load):
            m.d.sync += begun.eq(0)
        with m.Elif(self.closes):
            m.d.sync += begun.eq(1)
        m.d.comb += [loops.loops.eq(self.loops), loops.load.eq(self.load), loops.step.eq(self.closes & begun)]
        cycle = Signal(len(run.interval))  # of the interval of a vector, from ``ready`` on
        slot = Signal.like(cycle)
        m.d.comb += slot.eq(Mux(self.ready, 0, cycle))
        final = loops.last.all()
        with m.If(self.load):
            m.d.sync += active.eq(0)
        with m.Elif(self.ready):
            m.d.sync += [active.eq(1), cycle.eq(1)]
        with m.Elif(active):
            m.d.sync += cycle.eq(cycle + 1)
            with m.If(cycle == run.interval):
                m.d.sync += active.eq(0)
                m.d.comb += self.finished.eq(final)
        writes = self.ready | active
        addresses = {
            name: self._address(m, name, start, strides, loops)
            for name, start, strides in (
                ("vector", *self._target()),
                ("column", self.state.column.addr + self.state.number_offset, self.state.column),
                ("row", self.state.tile_row.addr + self.state.number_offset, self.state.tile_row),
            )
        }
        m.d.comb += self.shift.eq(writes & self._several)
        self._vectors(m, addresses["vector"], writes, slot)
        self._tiles(m, addresses["column"], addresses["row"], writes, slot)
        return m

    @property
    def _several(self) -> Value:
        """Bit that is set if words are digits: new weights never are."""
        return (self.state.count != 1) & ~self.state.run.update

    def _target(self):
        """Address of the destination of vectors, and a view of it: new weights go to where they were."""
        target, weights = self.state.target, self.state.operand
        update = self.state.run.update
        address = Mux(update, weights.as_value(), target.as_value())
        view = data.View(target.shape(), address)
        return view.addr, view

    def _address(self, m, name, start, strides, loops):
        """The address of the vector that is there."""
        m.submodules[name] = address = LoopAddress(len(strides.addr))
        m.d.comb += [
            address.load.eq(self.load),
            address.start.eq(start),
            address.step.eq(loops.step),
            address.last.eq(loops.last[:2]),
            *(address.distances[k].eq(strides[level]) for k, level in enumerate(("row", "inner", "outer"))),
        ]
        return address.addr

    def _digits(self):
        """The least digits of the elements, or the integers themselves."""
        size = self.config.act_mant
        half = 1 << DIGIT_BITS - 1
        for element in self.i:
            digit = (element[:DIGIT_BITS] ^ half).as_signed()
            yield Mux(self._several, digit, element[:size].as_signed())

    def _vectors(self, m, address, writes, slot):
        """To the vector memories."""
        run = self.state.run
        offset = Signal.like(address)
        with m.If(self.closes):
            m.d.sync += offset.eq(0)
        with m.Elif(writes):
            m.d.sync += offset.eq(offset + self.state.target_digit)
        whole = Cat(element[:WIDE_BITS] for element in self.i)
        weight, acc = self.config.act_mant, BINARY16_WIDTH
        accumulators = Cat(element[weight : weight + acc] for element in self.i)
        narrow = run.to_vector & ~self.state.target_wide & (slot < self.state.count) | run.update & (slot == 0)
        wide = run.to_vector & self.state.target_wide & (slot < 2) | run.update & (slot == 0)
        second = slot[0]
        m.d.comb += [
            self.narrow.en.eq(writes & narrow),
            self.narrow.addr.eq(address + offset),
            self.narrow.data.exp.eq(0),
            *(self.narrow.data.mant[n].eq(digit) for n, digit in enumerate(self._digits())),
            self.wide.en.eq(writes & wide),
            self.wide.addr.eq(address + Mux(run.update, self.accumulators, second)),
            self.wide.data.eq(
                Mux(run.update, accumulators, Mux(second, whole[len(whole) // 2 :], whole[: len(whole) // 2]))
            ),
        ]

    def _tiles(self, m, column, row, writes, slot):
        """To the matrix memory: columns, then the words of a row."""
        run, config = self.state.run, self.config
        lane_bits, native_bits = clog2(config.lanes), clog2(config.native)
        offset = Signal(number_bits(config))
        with m.If(self.closes):
            m.d.sync += offset.eq(0)
        with m.Elif(writes):
            m.d.sync += offset.eq(offset + self.state.column_digit)
        digits = list(self._digits())
        columns = writes & run.to_column & (slot < self.state.count)
        part = Signal(range(max(2, config.steps + 1)))
        rows = writes & run.to_row & ~columns & (part != config.steps)
        with m.If(self.closes):
            m.d.sync += part.eq(0)
        with m.Elif(rows):
            m.d.sync += part.eq(part + 1)
        number = (column + offset)[: number_bits(config)]
        word = Cat(Const(0, clog2(config.steps)), row[native_bits:]) + part
        m.d.sync += [
            self.tiles.lane_en.eq(Mux(columns, 1 << number[:lane_bits], 0)),
            self.tiles.row_en.eq(rows),
            self.tiles.addr.eq(Mux(columns, number[lane_bits:], word)),
            self.tiles.row.eq(row[:native_bits]),
            *(self.tiles.lane_data[n].eq(digit) for n, digit in enumerate(digits)),
        ]
        with m.Switch(part):
            for k in range(config.steps):
                with m.Case(k):
                    chosen = digits[k * config.lanes : (k + 1) * config.lanes]
                    m.d.sync += [self.tiles.row_data[lane].eq(digit) for lane, digit in enumerate(chosen)]
