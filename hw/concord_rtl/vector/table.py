"""Table look-up."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import data, memory

from concord.spec import timing
from concord.spec.config import NpuConfig, clog2
from concord.spec.formats import BINARY16_MAX_BITS, BINARY16_WIDTH
from concord_rtl.arith.binary16_fields import MAGNITUDE, exponent, is_nan, is_special, round_up, significand
from concord_rtl.memories.column_memory import ColumnMemory
from concord_rtl.memories.vector_memory import VectorMemory
from concord_rtl.parts.bits import below
from concord_rtl.parts.component import Component, Input, NpuInterface, Output
from concord_rtl.parts.control import SLOT_BITS
from concord_rtl.parts.memory_ports import WritePort
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import Stages

#: Fraction bits that are kept before rounding: a significand shifted by none is below one half.
FINE_BITS = 12
#: Greatest useful shift to the left: a subnormal number with the greatest scale needs it, others exceed any code.
MAX_SHIFT = 19
#: Bits of the sum of an exponent field and a scale, sign excluded.
SHIFT_BITS = 6
#: A number is ``significand * 2**(exponent - 25)``.
UNIT_BIAS = 25


class TableAccess(NpuInterface):
    """Accesses of the host to tables, seen from the host.

    Parameters
    ----------
    config : NpuConfig
    """

    write = Output(lambda self: WritePort(self.config.table_addr_bits, BINARY16_WIDTH), "Write of an entry.")
    slot_write = Output(
        lambda self: WritePort(clog2(self.config.table_slots), shape_of(self.config.table_slot)),
        "Write of a descriptor.",
    )
    sel = Output(1, "The host reads: the address of the host is used.")
    addr = Output(lambda self: self.config.table_addr_bits, "Address.")
    data = Input(BINARY16_WIDTH, "Its entry, ``TableBank.HOST_LATENCY`` cycles later.")


class TableBank(Component):
    """P independent look-ups ``memory[offset + clamp(rne(x * 2**scale), low, high)]`` per cycle.

    Does not stall, and does not check that a descriptor stays inside the memory. One beat per cycle, ``LATENCY`` cycles
    later; the slot number is given ``SLOT_LEAD`` cycles before the beat. An infinity counts as ±65504 and a NaN as +0.
    Each lane has its own copy of the memory; a write goes to all.

    Parameters
    ----------
    config : NpuConfig
        Gives P, depth and slots.
    table_init, slot_init : list of int
        Initial contents.
    held : bool
        Slot and arguments are held for ``SLOT_LEAD + LATENCY + 1`` cycles and until the entries have been used. The
        descriptors are in block RAM then.
    """

    slot = Input(SLOT_BITS, "Slot of the beat that comes ``SLOT_LEAD`` cycles later.")
    i = Input(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "Arguments.")
    o = Output(lambda self: data.ArrayLayout(BINARY16_WIDTH, self.config.mfu_lanes), "Entries.")
    nonfinite = Output(1, "An argument was not finite; with ``o``.")
    clamped = Output(1, "A code was beyond an end that is not constant; with ``o``.")
    tables = Input(
        lambda self: TableAccess(self.config),
        "Accesses of the host. While ``sel`` is set the memory of lane 0 is read for it; a look-up in this lane is "
        "lost.",
    )

    LATENCY = timing.TABLE
    SLOT_LEAD = timing.TABLE_SLOT_LEAD
    HOST_LATENCY = VectorMemory.LATENCY

    def __init__(self, config: NpuConfig, table_init=(), slot_init=(), *, held=False):
        self.config = config
        self.held = held
        self.table_init = list(table_init)
        self.slot_init = list(slot_init)
        for name, limit in [("table_init", config.table_depth), ("slot_init", config.table_slots)]:
            if len(getattr(self, name)) > limit:
                raise ValueError(f"{name} must have at most {limit} items, not {len(getattr(self, name))!r}")
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        stage = Stages(m, held=self.held)
        scale, bounds, ends, constant_ends = self._slots(stage)
        clamped = []
        for p, x in enumerate(self.i):
            negative, fine = self._fine(stage, p, x, scale)
            under, over, inside = self._codes(stage, p, negative, fine, bounds)
            address = Mux(under, ends[0], Mux(over, ends[1], inside))
            clamped += [under & ~constant_ends[0], over & ~constant_ends[1]]
            if p == 0:
                address = Mux(self.tables.sel, self.tables.addr, address)
            m.d.comb += self.o[p].eq(self._memory(stage, p, address))
        wild = Cat(is_special(x) for x in self.i).any()
        m.d.comb += [
            self.tables.data.eq(self.o[0]),
            self.nonfinite.eq(stage.delay(wild, self.LATENCY, "wild")),
            self.clamped.eq(stage.delay(Cat(clamped).any(), VectorMemory.LATENCY, "clamped")),
        ]
        return m

    def _slots(self, stage):
        """Scale one cycle after the slot number, bounds three cycles after it.

        The addresses of the bounds, and whether the ends are constant, follow four cycles after it.
        """
        m = stage.m
        fields = shape_of(self.config.table_slot)
        rows = [fields.from_bits(row) for row in self.slot_init]
        members = {name: field.shape for name, field in fields}
        scales = {"scale": members.pop("scale")}
        views: list[Any] = []
        for name, part in [("scales", scales), ("bounds", members)]:
            layout = data.StructLayout(part)
            init = [{key: getattr(row, key) for key in part} for row in rows]
            block = {"ram_style": "block"} if self.held else {}
            m.submodules[name] = mem = memory.Memory(
                shape=layout, depth=self.config.table_slots, init=init, attrs=block
            )
            write, read = mem.write_port(), mem.read_port(domain="sync" if self.held else "comb")
            m.d.comb += [write.en.eq(self.tables.slot_write.en), write.addr.eq(self.tables.slot_write.addr)]
            m.d.comb += [write.data[key].eq(self.tables.slot_write.data[key]) for key in part]
            slot = stage.delay(self.slot, len(views), f"slot_{name}")
            m.d.comb += read.addr.eq(slot)
            views.append(read.data)
        scale = stage.register(views[0].scale - (UNIT_BIAS - FINE_BITS), "scale")
        low, high, offset = (stage.register(views[1][name], name) for name in ("low", "high", "offset"))
        addresses = self.config.table_addr_bits
        # Signs of sums with these say that a code is below the least one, or not above the greatest.
        bounds = [stage.register(value, f"bound_{k}") for k, value in enumerate((-low, -high - 1, offset))]
        ends = [stage.delay((bound + offset)[:addresses], 2, f"end_{k}") for k, bound in enumerate((low, high))]
        constant_ends = [stage.delay(views[1][f"settled_{end}"], 3, f"settled_{end}") for end in ("low", "high")]
        return scale, bounds, ends, constant_ends

    def _fine(self, stage, p, x, scale):
        """First and second cycle: sign of a number, and its magnitude times ``2**scale`` with some fraction bits."""
        finite = Mux(is_special(x), BINARY16_MAX_BITS, x[:MAGNITUDE])[:MAGNITUDE]
        sig = stage.register(Mux(is_nan(x), 0, significand(finite)), f"sig_{p}")
        negative = stage.delay(x[MAGNITUDE] & ~is_nan(x), 2, f"sign_{p}")
        shift = (exponent(finite) + scale)[: SHIFT_BITS + 1]
        limited = Mux(below(shift[:SHIFT_BITS], MAX_SHIFT), shift, MAX_SHIFT)[: MAX_SHIFT.bit_length()]
        count = stage.register(Mux(shift[SHIFT_BITS], 0, limited), f"count_{p}")
        return negative, stage.register(sig << count, f"fine_{p}")

    def _codes(self, stage, p, negative, fine, bounds):
        """Third cycle: round, compare with the bounds, add the offset."""
        width = self.config.table_addr_bits + 1
        whole = fine[FINE_BITS : FINE_BITS + width]
        up = round_up(whole[0], fine[FINE_BITS - 1], fine[: FINE_BITS - 1].any())
        # The code is the two's complement of whole plus what rounding adds: one carry serves both.
        carry = up ^ negative
        code = Cat(Const(1, 1), whole ^ negative.replicate(width), negative, negative).as_signed()
        low, high, inside = ((code + Cat(carry, bound).as_signed())[1 : width + 3] for bound in bounds)
        big = fine[FINE_BITS + width :].any()
        under = stage.register(Mux(big, negative, low[-1]), f"under_{p}")
        over = stage.register(Mux(big, ~negative, ~high[-1]), f"over_{p}")
        inside = stage.register(inside[: self.config.table_addr_bits], f"inside_{p}")
        return under, over, inside

    def _memory(self, stage, p, address):
        m = stage.m
        depth = self.config.table_depth
        table: ColumnMemory | VectorMemory
        if self.held:
            table = ColumnMemory([BINARY16_WIDTH], depth, self.table_init)
        else:
            table = VectorMemory(BINARY16_WIDTH, depth, self.table_init)
        m.submodules[f"table_{p}"] = table
        m.d.comb += [
            table.write.en.eq(self.tables.write.en),
            table.write.addr.eq(self.tables.write.addr),
            table.write.data.eq(self.tables.write.data),
            table.read.addr.eq(address),
        ]
        return table.read.data
