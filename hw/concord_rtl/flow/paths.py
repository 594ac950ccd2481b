"""Slow paths of a placed and routed design, and what its clock does not count, from the delays that nextpnr writes."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.table import Table

from concord_rtl.families.family import Family

#: Levels of a name that tell a unit, behind those that all have.
LEVELS = 3
#: Share of the period of the slowest path from which on a path is slow.
SLOW = 0.85
#: Classes of paths that are told.
CLASSES = 10

_WIRE = re.compile(r"\(INTERCONNECT (\S+) (\S+) \([\d.]*:[\d.]*:([\d.]+)\)")
_TYPE = re.compile(r'\(CELLTYPE "(\S+)"\)')
_INSTANCE = re.compile(r"\(INSTANCE (\S+)\)")
_LOGIC = re.compile(r"\(IOPATH (\S+) (\S+) \([\d.]*:[\d.]*:([\d.]+)\)")
_CHECK = re.compile(r"\(SETUPHOLD \(posedge (\S+)\) \((?:pos|neg)edge (\S+)\) \([-\d.]*:[-\d.]*:(-?[\d.]+)\)")


@dataclass
class RegisterPath:
    """A path between two registers.

    Parameters
    ----------
    start, end : str
        Cells, and the pin of the last one behind a slash.
    logic, wires : float
        Nanoseconds in cells, setup included, and on wires.
    """

    start: str
    end: str
    logic: float
    wires: float

    @property
    def ns(self) -> float:
        """Nanoseconds of the whole path."""
        return self.logic + self.wires


@dataclass
class Delays:
    """Delays of a design in picoseconds.

    Parameters
    ----------
    wires : dict
        Pin -> pin that drives it, and delay.
    cells : dict
        Output pin -> input pins and delays.
    clocks : set
        Pins of clocks.
    setups : dict
        Pin of a register -> its setup time.
    kinds : dict
        Cell -> its type.
    """

    wires: dict[str, tuple[str, float]] = field(default_factory=dict)
    cells: dict[str, list[tuple[str, float]]] = field(default_factory=lambda: defaultdict(list))
    clocks: set[str] = field(default_factory=set)
    setups: dict[str, float] = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)

    @classmethod
    def read(cls, lines: Iterable[str]) -> Delays:
        """Delays in a file in the standard delay format, as nextpnr writes it: one per line, slowest third."""
        delays, cell, kind = cls(), "", ""
        for line in lines:
            if match := _WIRE.search(line):
                delays.wires[match[2]] = match[1], float(match[3])
            elif match := _LOGIC.search(line):
                delays.cells[f"{cell}/{match[2]}"].append((f"{cell}/{match[1]}", float(match[3])))
            elif match := _CHECK.search(line):
                delays.setups[f"{cell}/{match[1]}"] = float(match[3])
                delays.clocks.add(f"{cell}/{match[2]}")
            elif match := _TYPE.search(line):
                kind = match[1]
            elif match := _INSTANCE.search(line):
                cell = match[1]
                delays.kinds[cell] = kind
        return delays

    def paths(self) -> list[RegisterPath]:
        """The slowest path to every register, the slowest first."""
        paths = []
        for pin, setup in self.setups.items():
            if pin in self.wires and (path := self._arrivals.path(pin, setup)) is not None:
                paths.append(path)
        return sorted(paths, key=lambda path: -path.ns)

    def without_delays(self) -> Counter[str]:
        """Number of cells by type with a pin that has no delay: a register drives it, or it drives what has delays."""
        inputs = self.setups.keys() | {pin for arcs in self.cells.values() for pin, _ in arcs}
        pins = set()
        for pin, (driver, _) in self.wires.items():
            if pin in inputs and driver not in self.cells:
                pins.add(driver)
            elif pin not in inputs and pin not in self.clocks and self._arrivals.reaches(driver):
                pins.add(pin)
        return Counter(self.kinds[cell] for cell in {_cell(pin) for pin in pins} if cell in self.kinds)

    @cached_property
    def _arrivals(self) -> _Arrivals:
        return _Arrivals(self)


class _Arrivals:
    """Latest arrivals at outputs of cells: total, share of it in logic, and the register where the path begins."""

    def __init__(self, delays: Delays):
        self.delays = delays
        self.known: dict[str, tuple[float, float, str] | None] = {}

    def path(self, pin: str, setup: float) -> RegisterPath | None:
        driver, delay = self.delays.wires[pin]
        if (arrival := self._at(driver)) is None:
            return None
        total, logic, start = arrival
        return RegisterPath(start, pin, (logic + setup) / 1000, (total - logic + delay) / 1000)

    def reaches(self, output: str) -> bool:
        """True if a register is before an output."""
        return self._at(output) is not None

    def _at(self, output: str) -> tuple[float, float, str] | None:
        """Arrival at an output; None where no register is before it. Without recursion: paths may be long."""
        stack = [output]
        while stack:
            top = stack[-1]
            if top in self.known:
                stack.pop()
                continue
            before = [self.delays.wires[pin][0] for pin, _ in self._inputs(top) if pin in self.delays.wires]
            if missing := [driver for driver in before if driver not in self.known and driver not in stack]:
                stack += missing
                continue
            self.known[top] = self._latest(top)
            stack.pop()
        return self.known[output]

    def _inputs(self, output: str) -> list[tuple[str, float]]:
        return [(pin, delay) for pin, delay in self.delays.cells.get(output, []) if pin not in self.delays.clocks]

    def _latest(self, output: str) -> tuple[float, float, str] | None:
        arrivals = []
        for pin, delay in self.delays.cells.get(output, []):
            if pin in self.delays.clocks:
                arrivals.append((delay, delay, _cell(output)))
            elif pin in self.delays.wires:
                driver, wire = self.delays.wires[pin]
                if (arrival := self.known.get(driver)) is not None:
                    total, logic, start = arrival
                    arrivals.append((total + wire + delay, logic + delay, start))
        return max(arrivals, default=None)


def _cell(pin: str) -> str:
    return pin.rpartition("/")[0]


def unit_of(cell: str) -> str:
    """Unit that a cell or pin is in, without numbers: synthesis names cells after nets, and these after units."""
    name = re.sub(r"_(TRELLIS|LUT4|CCU2C|PFUMX|L6MUX21|DPR16X4).*|\\.*|/.*|\[.*", "", cell)
    parts = [part for part in name.split(".") if part != "core"]
    return re.sub(r"\d+(?=\.|_|$)", "", ".".join(parts[:LEVELS]))


def classes(paths: list[RegisterPath], levels: int = CLASSES) -> list[dict[str, Any]]:
    """Slow paths by the units they begin and end in, the slowest class first."""
    if not paths:
        return []
    groups: dict[tuple[str, str], list[RegisterPath]] = defaultdict(list)
    for path in paths:
        if path.ns >= SLOW * paths[0].ns:
            groups[unit_of(path.start), unit_of(path.end)].append(path)
    ordered = sorted(groups.items(), key=lambda group: -group[1][0].ns)[:levels]
    return [
        {
            "from": start,
            "to": end,
            "registers": len(group),
            "ns": round(group[0].ns, 2),
            "logic_ns": round(group[0].logic, 2),
            "start": group[0].start,
            "end": group[0].end,
        }
        for (start, end), group in ordered
    ]


def not_counted(delays: Delays, family: Family) -> list[dict[str, Any]]:
    """Cells of a design with delays that the clock of its report does not have: type, number, and what is missing."""
    without, logic = delays.without_delays(), next(iter(family.resources.values()))
    rows = [(kind, number, "delays of pins") for kind, number in sorted(without.items()) if kind != logic]
    kinds = Counter(delays.kinds[cell] for cell in {_cell(pin) for pin in delays.clocks})
    rows += [(kind, kinds[kind], text) for kind, text in family.not_counted.items() if kind in kinds]
    return [{"cell": kind, "number": number, "what": text} for kind, number, text in rows]


def timing_facts(file: Path, family: Family) -> dict[str, Any]:
    """Classes of slow paths of a design whose delays nextpnr wrote to a file, and cells that its clock leaves out."""
    with file.open() as lines:
        delays = Delays.read(lines)
    return {"slow_paths": classes(delays.paths()), "not_counted": not_counted(delays, family)}


def not_counted_table(cells: list[dict[str, Any]]) -> Table:
    """Cells that the clock leaves out, for a terminal."""
    shown = Table("cells", "number", "missing", title="not counted in MHz possible", title_justify="left")
    for entry in cells:
        shown.add_row(entry["cell"], f"{entry['number']:,}", entry["what"])
    return shown


def table(clocks: list[dict[str, Any]]) -> Table:
    """Classes of slow paths for a terminal."""
    shown = Table("from", "to", "registers", "worst, ns", "logic", title="slow paths by unit", title_justify="left")
    for entry in clocks:
        numbers = f"{entry['registers']:,}", f"{entry['ns']:.2f}", f"{100 * entry['logic_ns'] / entry['ns']:.0f} %"
        shown.add_row(entry["from"], entry["to"], *numbers)
    return shown
