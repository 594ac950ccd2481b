"""From a netlist to a circuit: what all families share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from concord_rtl.netlists.circuit import ONE, ZERO, Circuit, Clock
from concord_rtl.netlists.netlist import Bit, Cell, Netlist, NetlistError, bits_of, text_of


class CellLowering:
    """A cell that is being turned into parts of a circuit.

    Everything about it must be asked for: a parameter or a connected input that was not is an error, so that nothing is
    simulated as something else.
    """

    def __init__(self, lowering: Lowering, cell: Cell):
        self.circuit = lowering.circuit
        self.cell = cell
        self._lowering = lowering
        self._asked: set[str] = set()

    def refuse(self, what: str) -> NetlistError:
        """The error that says what is not simulated."""
        return NetlistError(f"{self.cell.kind} {self.cell.name}: {what}")

    def text(self, name: str, *allowed: str) -> str:
        """A parameter that is text, one of ``allowed``; the first one if it is not there."""
        self._asked.add(name)
        value = self.cell.parameters.get(name)
        setting = allowed[0] if value is None else value if text_of(value) is None else text_of(value)
        if setting not in allowed:
            raise self.refuse(f"{name} must be {' or '.join(allowed)}, not {setting!r}")
        return setting

    def number(self, name: str, default: int = 0) -> int:
        """A parameter that is a number."""
        self._asked.add(name)
        value = self.cell.parameters.get(name)
        return default if value is None else bits_of(value)

    def ignore(self, *names: str) -> None:
        """Parameters and ports without an effect here."""
        self._asked.update(names)

    def connected(self, port: str) -> bool:
        """True if a port has a net or a constant."""
        return bool(self.cell.pins.get(port))

    def pins(self, port: str, default: int = ZERO) -> list[int]:
        """Nets of an input; ``default`` if it is not connected."""
        self._asked.add(port)
        bits = self.cell.pins.get(port)
        return [self._lowering.used(bit, self.cell, port) for bit in bits] if bits else [default]

    def pin(self, port: str, default: int = ZERO) -> int:
        """The net of an input of one bit."""
        return self.pins(port, default)[0]

    def constant(self, port: str, *allowed: int, default: int = ZERO) -> int:
        """The value of an input that must be a constant, one of ``allowed``."""
        net = self.pin(port, default)
        if net not in allowed:
            raise self.refuse(f"{port} must be {' or '.join(map(str, allowed))} for good")
        return net

    def clock(self, port: str) -> Clock:
        """The clock at an input."""
        self._asked.add(port)
        if not self.connected(port):
            raise self.refuse(f"{port} must be connected")
        return self._lowering.clock(self.cell.pins[port][0])

    def carries_clock(self, port: str) -> bool:
        """True if the oscillator is at a port."""
        return self._lowering.is_oscillator(self.cell.pins[port][0])

    def outs(self, port: str) -> list[int]:
        """Nets of an output; new ones where it is not connected."""
        self._asked.add(port)
        bits: Sequence[Bit | None] = self.cell.pins.get(port) or [None]
        return [self.circuit.net() if bit is None else self._lowering.net(bit) for bit in bits]

    def out(self, port: str) -> int:
        """The net of an output of one bit."""
        return self.outs(port)[0]

    def all_of(self, nets: Iterable[int], none_of: Iterable[int] = ()) -> int:
        """The net that is one when all ``nets`` are one and ``none_of`` the others."""
        high = sorted(set(nets) - {ONE})
        low = sorted(set(none_of) - {ZERO})
        if ZERO in high or ONE in low:
            return ZERO
        if not high and not low:
            return ONE
        if len(high) == 1 and not low:
            return high[0]
        count = len(high)
        return self.circuit.computed(lambda *bits: all(bits[:count]) and not any(bits[count:]), [*high, *low])

    def finish(self) -> None:
        """Check that nothing was left out."""
        if more := sorted(set(self.cell.parameters) - self._asked):
            raise self.refuse(f"parameter {more[0]} is not simulated")
        inputs = [port for port in self.cell.pins if port not in self.cell.outputs and self.connected(port)]
        if more := sorted(set(inputs) - self._asked):
            raise self.refuse(f"input {more[0]} is not simulated")


Rule = Callable[[CellLowering], None]
#: The clock at an output of a cell.
Passing = Callable[["Lowering", Cell], Clock]


class Lowering:
    """Turns the cells of a netlist into a circuit.

    Parameters
    ----------
    netlist : Netlist
    passing : dict
        Kinds that clocks pass through, and how; by kind and output.
    constants : dict
        Nets that have one value for good, beside those the netlist calls constants.
    clock_port : str
        Port of the oscillator.
    """

    def __init__(
        self,
        netlist: Netlist,
        passing: Mapping[tuple[str, str], Passing],
        constants: dict[Bit, int],
        clock_port: str,
    ):
        self.netlist = netlist
        self.circuit = Circuit()
        self._passing = passing
        self._nets = dict(constants)
        self._users: dict[int, str] = {}
        self._clock_net = netlist.ports[clock_port][1][0]
        self._drivers = {
            bit: (cell, port) for cell in netlist.cells.values() for port in cell.outputs for bit in cell.pins[port]
        }

    def lower(self, rules: Mapping[str, Rule]) -> None:
        """Make the circuit.

        Parameters
        ----------
        rules : dict
            What to do with each kind of cell.

        Raises
        ------
        NetlistError
            If something in the netlist is not simulated; the message names cell and reason.
        """
        for direction, bits in self.netlist.ports.values():
            if direction == "input" and bits[0] != self._clock_net:
                self.circuit.source(self.net(bits[0]))
        for cell in self.netlist.cells.values():
            if cell.kind not in rules:
                raise NetlistError(f"{cell.name}: cells of kind {cell.kind} are not simulated")
            part = CellLowering(self, cell)
            rules[cell.kind](part)
            part.finish()
        for net, user in self._users.items():
            if self.circuit.undriven([net]):
                raise NetlistError(f"nothing drives {user}, or a clock does")

    def net(self, bit: Bit) -> int:
        """The net of the circuit for one of the netlist."""
        if isinstance(bit, str):
            return ONE if bit == "1" else ZERO
        if bit not in self._nets:
            self._nets[bit] = self.circuit.net()
        return self._nets[bit]

    def used(self, bit: Bit, cell: Cell, port: str) -> int:
        """The net of the circuit for an input of a cell, which must have a value."""
        net = self.net(bit)
        self._users.setdefault(net, f"{cell.kind} {cell.name}.{port}")
        return net

    def clock(self, bit: Bit) -> Clock:
        """The clock that a net carries."""
        if bit == self._clock_net:
            return Clock()
        cell, port = self._drivers.get(bit, (None, ""))
        if cell is None or (cell.kind, port) not in self._passing:
            raise NetlistError(f"net {bit} must be a clock; it comes from {cell and f'{cell.kind} {cell.name}'}")
        return self._passing[cell.kind, port](self, cell)

    def is_oscillator(self, bit: Bit) -> bool:
        """True if a net is that of the oscillator."""
        return bit == self._clock_net

    def port(self, name: str) -> int:
        """The net of a port of one bit."""
        return self.net(self.netlist.ports[name][1][0])


def table_of(function: Callable[..., int | bool], count: int) -> int:
    """Truth table of a function of ``count`` bits, the first one being the lowest of the index."""
    return sum(1 << row for row in range(1 << count) if function(*(row >> k & 1 for k in range(count))))
