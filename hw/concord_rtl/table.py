"""Table look-up."""

from amaranth import *
from amaranth.lib import data, memory, wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig, clog2
from concord.spec.formats import HALF_MAX_BITS, HALF_WIDTH

from .arith.helpers import MAGNITUDE, below, delay, exponent, is_nan, is_special, register, significand
from .control import SLOT_BITS
from .memories.vector_memory import VectorMemory
from .shapes import shape_of

#: Fraction bits that are kept before rounding: a significand shifted by none is below one half.
FINE_BITS = 12
#: Greatest useful shift to the left: a subnormal number with the greatest scale needs it, others exceed any code.
MAX_SHIFT = 19
#: Bits of the sum of an exponent field and a scale, sign excluded.
SHIFT_BITS = 6
#: A number is ``significand * 2**(exponent - 25)``.
UNIT_BIAS = 25


def write_port(addr_bits: int, data_shape) -> wiring.Signature:
    """Signature of a write port, seen from who writes."""
    return wiring.Signature({"en": Out(1), "addr": Out(addr_bits), "data": Out(data_shape)})


class TableBank(wiring.Component):
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

    Members
    -------
    slot : In(4)
        Slot of the beat that comes ``SLOT_LEAD`` cycles later.
    i : In(ArrayLayout(16, P))
        Arguments.
    o : Out(ArrayLayout(16, P))
        Entries.
    nonfinite : Out(1)
        An argument was not finite; with ``o``.
    write : In(write_port(config.table_addr_bits, 16))
        Writes an entry.
    slot_write : In(write_port(clog2(config.table_slots), shape_of(config.table_slot)))
        Writes a descriptor.
    host_sel : In(1)
        The memory of lane 0 is read at ``host_addr``; a look-up in this lane is lost.
    host_addr : In(config.table_addr_bits)
        Address.
    host_data : Out(16)
        Entry, ``HOST_LATENCY`` cycles later.
    """

    LATENCY = 3 + VectorMemory.LATENCY
    SLOT_LEAD = 1
    HOST_LATENCY = VectorMemory.LATENCY

    def __init__(self, config: NpuConfig, table_init=(), slot_init=()):
        self.config = config
        self.table_init = list(table_init)
        self.slot_init = list(slot_init)
        for name, limit in [("table_init", config.table_depth), ("slot_init", config.table_slots)]:
            if len(getattr(self, name)) > limit:
                raise ValueError(f"{name} must have at most {limit} items, not {len(getattr(self, name))!r}")
        beat = data.ArrayLayout(HALF_WIDTH, config.mfu_lanes)
        super().__init__(
            {
                "slot": In(SLOT_BITS),
                "i": In(beat),
                "o": Out(beat),
                "nonfinite": Out(1),
                "write": In(write_port(config.table_addr_bits, HALF_WIDTH)),
                "slot_write": In(write_port(clog2(config.table_slots), shape_of(config.table_slot))),
                "host_sel": In(1),
                "host_addr": In(config.table_addr_bits),
                "host_data": Out(HALF_WIDTH),
            }
        )

    def elaborate(self, platform):
        m = Module()
        scale, bounds = self._slots(m)
        for p, x in enumerate(self.i):
            code, big, negative = self._code(m, p, x, scale)
            address = self._address(code, big, negative, bounds)
            if p == 0:
                address = Mux(self.host_sel, self.host_addr, address)
            m.d.comb += self.o[p].eq(self._memory(m, p, address))
        wild = Cat(is_special(x) for x in self.i).any()
        m.d.comb += [self.host_data.eq(self.o[0]), self.nonfinite.eq(delay(m, wild, self.LATENCY, "wild"))]
        return m

    def _slots(self, m):
        """Scale, one cycle after the slot number, and bounds, three cycles later."""
        fields = shape_of(self.config.table_slot)
        rows = [fields.from_bits(row) for row in self.slot_init]
        members = {name: field.shape for name, field in fields}
        scales = {"scale": members.pop("scale")}
        views = []
        for name, part in [("scales", scales), ("bounds", members)]:
            layout = data.StructLayout(part)
            init = [{key: getattr(row, key) for key in part} for row in rows]
            m.submodules[name] = mem = memory.Memory(shape=layout, depth=self.config.table_slots, init=init)
            write, read = mem.write_port(), mem.read_port(domain="comb")
            m.d.comb += [write.en.eq(self.slot_write.en), write.addr.eq(self.slot_write.addr)]
            m.d.comb += [write.data[key].eq(self.slot_write.data[key]) for key in part]
            slot = delay(m, self.slot, len(views) * 2, f"slot_{name}")
            m.d.comb += read.addr.eq(slot)
            views.append(read.data)
        scale = register(m, views[0].scale - (UNIT_BIAS - FINE_BITS), "scale")
        low, high, offset = (register(m, views[1][name], name) for name in ("low", "high", "offset"))
        bounds = {
            "low": low,
            "high": high,
            "offset": offset,
            "first": (low + offset)[: self.config.table_addr_bits],
            "final": (high + offset)[: self.config.table_addr_bits],
        }
        return scale, {name: register(m, value, f"{name}_bound") for name, value in bounds.items()}

    def _code(self, m, p, x, scale):
        """First to third cycle: ``rne(x * 2**scale)``, its sign, and whether it is too large for its bits."""
        finite = Mux(is_special(x), HALF_MAX_BITS, x[:MAGNITUDE])[:MAGNITUDE]
        sig = register(m, Mux(is_nan(x), 0, significand(finite)), f"sig_{p}")
        negative = register(m, x[MAGNITUDE] & ~is_nan(x), f"sign_{p}_1")
        shift = (exponent(finite) + scale)[: SHIFT_BITS + 1]
        limited = Mux(below(shift[:SHIFT_BITS], MAX_SHIFT), shift, MAX_SHIFT)[: MAX_SHIFT.bit_length()]
        count = register(m, Mux(shift[SHIFT_BITS], 0, limited), f"count_{p}")

        fine = register(m, sig << count, f"fine_{p}")
        negative = register(m, negative, f"sign_{p}_2")

        width = self.config.table_addr_bits + 1
        whole, half = fine[FINE_BITS : FINE_BITS + width], fine[FINE_BITS - 1]
        tie = half & ~fine[: FINE_BITS - 1].any()
        # The floor of the number, two's complement, plus a half; a tie then loses its last bit.
        up = Mux(negative, ~half | tie, half)
        code = Cat(whole ^ negative.replicate(width), negative, negative).as_signed() + up
        code = Cat(code[0] & ~tie, code[1 : width + 2])
        big = fine[FINE_BITS + width :].any()
        code = register(m, code, f"code_{p}").as_signed()
        return code, register(m, big, f"big_{p}"), register(m, negative, f"sign_{p}_3")

    def _address(self, code, big, negative, bounds):
        """Fourth cycle, before the memory: clamp and add the offset."""
        under = Mux(big, negative, code < bounds["low"])
        over = Mux(big, ~negative, code > bounds["high"])
        inside = code + bounds["offset"]
        return Mux(under, bounds["first"], Mux(over, bounds["final"], inside))[: self.config.table_addr_bits]

    def _memory(self, m, p, address):
        m.submodules[f"table_{p}"] = table = VectorMemory(HALF_WIDTH, self.config.table_depth, self.table_init)
        m.d.comb += [
            table.write.en.eq(self.write.en),
            table.write.addr.eq(self.write.addr),
            table.write.data.eq(self.write.data),
            table.read.addr.eq(address),
        ]
        return table.read.data
