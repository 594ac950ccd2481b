"""Matrix memory: all rows of a word at once for the tile engines, one row at a time for the host."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_
from typing import Any

from amaranth import *
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig, clog2
from concord.spec.multipliers import paired
from concord.spec.operations import Op
from concord_rtl.arith.block_float import weights
from concord_rtl.cells.kept_register import KeptRegister
from concord_rtl.cells.spram import Spram
from concord_rtl.families import primitives_of
from concord_rtl.memories.lane_memory import LaneMemory
from concord_rtl.memories.row_access import RowAccess, RowPort
from concord_rtl.memories.row_write import RowWrite
from concord_rtl.memories.tile_port import TilePort
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.parts.component import Component, Input
from concord_rtl.parts.stages import delay, register

#: Whether a row is written, its word, its number within that, and what it becomes.
_Writer = tuple[Value, Value, Value, Value]


class MatrixMemory(Component):
    """Words of T*N rows: L mantissas and an exponent each.

    Does not arbitrate: while ``host.sel`` is set the address of the host is used and ``read.data`` belongs to the host.
    One word per cycle, ``LATENCY`` cycles after its address; one row for the host, ``HOST_LATENCY`` cycles after its
    address, which must stay if a row has several ``parts``. A read of the host directly after a write gives the new
    row.

    With ``m_wr`` the pipe writes rows of tiles while the tile engines read. A read that comes
    ``ROW_LATENCY`` cycles after the last mantissas of a row gives the new row.

    Integer chains, where there are any, write rows and lanes of words while nothing is read; a read that comes three
    cycles later gives what they have written. Lanes are in memories of their own then.

    Copies from the external memory, where there is one, write rows while nothing is read, as integer chains do.

    On a device with single-port memories (SPRAM) the mantissas are put into them as far as they go, unless the pipe or
    copies write; they cannot be initialised.

    Parameters
    ----------
    config : NpuConfig
        Configuration.
    init : list
        Rows as in the matrix region of the memory map: address = word * T*N + row.
    """

    read = Input(
        lambda self: wiring.Signature(
            {
                "addr": Out(range(self.config.matrix_depth)),
                "data": In(data.ArrayLayout(weights(self.config).word, self.config.rows)),
            }
        ),
        "Port of the tile engines. ``addr``: word address; ``data``: the word, or anything while the host has the "
        "memory.",
    )
    host = Input(lambda self: RowAccess(self.config, waits=True), "Port of the host.")
    row = Input(
        lambda self: RowPort(self.config),
        "Rows from the pipe, none while the host has the memory. Only with ``m_wr``.",
        when=lambda self: self.config.has(Op.M_WR),
    )

    tiles = Input(
        lambda self: TilePort(self.config),
        "Rows and lanes from integer chains, none while the host has the memory. Only with integer chains.",
        when=lambda self: self.config.has(Op.I_RUN),
    )

    copied = Input(
        lambda self: RowWrite(self.config),
        "Rows from the external memory, none while the host has the memory. Only with one.",
        when=lambda self: self.config.has(Op.COPY),
    )

    #: Cycles from the last mantissas of a row of the pipe to the address of a read that gives the new row.
    ROW_LATENCY = 1
    #: The block RAMs are all over the device: requests are registered twice on their way, per group and per row.
    LATENCY = 2 + VectorMemory.LATENCY
    #: Rows that share a register on the way to them, and that are merged in one cycle on the way to the host.
    GROUP = 4
    #: Parts of a row of a pair for the host, a power of two.
    PARTS = 4

    def __init__(self, config: NpuConfig, init=()):
        self.config = config
        self.init = [int(row) for row in init]
        if len(self.init) > config.matrix_depth * config.rows:
            raise ValueError(f"init must have at most {config.matrix_depth * config.rows} rows, not {len(self.init)}")
        super().__init__()

    @property
    def parts(self) -> int:
        """Parts in which a row goes to and from the host: wide rows would take a tenth of all wires of a device."""
        return self.PARTS if paired(self.config) else 1

    @property
    def HOST_LATENCY(self) -> int:
        """Cycles from the address to the row for the host."""
        if paired(self.config):
            return self.LATENCY + 1 + self._levels(self.config.rows // 2) + self.parts
        return self.LATENCY + self._levels(self.config.rows)

    @property
    def has_lanes(self) -> bool:
        """True if lanes of a word are written by themselves, and are in memories of their own for that."""
        return self.config.has(Op.I_RUN)

    def _levels(self, words: int) -> int:
        """Registers on the way of so many words that are merged."""
        levels = 0
        while words > 1:
            levels, words = levels + 1, -(-words // self.GROUP)
        return levels

    def elaborate(self, platform: Any) -> Module:
        written = self.config.has(Op.M_WR) or self.config.has(Op.COPY) or self.has_lanes
        single = self.config.matrix_depth <= Spram.DEPTH and not written
        spare = primitives_of(platform).single_port_rams if single else 0
        if spare and self.init:
            raise ValueError("init must be empty in SPRAM, which cannot be initialised: load it over the link")
        m = Module()
        if paired(self.config):
            self._pairs(m, spare)
        else:
            self._rows(m, spare)
        return m

    def _groups(self, row: Value, w_en: Value) -> Iterator[tuple[range, Value, Value]]:
        """Rows that share a register on the way to them, and which of them are read and written."""
        for first in range(0, self.config.rows, self.GROUP):
            rows = range(first, min(first + self.GROUP, self.config.rows))
            chosen = Cat(row == number for number in rows)
            to_read = chosen | (~self.host.sel).replicate(len(rows))
            to_write = chosen & w_en.replicate(len(rows))
            yield rows, to_read, to_write

    def _places(self) -> tuple[Value, Value, Value, Value]:
        """Addresses on their way to the rows, the row that is named, whether it is written, and its word.

        Rows from integer chains and from the pipe are written at an address of their own.
        """
        host = self.host
        addr = Mux(host.sel, host.addr, self.read.addr)
        writers = [*self._from_tiles(), *self._from_beats(), *self._from_copies()]
        if not writers:
            return addr, host.row, host.sel & host.en, host.w_data
        write, place, row, word = writers[0]
        for also, *others in writers[1:]:
            place, row, word = (Mux(also, *both) for both in zip(others, (place, row, word), strict=True))
            write = also | write
        place, row, write, word = (
            Mux(host.sel, *both)
            for both in ((host.addr, place), (host.row, row), (host.en, write), (host.w_data, word))
        )
        return Cat(addr, place), row, write, word

    def _from_copies(self) -> Iterator[_Writer]:
        """Rows from the external memory, if there is one."""
        if self.config.has(Op.COPY):
            yield self.copied.en, self.copied.addr, self.copied.row, self.copied.data

    def _from_tiles(self) -> Iterator[_Writer]:
        """Rows from integer chains, if there are any."""
        if self.has_lanes:
            tiles = self.tiles
            yield tiles.row_en, tiles.addr, tiles.row, tiles.row_data.as_value()

    def _from_beats(self) -> Iterator[_Writer]:
        """Rows of the pipe, if it writes: with the latest mantissas that fill one."""
        if self.config.has(Op.M_WR):
            port = self.row
            word, rows = clog2(self.config.lanes // self.config.mfu_lanes), clog2(self.config.rows)
            ends = Cat(port.valid, port.beat[:word]).all()
            place = Cat(port.row, port.beat[word:])
            row, tile, slice_ = place[:rows], place[rows : len(port.row)], place[len(port.row) :]
            yield ends, Cat(slice_, tile), row, Cat(port.mant, port.exp)

    def _rows(self, m, spare):
        """Rows by themselves: whole words to and from the host, and lanes from integer chains."""
        words: list[Value] = []
        m.d.comb += self.host.ready.eq(1)
        addrs, number, write, word = self._places()
        lane_en, size = self.tiles.lane_en if self.has_lanes else Const(0, 0), self.config.wgt_mant
        common = Cat(addrs, lane_en, word)
        for rows, to_read, to_write in self._groups(number, write):
            columns = Cat(self.tiles.lane_data[row] for row in rows) if self.has_lanes else Const(0, 0)
            group = self._kept(m, f"group{rows[0]}", Cat(common, to_read, to_write, columns))
            head, enables, columns = group[: len(common)], group[len(common) :], group[len(common) + 2 * len(rows) :]
            for k, row in enumerate(rows):
                column = columns[k * size : (k + 1) * size]
                request = self._kept(m, f"request{row}", Cat(head, enables[k], enables[len(rows) + k], column))
                places, w_data = request[: len(addrs)], request[len(common) - len(word) : len(common)]
                r_en, w_en = request[len(common) :][:2]
                if self.has_lanes:
                    lane = request[len(addrs) :][: len(lane_en)], request[len(common) + 2 :]
                    words.append(self._row_of_lanes(m, row, places, w_data, r_en, w_en, *lane))
                else:
                    spare -= self._row(m, row, places, w_data, r_en, w_en, spare)
                    words.append(self.read.data[row].as_value())
        m.d.comb += self.host.data.eq(self._merged(m, words))

    def _pairs(self, m, spare):
        """Rows that share their multipliers and are side by side: words in parts to and from the host.

        The parts go round all the time. Those to the rows are put together beside each pair, those from the row that
        is read in front of the host.
        """
        parts, size = self.parts, -(-self.config.matrix_row.width // self.parts)
        turn, part, piece = Signal(range(parts)), Signal(range(parts)), Signal(size, reset_less=True)
        pieces = Array(_parts(self.host.w_data, parts, size))
        m.d.sync += [turn.eq(turn + 1), part.eq(turn), piece.eq(pieces[turn])]
        addr, number, write, _ = self._places()
        common = Cat(addr, part, piece)
        words: list[Value] = []
        for rows, to_read, to_write in self._groups(number, write):
            group = self._kept(m, f"group{rows[0]}", Cat(common, to_read, to_write))
            enables = group[len(common) :]
            for k, row in list(enumerate(rows))[::2]:
                own = enables[k : k + 2], enables[len(rows) + k :][:2]
                request = self._kept(m, f"request{row}", Cat(group[: len(common)], *own))
                here = request[len(addr) : len(addr) + len(part)]
                arrived = request[len(addr) + len(part) : len(common)]
                w_data = Signal(parts * size, name=f"w_data{row}", reset_less=True)
                with m.Switch(here):
                    for n in range(parts):
                        with m.Case(n):
                            m.d.sync += w_data[n * size :][:size].eq(arrived)
                r_en, w_en = request[len(common) :][:2], request[len(common) + 2 :]
                for n in range(2):
                    access = request[: len(addr)], w_data[: self.config.matrix_row.width], Const(1, 1), w_en[n]
                    spare -= self._row(m, row + n, *access, spare)
                words.append(self._read_pair(m, row, r_en, here, size))
        self._put_together(m, self._merged(m, words), part, size)
        count = Signal(range(parts + 2))  # cycles in which parts have left
        m.d.sync += self.host.ready.eq(self.host.sel & (count == parts))
        with m.If(~self.host.sel):
            m.d.sync += count.eq(0)
        with m.Elif(count != parts):
            m.d.sync += count.eq(count + 1)

    def _read_pair(self, m, row, r_en, here, size) -> Value:
        """A part of the row of a pair that the host reads; zero if it reads another one."""
        row_part = Signal(size, name=f"part{row}", reset_less=True)
        enabled = delay(m, r_en, VectorMemory.LATENCY - 1, f"enabled{row}")
        gated = []
        for n in range(2):
            word = self.read.data[row + n].as_value()
            for k, part in enumerate(_parts(word, self.parts, size)):
                enabled_here = register(m, enabled[n] & (here == k), f"enabled{row + n}_{k}")
                gated.append(part & enabled_here.replicate(size))
        m.d.sync += row_part.eq(reduce(or_, gated))
        return row_part

    def _put_together(self, m, row_part, part, size):
        """Parts of a row to the row."""
        late = delay(m, part, 4 + self._levels(self.config.rows // 2), "part")
        with m.Switch(late):
            for n in range(self.parts):
                with m.Case(n):
                    place = self.host.data[n * size : (n + 1) * size]
                    m.d.sync += place.eq(row_part)

    @staticmethod
    def _kept(m, name, value) -> Value:
        m.submodules[name] = register = KeptRegister(len(value))
        m.d.comb += register.i.eq(value)
        return register.o

    def _merged(self, m, words) -> Value:
        """Reading for the host, all words but one are zero: OR them, a register per level."""
        while len(words) > 1:
            groups = [words[k : k + self.GROUP] for k in range(0, len(words), self.GROUP)]
            words = [Signal.like(groups[0][0], name=f"of{len(groups)}_{k}") for k in range(len(groups))]
            m.d.sync += [word.eq(reduce(or_, group)) for word, group in zip(words, groups, strict=True)]
        return words[0]

    def _row(self, m, row, addrs, w_data, r_en, w_en, spare) -> int:
        """Build the memory of one row with at most ``spare`` SPRAMs; return how many it took.

        ``addrs`` is that of a read, followed by that of a write where it has its own.
        """
        width, bits = self.config.matrix_row.width, len(self.read.addr)
        addr, w_addr = addrs[:bits], addrs[-bits:]
        blocks = min(spare, width // Spram.WIDTH)
        out = []
        for k in range(blocks):
            m.submodules[f"row{row}_{k}"] = ram = Spram()
            piece = w_data.word_select(k, Spram.WIDTH)
            m.d.comb += [ram.addr.eq(addr), ram.r_en.eq(r_en), ram.w_en.eq(w_en), ram.w_data.eq(piece)]
            out.append(ram.data)
        if rest := width - blocks * Spram.WIDTH:
            init = self.init[row :: self.config.rows]
            m.submodules[f"row{row}"] = rows = VectorMemory(rest, self.config.matrix_depth, init)
            m.d.comb += [
                rows.read.addr.eq(addr),
                rows.write.addr.eq(w_addr),
                rows.read.en.eq(r_en),
                rows.write.en.eq(w_en),
                rows.write.data.eq(w_data[blocks * Spram.WIDTH :]),
            ]
            out.append(rows.read.data)
        m.d.comb += self.read.data[row].as_value().eq(Cat(out))
        return blocks

    def _row_of_lanes(self, m, row, addrs, w_data, r_en, w_en, lane_en, column) -> Value:
        """Build the memory of one row of which a lane can be written by itself, with a mantissa of a column.

        Returns the word that is read.
        """
        m.submodules[f"row{row}"] = memory = LaneMemory(self.config, self.init[row :: self.config.rows])
        bits, lanes, size = len(self.read.addr), self.config.lanes, self.config.wgt_mant
        each = [Mux(w_en, w_data[lane * size :][:size], column) for lane in range(lanes)]
        m.d.comb += [
            memory.addr.eq(addrs[:bits]),
            memory.r_en.eq(r_en),
            memory.w_addr.eq(addrs[bits:]),
            memory.w_en.eq(lane_en | w_en.replicate(lanes)),
            memory.w_data.eq(Cat(*each, w_data[lanes * size :] & w_en.replicate(self.config.wgt_exp_width))),
            self.read.data[row].as_value().eq(memory.data),
        ]
        return memory.data


def _parts(word, count, size) -> list[Value]:
    """The parts of a word; the last one may be padded with zeros."""
    padded = Cat(word, Const(0, count * size - len(word)))
    return [padded[k * size : (k + 1) * size] for k in range(count)]
