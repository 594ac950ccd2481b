"""Status and control registers."""

from __future__ import annotations

from typing import Any

from amaranth import *

from concord.spec.config import SPEC_VERSION, NpuConfig
from concord.spec.memmap import MAGIC, REGISTERS, Reg, control_layout, status_layout
from concord.spec.operations import Op
from concord_rtl.dram.status import DramStatus
from concord_rtl.host.counter_bank import TURN, CounterBank
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import shape_of
from concord_rtl.parts.stages import register
from concord_rtl.pipe.ports import EventPort, RunPort

#: Counters of a run and the strobe each counts.
COUNTERS = {
    Reg.DENSE_STEPS: "dense_step",
    Reg.DEPTHWISE_STEPS: "depthwise_step",
    Reg.CHAINS: "chain",
    Reg.VECTORS: "vector",
    Reg.HAZARD_STALLS: "stalled",
}


class Registers(Component):
    """The register region: identity, control, state and counters.

    Parameters
    ----------
    config : NpuConfig
    banked : bool
        Counters share a block RAM.
    """

    write = Input(1, "Write ``w_data`` to the register at ``addr``; only CONTROL listens.")
    addr = Input(range(len(REGISTERS)), "Register number.")
    w_data = Input(32, "Word to write.")
    r_data = Output(32, "Contents, ``HOST_LATENCY`` cycles after ``addr``.")
    run = Output(RunPort(), "Start of a run, by a write to CONTROL, and its state, which the registers show.")
    clear_flags = Output(1, "Effect of a write to CONTROL.")
    clearing = Input(1, "Flags are being cleared, shown in a register.")
    flags = Input(32, "Flags that the register shows.")
    link_errors = Input(32, "Damaged frames, shown in a register.")
    status = Output(32, "The register STATUS.")
    dram = Input(
        DramStatus(), "State of the external memory. Only with one.", when=lambda self: self.config.has(Op.COPY)
    )
    events = Input(EventPort(), "Events that are counted while a program runs.")

    def __init__(self, config: NpuConfig, *, banked: bool = False):
        self.config = config
        self.banked = banked
        self.HOST_LATENCY = 1 + TURN if banked else 2
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        values: dict[Reg, Value] = {reg: Const(0, 32) for reg in Reg}
        values[Reg.MAGIC] = Const(MAGIC, 32)
        values[Reg.VERSION] = Const(SPEC_VERSION, 32)
        values[Reg.FINGERPRINT] = Const(self.config.fingerprint & 0xFFFFFFFF, 32)
        values[Reg.FINGERPRINT_HIGH] = Const(self.config.fingerprint >> 32, 32)
        values[Reg.FLAGS_ANY] = self.flags
        values[Reg.LINK_ERRORS] = self.link_errors

        control: Any = Signal(shape_of(control_layout(self.config)))
        adds, restart = Signal(), Signal()
        m.d.comb += restart.eq(self.run.start & ~adds)
        accept = self.write & (self.addr == Reg.CONTROL) & ~self.run.busy & ~self.clearing
        m.d.comb += [control.eq(self.w_data)]
        m.d.sync += [
            self.run.start.eq(accept & control.start),
            self.clear_flags.eq(accept & control.clear_flags),
        ]
        with m.If(accept):
            m.d.sync += [self.run.pc.eq(control.pc), adds.eq(control.adds)]

        status: Any = Signal(shape_of(status_layout(self.config)))
        pending = self.run.start | self.clear_flags
        m.d.comb += [
            status.busy.eq(self.run.busy | self.clearing | pending),
            status.done.eq(self.run.done),
            status.trapped.eq(self.run.trapped),
        ]
        if self.config.has(Op.COPY):
            self._dram(m, status, accept & control.keep_dram)
        m.d.sync += self.status.eq(status)
        values[Reg.STATUS] = self.status
        trap: Any = Signal(shape_of(REGISTERS[Reg.TRAP].layout))
        m.d.comb += [trap.code.eq(self.run.trap), trap.pc.eq(self.run.trap_pc)]
        values[Reg.TRAP] = Value.cast(trap)

        addr = self.addr
        if self.banked:
            valid = self._bank(m, values, restart)
        else:
            valid, addr = 1, register(m, addr, "addr_here")
            cycles = Signal(64)
            values[Reg.CYCLES], values[Reg.CYCLES_HIGH] = cycles[:32], cycles[32:]
            with m.If(restart):
                m.d.sync += cycles.eq(0)
            with m.Elif(self.run.busy):
                m.d.sync += cycles.eq(cycles + 1)
            for reg, name in COUNTERS.items():
                values[reg] = self._counter(m, name, restart)
        with m.If(valid):
            m.d.sync += self.r_data.eq(Array(values[reg] for reg in Reg)[addr])
        return m

    def _dram(self, m, status, keep):
        """State of the external memory, and whether it holds what it held when the host said ``keep``."""
        kept, names = Signal(), [name for name in self.dram.signature.members if name != "written"]
        m.d.comb += [status[f"dram_{name}"].eq(getattr(self.dram, name)) for name in names]
        m.d.comb += status.dram_kept.eq(kept)
        with m.If(keep):
            m.d.sync += kept.eq(1)
        with m.If(self.dram.written):
            m.d.sync += kept.eq(0)

    def _bank(self, m, values, restart):
        """Counters in block RAM; returns when the value of the one at ``addr`` is there."""
        names = {Reg.CYCLES: "cycle", Reg.CYCLES_HIGH: "cycle_high", **COUNTERS}
        first = min(names)
        bank: Any = CounterBank([names[reg] for reg in sorted(names)], {"cycle_high": "cycle"})
        m.submodules.bank = bank
        m.d.comb += [bank.clear.eq(restart), bank.addr.eq(self.addr - first), bank.cycle.eq(self.run.busy)]
        m.d.comb += [getattr(bank, name).eq(getattr(self.events, name)) for name in COUNTERS.values()]
        values |= dict.fromkeys(names, bank.data)
        return bank.valid

    def _counter(self, m, name, restart):
        """Count the events ``name`` of a run, and of those that it adds to."""
        event, count = Signal(name=f"{name}_event"), Signal(32, name=f"{name}_count")
        m.d.sync += event.eq(getattr(self.events, name))
        with m.If(restart):
            m.d.sync += count.eq(0)
        with m.Else():
            m.d.sync += count.eq(count + event)
        return count
