"""Description of an FPGA family for the generator: everything that differs from one to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from amaranth import Module, Value

from concord.spec.memmap import RegionId
from concord_rtl.families.geometry import Geometry
from concord_rtl.families.primitives import Primitives
from concord_rtl.netlists.lowering import Passing, Rule
from concord_rtl.netlists.netlist import Bit, Netlist

#: Greatest part of the wanted frequency that may be missing.
TOLERANCE = 0.05
#: Guards the division of one frequency by another against its rounding.
ALMOST = 1 + 1e-9


@dataclass(frozen=True)
class Target:
    """Stand-in for a platform: lets a unit be converted to Verilog for a device without a board.

    Parameters
    ----------
    family, device : str
        As in Amaranth's platform classes.
    """

    family: str
    device: str


@dataclass(frozen=True)
class ShiftedClock:
    """A clock with the frequency of another one, whose phase changes while it runs.

    Parameters
    ----------
    clk : Value
        The clock.
    step : Value
        Its falling edge moves the phase by a step.
    earlier : Value
        The step is to an earlier phase, not to a later one. Stays some nanoseconds around the edge.
    """

    clk: Value
    step: Value
    earlier: Value


@dataclass(frozen=True)
class Pll(ABC):
    """Settings of a phase-locked loop.

    Parameters
    ----------
    hz : float
        Frequency of its output.
    """

    hz: float

    #: True if the pin of the oscillator belongs to the PLL, so that nothing else can read it.
    takes_pin = False

    @abstractmethod
    def build(self, m: Module, pin: Value, clk: Value, locked: Value, shifted: ShiftedClock | None = None) -> None:
        """Instantiate the PLL: ``pin`` is the oscillator, ``clk`` the clock it makes.

        Raises
        ------
        ValueError
            If there is to be a ``shifted`` clock, which PLLs of this family do not have.
        """


class UsbPll(ABC):
    """A phase-locked loop with the clocks of USB."""

    @abstractmethod
    def build(self, m: Module, pin: Value, usb: Value, usb_io: Value, locked: Value) -> None:
        """Instantiate the PLL: ``pin`` is the oscillator, ``usb`` 12 and ``usb_io`` 48 MHz, whose edges coincide."""


_AnyPll = TypeVar("_AnyPll", bound=Pll)


def nearest(settings: list[_AnyPll], wanted_hz: float) -> _AnyPll:
    """The PLL nearest to the frequency wanted, and of several the first.

    Raises
    ------
    ValueError
        If there is none within 5 % below ``wanted_hz``.
    """
    best = max(settings, key=lambda pll: round(pll.hz), default=None)
    if best is None or best.hz < (1 - TOLERANCE) * wanted_hz:
        raise ValueError(f"clock must be a frequency the PLL can make from the board's, not {wanted_hz!r} Hz")
    return best


class Tuning(ABC):
    """A PLL whose settings can be replaced in a placed and routed design, after a gate that stops the clock.

    Attributes
    ----------
    most_hz : float
        Greatest frequency that the PLL makes.
    settings : tuple of str
        Names of the parameters of the PLL that are replaced.
    """

    most_hz: float
    settings: tuple[str, ...]

    @abstractmethod
    def read(self, text: str, input_hz: float) -> Pll:
        """Settings of the PLL in ``text``; :class:`ValueError` if there is not exactly one."""

    @abstractmethod
    def write(self, text: str, pll: Pll, input_hz: float) -> str:
        """``text`` with the settings ``pll``; :class:`ValueError` as from :meth:`read`."""

    @abstractmethod
    def gate(self, clk: Value, enable: Value, o: Value) -> Any:
        """The instance whose output ``o`` is the clock ``clk`` while ``enable`` is set."""


@dataclass(frozen=True)
class FileOption:
    """A file of nextpnr: its suffix, and the option that names it."""

    suffix: str
    option: str


@dataclass(frozen=True)
class GateModels:
    """Models of the cells of a netlist, for simulation.

    Parameters
    ----------
    rules : mapping
        What to do with each kind of cell, see :class:`concord_rtl.netlists.lowering.Lowering`.
    passing : mapping
        Kinds that clocks pass through, and how; by kind and output.
    constants : callable
        Nets of a netlist that have one value for good.
    contents : callable
        Contents of each block RAM of a netlist, a byte per bit.
    set_contents : callable
        Replaces them.
    contents_text : callable
        Them as nextpnr writes them.
    """

    rules: Mapping[str, Rule]
    passing: Mapping[tuple[str, str], Passing]
    constants: Callable[[Netlist], dict[Bit, int]]
    contents: Callable[[Netlist], dict[str, bytes]]
    set_contents: Callable[[Netlist, dict[str, bytes]], None]
    contents_text: Callable[[Netlist], str]


class Family(ABC):
    """One FPGA family: its cells, its clock, its tools.

    A family is one object of a class derived from this one, entered in :data:`concord_rtl.families.FAMILIES`.

    Attributes
    ----------
    name : str
        As in ``Board.family``, and in the name of its nextpnr.
    platform_family : str
        What Amaranth's platforms of this family call it.
    target : Target
        A device for units without a board.
    tools : mapping of str to (str, str)
        Tools beside Yosys: package and function by name.
    place_and_route : str
        The tool that does so, one of ``tools``.
    synthesis : str
        Commands of Yosys; options of the last one may follow.
    constraints, placed : FileOption
        Pins that nextpnr reads, and the design it writes.
    bitstream : str
        Suffix of a bitstream.
    router : tuple of str
        Options of nextpnr for its router.
    without_pins : tuple of str, optional
        Options of nextpnr, instead of ``router``, for a unit without pins; None where that is not set up.
    resources : mapping of str to str
        Names in nextpnr's report by the name people use; the first one is that of logic cells.
    not_counted : mapping of str to str
        Names in nextpnr's report of cells with delays that nextpnr does not have or makes up, and which these are.
    fullest : float
        Share of the logic cells up to which designs were routed.
    cells : mapping of str to str
        Patterns of the names of Yosys's cells by the name people use; ``*`` stands for anything.
    geometry : Geometry
        Block RAMs in the placed design.
    empty_regions : tuple of RegionId
        Memories that a bitstream cannot fill.
    tuning : Tuning, optional
        How the clock of a placed and routed design is changed; None where it cannot be.
    carry_chains : callable, optional
        Shortens the carry chains of a module of a netlist for nextpnr, in place, and, with ``fold``, folds constant
        carries into their first bits; None where that saves nothing.
    gates : GateModels, optional
        For the simulation of netlists; None where they cannot be simulated.
    """

    name: str
    platform_family: str
    target: Target
    tools: ClassVar[Mapping[str, tuple[str, str]]]
    place_and_route: str
    synthesis: str
    constraints: FileOption
    placed: FileOption
    bitstream: str
    router: tuple[str, ...] = ()
    without_pins: tuple[str, ...] | None = None
    resources: ClassVar[Mapping[str, str]]
    not_counted: ClassVar[Mapping[str, str]] = {}
    fullest: float
    cells: ClassVar[Mapping[str, str]]
    geometry: Geometry
    empty_regions: tuple[RegionId, ...] = ()
    tuning: Tuning | None = None
    carry_chains: Callable[..., int] | None = None
    gates: GateModels | None = None

    @abstractmethod
    def primitives(self, device: str) -> Primitives:
        """The cells that components instantiate on a device."""

    @abstractmethod
    def pll(self, input_hz: float, wanted_hz: float) -> Pll:
        """Settings for the greatest frequency not above the wanted one; :class:`ValueError` if none is near."""

    def usb_pll(self, input_hz: float) -> UsbPll:
        """Settings for the clocks of USB; :class:`ValueError` if there are none."""
        raise ValueError(f"board must be one whose PLL makes the clocks of USB, not one with {self.name}")

    @abstractmethod
    def packing(self, placed: Path, packed: Path) -> tuple[str, list[str]]:
        """Tool and arguments that make a bitstream of a placed and routed design."""


def tools_of(families: Mapping[str, Family]) -> dict[str, tuple[str, str]]:
    """Package and function of the tools of all families, by name."""
    return dict(chain.from_iterable(family.tools.items() for family in families.values()))
