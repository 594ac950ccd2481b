"""Runs the benches of the unit tests on the generated Verilog: what has to be known before, and their context there.

The tests in ``tests/rtl`` compare units with the golden model by calling ``bench.simulate(dut, *benches)``. Here
``simulate`` is replaced twice: outside of the simulator by :func:`capture`, which tells which design has to be
compiled, and inside by the function that :func:`simulator` returns, which runs the same benches on it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

from amaranth.hdl import Const, Value
from amaranth.hdl import ShapeCastable as CustomShape
from amaranth.lib import wiring

PERIOD_NS = 10


class Captured(BaseException):
    """Ends a test at its simulation; ``dut`` is the design."""

    def __init__(self, dut):
        self.dut = dut


def capture(dut, *benches, **options):
    """Stand in for ``simulate`` to learn which design a test is about."""
    raise Captured(dut)


def _parts_of(dut):
    """Yield prefix and component: the design itself, and the components that are its attributes."""
    yield "", dut
    for name, value in vars(dut).items():
        for k, part in enumerate(value if isinstance(value, list) else [value]):
            if isinstance(part, wiring.Component):
                yield f"{name}{k if isinstance(value, list) else ''}__", part


def ports_of(dut):
    """Signals that benches reach, by name: the ports of the design and of the components that are its attributes."""
    signals, known = {}, set()
    for prefix, part in _parts_of(dut):
        for path, _, value in part.signature.flatten(part):
            signal = Value.cast(value)
            if len(signal) and id(signal) not in known:
                known.add(id(signal))
                signals[prefix + "__".join(map(str, path))] = signal
    return signals


def inputs_of(verilog, top):
    """Names of the inputs of a module."""
    body = verilog[verilog.index(f"module {top}(") :]
    return re.findall(r"^  input (?:\[\d+:\d+\] )?(\w+) *;", body[: body.index("endmodule")], re.MULTILINE)


def _signed(value, width):
    value &= (1 << width) - 1
    return value - (1 << width) if value >> width - 1 else value


#: Operators that benches use in what they sample.
OPERATORS: dict[str, Callable[..., int]] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "~": operator.invert,
    "==": operator.eq,
    "!=": operator.ne,
    "u": lambda value: value,
    "s": lambda value: value,
    "b": bool,
    "r|": bool,
}


class Context:
    """What benches get as ``ctx``: reads before the rising edge of the clock, drives after the falling one.

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
        self._clk = handle.clk
        ports = ports_of(dut)
        self._handles = {id(signal): getattr(handle, name) for name, signal in ports.items()}
        self._driven = {}
        for name in inputs:
            getattr(handle, name).value = 0
            if name in ports:
                self._drive(ports[name], ports[name].init)

    def _drive(self, signal, value):
        value &= (1 << len(signal)) - 1
        self._driven[id(signal)] = value
        self._handles[id(signal)].value = value

    def set(self, target, value):
        """Drive a port or a field of one."""
        shape = target.shape()
        if isinstance(shape, CustomShape):
            value = shape.const(value)
        raw = Const.cast(value).value
        signal = Value.cast(target)
        low, width = 0, len(signal)
        while type(signal).__name__ == "Slice":
            low, signal = low + signal.start, signal.value
        mask = (1 << width) - 1
        self._drive(signal, self._driven[id(signal)] & ~(mask << low) | (raw & mask) << low)

    def get(self, expression):
        """Return the value of a port, or of a simple expression of ports."""
        value = Value.cast(expression)
        raw = self._evaluate(value)
        shape = expression.shape() if hasattr(expression, "shape") else value.shape()
        if isinstance(shape, CustomShape):
            return shape.from_bits(raw & (1 << len(value)) - 1)
        return raw

    def _evaluate(self, value):
        kind = type(value).__name__
        if kind == "Signal":
            raw = self._driven.get(id(value))
            raw = int(self._handles[id(value)].value) if raw is None else raw
        elif kind == "Const":
            raw = value.value
        elif kind == "Slice":
            raw = self._evaluate(value.value) >> value.start
        elif kind == "Operator":
            raw = int(OPERATORS[value.operator](*map(self._evaluate, value.operands)))
        else:
            raise TypeError(f"benches must sample ports and simple expressions of them, not {value!r}")
        width = len(value)
        return _signed(raw, width) if value.shape().signed else raw & (1 << width) - 1

    def tick(self):
        """Wait for the next cycle; ``tick().sample(...)`` returns values just before the edge."""
        return Tick(self, ())


class Tick:
    """One clock cycle to wait for."""

    def __init__(self, context, values):
        self._context = context
        self._values = values

    def sample(self, *values):
        """Return these values too."""
        return Tick(self._context, (*self._values, *values))

    def __await__(self):
        return self._cycle().__await__()

    async def _cycle(self):
        from cocotb.triggers import FallingEdge, RisingEdge

        await RisingEdge(self._context._clk)
        got = [self._context.get(value) for value in self._values]
        await FallingEdge(self._context._clk)
        return True, False, *got


def simulator(handle, inputs):
    """Return the function that stands in for ``simulate`` inside of the simulator."""
    import cocotb
    from cocotb.clock import Clock
    from cocotb.task import resume
    from cocotb.triggers import Combine, Timer, with_timeout

    used: list[Any] = []

    @resume
    async def simulate(dut, *benches, cycles=10_000, vcd=None):
        if used:
            raise RuntimeError("a case must simulate once, for memories keep what an earlier simulation left")
        used.append(dut)
        context = Context(handle, dut, inputs)
        await Timer(1, "ns")
        Clock(handle.clk, PERIOD_NS, unit="ns").start(start_high=False)
        tasks = [cocotb.start_soon(bench(context)) for bench in benches]
        await with_timeout(Combine(*tasks), cycles * PERIOD_NS, "ns")

    return simulate
