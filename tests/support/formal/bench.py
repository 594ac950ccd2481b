"""A unit with free inputs, and statements about it that a solver checks."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, ClockDomain, Cover, Elaboratable, Fragment, Module, Signal, Value

#: Signals of a unit by name; those of the units inside it have the name of the unit and a dot in front.
Insides = dict[str, Any]


def _assigned(fragment: Fragment) -> list[Signal]:
    """Signals that are assigned in a fragment itself, in the order in which they were made."""
    found = {
        signal.duid: signal
        for statements in fragment.statements.values()
        for statement in statements
        for signal in statement._lhs_signals()
    }
    return [found[key] for key in sorted(found)]


@cache
def _targets(file: str) -> dict[int, list[str]]:
    """Names on the left of each assignment to several names at once, by line."""
    tuples = [node for node in ast.walk(ast.parse(Path(file).read_text())) if isinstance(node, ast.Assign)]
    return {
        node.lineno: [name.id for name in node.targets[0].elts if isinstance(name, ast.Name)]
        for node in tuples
        if isinstance(node.targets[0], ast.Tuple)
    }


def _insides(fragment: Fragment, prefix: str = "") -> Iterator[tuple[str, Signal]]:
    """Names and signals of everything that is assigned in a fragment.

    Of signals that are made in one assignment at most the last knows its name: the others get theirs from the source.
    """
    nameless: dict[tuple[str, int], list[Signal]] = {}
    for signal in _assigned(fragment):
        if signal.name == "$signal":
            nameless.setdefault(signal.src_loc, []).append(signal)
        else:
            yield prefix + signal.name, signal
    for (file, line), signals in nameless.items():
        names = _targets(file).get(line, [])
        if len(names) - len(signals) in (0, 1):
            yield from ((prefix + name, signal) for name, signal in zip(names, signals, strict=False))
    for child, name, _ in fragment.subfragments:
        yield from _insides(child, f"{prefix}{name}.")


class Bench(Elaboratable):
    """Units under test, an environment, and what must hold, may be assumed and can be reached.

    Everything starts in the state after reset, and is never reset again.

    Attributes
    ----------
    m : Module
        The module that all is put into.
    reached : int
        Number of statements about what can be reached.
    """

    def __init__(self) -> None:
        self.m = Module()
        self.m.domains.sync = clock = ClockDomain(reset_less=True)
        self.reached = 0
        self._inputs: list[Signal] = [clock.clk]
        self._begun = Signal(name="begun")
        self.m.d.sync += self._begun.eq(1)

    def elaborate(self, platform: None) -> Module:
        return self.m

    def rtlil(self) -> str:
        """The bench for Yosys, as module ``top``."""
        return rtlil.convert(self, ports=self._inputs, name="top")

    def free(self, shape: Any, name: str) -> Any:
        """An input that may have any value in any cycle."""
        signal = Signal(shape, name=name)
        self._inputs.append(Value.cast(signal))
        return signal

    def constant(self, shape: Any, name: str) -> Any:
        """An input that may have any value, the same in all cycles."""
        signal = self.free(shape, name)
        self.assume(~self._begun | (Value.cast(signal) == self.past(signal, name)))
        return signal

    def past(self, value: Any, name: str, init: int = 0) -> Signal:
        """The bits of ``value`` in the cycle before, and ``init`` in the first."""
        before = Signal(Value.cast(value).shape(), name=f"past_{name}", init=init)
        self.m.d.sync += before.eq(value)
        return before

    def unit(self, component: Any, name: str) -> Insides:
        """Put a unit in; returns the signals inside."""
        fragment = Fragment.get(component, None)
        self.m.submodules[name] = fragment
        return dict(_insides(fragment))

    def must(self, condition: Any, *, given: Any = 1) -> None:
        """``condition`` holds in every cycle in which ``given`` does."""
        self.m.d.comb += Assert(~Value.cast(given).any() | condition, src_loc_at=1)

    def assume(self, condition: Any, *, given: Any = 1) -> None:
        """Leave out all runs in which ``condition`` does not hold in a cycle in which ``given`` does."""
        self.m.d.comb += Assume(~Value.cast(given).any() | condition, src_loc_at=1)

    def reach(self, condition: Any) -> None:
        """``condition`` can be reached: what is proven is not proven because nothing happens."""
        self.m.d.comb += Cover(condition, src_loc_at=1)
        self.reached += 1


def state(signal: Signal, name: str) -> int:
    """Number of a state of a state machine, of which ``signal`` is the register."""
    for number in range(1 << len(signal)):
        if signal.decoder(number) == f"{name}/{number}":
            return number
    raise ValueError(f"name must be a state of the machine, not {name!r}")
