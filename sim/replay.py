"""Runs the benches of the unit tests on the generated Verilog: what has to be known before, and their context there.

The tests in ``tests/rtl`` compare units with the golden model by calling ``bench.simulate(dut, *benches)``. Here
``simulate`` is replaced twice: outside of the simulator by :func:`capture`, which tells which design has to be
compiled, and inside by the function that :func:`simulator` returns, which runs the same benches on it.
"""

from __future__ import annotations

from typing import Any

from support.port_context import PortContext, ports_of

PERIOD_NS = 10


class Captured(BaseException):
    """Ends a test at its simulation; ``dut`` is the design."""

    def __init__(self, dut):
        self.dut = dut


def capture(dut, *benches, **options):
    """Stand in for ``simulate`` to learn which design a test is about."""
    raise Captured(dut)


class Context(PortContext):
    """Context ``ctx`` of a bench: reads before the rising edge of the clock, drives after the falling one.

    Parameters
    ----------
    handle : cocotb handle
        The design in the simulator.
    dut : Component
        The same design in Amaranth.
    inputs : list of str
        Its inputs, which keep their initial values until they are set.
    """

    def __init__(self, handle, dut, inputs):
        self._handle = handle
        for name in inputs:
            self.drive(name, 0)
        super().__init__(ports_of(dut), inputs)

    def drive(self, name, value):
        getattr(self._handle, name).value = value

    def read(self, name):
        return int(getattr(self._handle, name).value)

    async def cycle(self, values):
        from cocotb.triggers import FallingEdge, RisingEdge

        await RisingEdge(self._handle.clk)
        got = [self.get(value) for value in values]
        await FallingEdge(self._handle.clk)
        return got


def simulator(handle, inputs):
    """Return the function that stands in for ``simulate`` inside of the simulator."""
    import cocotb
    from cocotb.clock import Clock
    from cocotb.task import resume
    from cocotb.triggers import Combine, Timer, with_timeout

    used: list[Any] = []

    @resume
    async def simulate(dut, *benches, cycles=10_000, vcd=None, compiled=False):
        if used:
            raise RuntimeError("a case must simulate once, for memories keep what an earlier simulation left")
        used.append(dut)
        context = Context(handle, dut, inputs)
        await Timer(1, "ns")
        Clock(handle.clk, PERIOD_NS, unit="ns").start(start_high=False)
        tasks = [cocotb.start_soon(bench(context)) for bench in benches]
        await with_timeout(Combine(*tasks), cycles * PERIOD_NS, "ns")

    return simulate
