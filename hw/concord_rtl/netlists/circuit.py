"""Circuits of functions, registers and memories: what the cells of a netlist are turned into for simulation.

A circuit has nets with two values, numbered from 0; net 0 is always zero and net 1 is always one. ``engine/circuit.h``
simulates it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

ZERO, ONE = 0, 1
#: Inputs of a function.
MOST_INPUTS = 6


@dataclass(frozen=True)
class Clock:
    """A clock: that of the oscillator, or the slower one of the PLL, while all ``gates`` are one."""

    slow: bool = False
    gates: tuple[int, ...] = ()


@dataclass(frozen=True)
class Line:
    """The serial line.

    Parameters
    ----------
    rx, tx : int
        Nets from and to the host.
    bit : int
        Steps per bit.
    ratio : int
        Cycles of the oscillator in a step, which is a cycle of the slower clock.
    start : int
        Steps until the design listens.
    """

    rx: int
    tx: int
    bit: int
    ratio: int
    start: int


@dataclass
class Circuit:
    """A circuit under construction."""

    nets: int = 2
    memories: list[list[int]] = field(default_factory=list)
    _clocks: dict[Clock, int] = field(default_factory=dict)
    _lines: list[str] = field(default_factory=list)
    _driven: set[int] = field(default_factory=lambda: {ZERO, ONE})

    def net(self) -> int:
        """A new net."""
        self.nets += 1
        return self.nets - 1

    def _drive(self, nets: Sequence[int]) -> None:
        for net in nets:
            if net in self._driven:
                raise ValueError(f"net {net} must have one driver")
            self._driven.add(net)

    def undriven(self, nets: Sequence[int]) -> list[int]:
        """Nets among ``nets`` that nothing drives."""
        return [net for net in nets if net not in self._driven]

    def source(self, net: int) -> None:
        """Say that ``net`` comes from outside."""
        self._drive([net])

    def function(self, out: int, table: int, inputs: Sequence[int]) -> None:
        """``out`` is bit ``inputs`` (the first one being the lowest) of ``table``."""
        if len(inputs) > MOST_INPUTS:
            raise ValueError(f"inputs must be at most {MOST_INPUTS}, not {len(inputs)}")
        self._drive([out])
        self._lines.append(f"lut {table:x} {_list(inputs)} {_list([out])}")

    def computed(self, function: Callable[..., int | bool], inputs: Sequence[int], out: int | None = None) -> int:
        """The net ``function(*inputs)``, a function of bits; a new one unless it is ``out``."""
        out = self.net() if out is None else out
        table = 0
        for row in range(1 << len(inputs)):
            if function(*(row >> k & 1 for k in range(len(inputs)))):
                table |= 1 << row
        self.function(out, table, inputs)
        return out

    def product(self, a: Sequence[int], b: Sequence[int], out: Sequence[int]) -> None:
        """``out`` is the product of two signed numbers."""
        self._drive(out)
        self._lines.append(f"product {len(a)} {_list([*a, *b])} {_list(out)}")

    def register(
        self, clock: Clock, q: int, d: int, *, enable: int = ONE, reset: int = ZERO, init: int = 0, value: int = 0
    ) -> None:
        """A register that starts with ``init`` and that ``reset`` sets to ``value``, whatever ``enable`` is."""
        self._drive([q])
        self._lines.append(f"register {self._domain(clock)} {q} {d} {enable} {reset} {init} {value}")

    def memory(self, words: list[int]) -> int:
        """Number of a new memory that starts with ``words`` of up to 64 bits."""
        self.memories.append(words)
        self._lines.append(f"memory {len(words)} {' '.join(f'{word:x}' for word in words)}")
        return len(self.memories) - 1

    def read(self, memory: int, addr: Sequence[int], out: Sequence[int]) -> None:
        """``out`` is the word at ``addr``, at once."""
        self._drive(out)
        self._lines.append(f"read {memory} {_list(addr)} {_list(out)}")

    def write(self, clock: Clock, memory: int, enable: int, addr: Sequence[int], data: Sequence[int]) -> None:
        """Write a word at the edge."""
        self._lines.append(f"write {self._domain(clock)} {memory} {enable} {_list(addr)} {_list(data)}")

    def text(self, line: Line) -> str:
        """The circuit as the engine reads it."""
        head = [f"nets {self.nets}", f"serial {line.rx} {line.tx} {line.bit} {line.ratio} {line.start}"]
        head += [f"domain {int(clock.slow)} {_list(clock.gates)}" for clock in self._clocks]
        return "\n".join([*head, *self._lines, ""])

    def _domain(self, clock: Clock) -> int:
        return self._clocks.setdefault(clock, len(self._clocks))


def _list(nets: Sequence[int]) -> str:
    return " ".join(map(str, [len(nets), *nets]))
