"""What benches get as ``ctx`` where the design is no longer Amaranth's but Verilog: values of ports, by their signals.

A bench of ``tests/rtl`` sets and reads ports of a component, and samples simple expressions of them.
:class:`PortContext` does that for any simulator that drives and reads ports; :func:`ports_of` tells which there are.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable

from amaranth.hdl import Const, Signal, Value
from amaranth.hdl import ShapeCastable as CustomShape
from amaranth.lib import wiring


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


class PortContext:
    """Ports of a design: sets and reads them, and waits for cycles of its clock.

    Parameters
    ----------
    ports : dict of Signal
        By name, as :func:`ports_of` gives them.
    inputs : list of str
        Inputs of the design, which keep their initial values until they are set.
    """

    def __init__(self, ports, inputs):
        self._names = {id(signal): name for name, signal in ports.items()}
        self._driven = {}
        for name in inputs:
            if name in ports:
                self._set(ports[name], ports[name].init)

    def drive(self, name, value):
        """Give an input a value, which is not negative."""
        raise NotImplementedError

    def read(self, name):
        """Value of an output, which is not negative."""
        raise NotImplementedError

    async def cycle(self, values):
        """Wait for the next cycle, and return a tuple of ``values`` from just before the edge."""
        raise NotImplementedError

    def _set(self, signal, value):
        value &= (1 << len(signal)) - 1
        self._driven[id(signal)] = value
        self.drive(self._names[id(signal)], value)

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
        self._set(signal, self._driven[id(signal)] & ~(mask << low) | (raw & mask) << low)

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
        if isinstance(value, Signal):
            raw = self._driven.get(id(value))
            raw = self.read(self._names[id(value)]) if raw is None else raw
        elif kind == "Const":
            raw = value.value
        elif kind == "Slice":
            raw = self._evaluate(value.value) >> value.start
        elif kind == "Operator":
            raw = int(OPERATORS[value.operator](*map(self._evaluate, value.operands)))
        else:
            raise TypeError(f"benches must sample ports and simple expressions of them, not {value!r}")
        shape = value.shape()
        return _signed(raw, shape.width) if shape.signed else raw & (1 << shape.width) - 1

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

    async def repeat(self, count):
        """Wait for so many cycles, and return the values of the last one."""
        for _ in range(count):
            got = await self
        return got

    def __await__(self):
        return self._cycle().__await__()

    async def _cycle(self):
        return True, False, *await self._context.cycle(self._values)
