"""Status and control registers."""

from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import SPEC_VERSION, NpuConfig
from concord.spec.isa import Trap
from concord.spec.memmap import MAGIC, REGISTERS, Reg

from .serial.counters import TURN, CounterBank
from .shapes import shape_of

#: Counters of a run and the strobe each counts.
COUNTERS = {
    Reg.DENSE_STEPS: "dense_step",
    Reg.DEPTHWISE_STEPS: "depthwise_step",
    Reg.CHAINS: "chain",
    Reg.VECTORS: "vector",
    Reg.HAZARD_STALLS: "stalled",
}


class Registers(wiring.Component):
    """The register region: identity, control, state and counters.

    Parameters
    ----------
    config : NpuConfig

    Members
    -------
    write : In(1)
        Write ``w_data`` to the register at ``addr``; only CONTROL listens.
    addr, w_data, r_data : In, In, Out
        Register number and contents; ``r_data`` follows ``addr`` ``HOST_LATENCY`` cycles later.
    start, clear_flags, pc : Out
        Effect of a write to CONTROL.
    busy, done, trapped, trap, trap_pc, clearing, flags, link_errors : In
        What the registers show.
    dense_step, depthwise_step, chain, vector, stalled : In(1)
        Events that are counted while a program runs.
    status : Out(32)
        The register STATUS.
    """

    def __init__(self, config: NpuConfig):
        self.config = config
        self.HOST_LATENCY = 1 + TURN if config.serial else 1
        super().__init__(
            {
                "write": In(1),
                "addr": In(range(len(REGISTERS))),
                "w_data": In(32),
                "r_data": Out(32),
                "start": Out(1),
                "clear_flags": Out(1),
                "pc": Out(16),
                "busy": In(1),
                "done": In(1),
                "trapped": In(1),
                "trap": In(range(max(Trap) + 1)),
                "trap_pc": In(16),
                "clearing": In(1),
                "flags": In(32),
                "link_errors": In(32),
                "status": Out(32),
                **{name: In(1) for name in COUNTERS.values()},
            }
        )

    def elaborate(self, platform):
        m = Module()
        values = {reg: Const(0, 32) for reg in Reg}
        values[Reg.MAGIC] = Const(MAGIC, 32)
        values[Reg.VERSION] = Const(SPEC_VERSION, 32)
        values[Reg.FINGERPRINT] = Const(self.config.fingerprint & 0xFFFFFFFF, 32)
        values[Reg.FINGERPRINT_HIGH] = Const(self.config.fingerprint >> 32, 32)
        values[Reg.FLAGS_ANY] = self.flags
        values[Reg.LINK_ERRORS] = self.link_errors

        control = Signal(shape_of(REGISTERS[Reg.CONTROL].layout))
        accept = self.write & (self.addr == Reg.CONTROL) & ~self.busy & ~self.clearing
        m.d.comb += [control.eq(self.w_data)]
        m.d.sync += [
            self.start.eq(accept & control.start),
            self.clear_flags.eq(accept & control.clear_flags),
        ]
        with m.If(accept):
            m.d.sync += self.pc.eq(control.pc)

        status = Signal(shape_of(REGISTERS[Reg.STATUS].layout))
        pending = self.start | self.clear_flags
        m.d.comb += [
            status.busy.eq(self.busy | self.clearing | pending),
            status.done.eq(self.done),
            status.trapped.eq(self.trapped),
        ]
        m.d.sync += self.status.eq(status)
        values[Reg.STATUS] = self.status
        trap = Signal(shape_of(REGISTERS[Reg.TRAP].layout))
        m.d.comb += [trap.code.eq(self.trap), trap.pc.eq(self.trap_pc)]
        values[Reg.TRAP] = Value.cast(trap)

        if self.config.serial:
            valid = self._bank(m, values)
        else:
            valid = 1
            cycles = Signal(64)
            values[Reg.CYCLES], values[Reg.CYCLES_HIGH] = cycles[:32], cycles[32:]
            with m.If(self.start):
                m.d.sync += cycles.eq(0)
            with m.Elif(self.busy):
                m.d.sync += cycles.eq(cycles + 1)
            for reg, name in COUNTERS.items():
                values[reg] = self._counter(m, name)
        with m.If(valid):
            m.d.sync += self.r_data.eq(Array(values[reg] for reg in Reg)[self.addr])
        return m

    def _bank(self, m, values):
        """Counters in block RAM; returns when the value of the one at ``addr`` is there."""
        names = {Reg.CYCLES: "cycle", Reg.CYCLES_HIGH: "cycle_high", **COUNTERS}
        first = min(names)
        m.submodules.bank = bank = CounterBank([names[reg] for reg in sorted(names)], {"cycle_high": "cycle"})
        m.d.comb += [bank.clear.eq(self.start), bank.addr.eq(self.addr - first), bank.cycle.eq(self.busy)]
        m.d.comb += [getattr(bank, name).eq(getattr(self, name)) for name in COUNTERS.values()]
        values |= dict.fromkeys(names, bank.data)
        return bank.valid

    def _counter(self, m, name):
        """Count the events ``name`` of a run."""
        event, count = Signal(name=f"{name}_event"), Signal(32, name=f"{name}_count")
        m.d.sync += event.eq(getattr(self, name))
        with m.If(self.start):
            m.d.sync += count.eq(0)
        with m.Else():
            m.d.sync += count.eq(count + event)
        return count
