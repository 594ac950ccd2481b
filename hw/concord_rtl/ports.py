"""Connections between the units of a core, each defined once."""

from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.spec.isa import Trap
from concord_rtl.pipe.layouts import program_addr_bits


class RunPort(wiring.Signature):
    """A run of a program, seen from the registers.

    Members
    -------
    start : Out(1)
        Begin at ``pc``; only when not ``busy``.
    pc : Out(16)
        First instruction.
    busy, done, trapped : In(1)
        State; ``done`` and ``trapped`` of the last run.
    trap, trap_pc : In
        Why and where the last run trapped.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": Out(1),
                "pc": Out(16),
                "busy": In(1),
                "done": In(1),
                "trapped": In(1),
                "trap": In(range(max(Trap) + 1)),
                "trap_pc": In(16),
            }
        )


class RetirePort(wiring.Signature):
    """Vectors that leave the pipe, seen from there.

    Members
    -------
    valid : Out(1)
        A vector has been written.
    pc, flags : Out
        Address of its chain and its sticky flags.
    """

    def __init__(self, config: NpuConfig) -> None:
        super().__init__({"valid": Out(1), "pc": Out(program_addr_bits(config)), "flags": Out(len(Flag))})


class EventPort(wiring.Signature):
    """Events that are counted while a program runs, seen from the pipe.

    Members
    -------
    dense_step, depthwise_step : Out(1)
        A tile step of a dense (depthwise) product.
    chain : Out(1)
        A chain is taken.
    vector : Out(1)
        A vector has been written.
    stalled : Out(1)
        A vector waits for another one.
    """

    def __init__(self) -> None:
        super().__init__({name: Out(1) for name in ("dense_step", "depthwise_step", "chain", "vector", "stalled")})
