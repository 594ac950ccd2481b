"""The clock of the design on a board."""

from __future__ import annotations

from typing import Any

from amaranth import *
from amaranth.lib import cdc, io

from concord_boards import Board
from concord_rtl.families import family_named
from concord_rtl.families.family import Pll, ShiftedClock, Tuning
from concord_rtl.parts.component import Component, Input, Output
from concord_rtl.parts.shapes import stream_of

#: Net of the clock in the netlist where settings of the PLL can be replaced after routing.
NET = "clocking.clk"
#: Cycles the reset stays after the PLL has locked: block RAM of iCE40 is not readable at once after configuration.
RESET_CYCLES = 256


def clock_of(board: Board, wanted_hz: float) -> tuple[float, Pll | None]:
    """Return the frequency a board can make for ``wanted_hz``, and the settings of its PLL or ``None``."""
    if wanted_hz == board.oscillator_hz:
        return wanted_hz, None
    pll = family_named(board.family).pll(board.oscillator_hz, wanted_hz)
    return pll.hz, pll


def tunable(board: Board, wanted_hz: float) -> bool:
    """True if the clock of the placed and routed design can be changed (see ``Family.tuning``)."""
    return family_named(board.family).tuning is not None and wanted_hz != board.oscillator_hz


def tuning_of(board: Board) -> Tuning:
    """Tuning of the clock of a board; ``ValueError`` if its clock cannot be changed."""
    tuning = family_named(board.family).tuning
    if tuning is None:
        raise ValueError(f"board must be of a family whose clock can be tuned, not {board.name!r}")
    return tuning


class Clocking(Component):
    """Makes clock and reset from the board's oscillator: directly if it has the frequency wanted, else with a PLL.

    Does not use a reset button. Until the PLL has locked, and for :data:`RESET_CYCLES` cycles more, the design is held
    in reset; after a PLL that can be tuned its clock stands still instead: registers start with the values of the
    configuration, and no reset has to reach all of them within a cycle.

    Parameters
    ----------
    board : Board
        The board; decides about the kind of PLL.
    wanted_hz : int
        Frequency that is wanted, in hertz.
    shifted : bool
        Whether there is a second clock whose phase changes; :class:`ValueError` from the family if it has none.

    Attributes
    ----------
    hz : float
        The frequency made: the greatest one possible that is not above ``wanted_hz``.
    has_reset : bool
        Whether ``rst`` is used.
    tunable : bool
        As :func:`tunable`.
    """

    clk = Output(1, "The clock.")
    rst = Output(1, "Reset of its domain, synchronous to it, if ``has_reset``.")
    start_clk = Output(1, "The clock of the start: the oscillator itself unless its pin belongs to the PLL.")
    runs = Output(1, "``clk`` runs and ``rst`` is over; synchronous to ``start_clk``.")
    memory_clk = Output(1, "The clock of the external memory. Only if ``shifted``.", when=lambda self: self.shifted)
    step = Input(
        stream_of(1),
        "That clock is to be one phase later, for 1 earlier; synchronous to ``clk``. Only if ``shifted``.",
        when=lambda self: self.shifted,
    )

    #: Cycles of a step of the phase, a power of two: half of them in front of the edge that makes it.
    STEP_CYCLES = 64

    def __init__(self, board: Board, wanted_hz: float, *, shifted: bool = False):
        self.board, self.shifted = board, shifted
        self.hz, self.pll = clock_of(board, wanted_hz)
        self.tunable = tunable(board, wanted_hz)
        self.has_reset = not self.tunable
        super().__init__()

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        port = platform.request(self.board.oscillator, dir="-")
        m.domains.start = ClockDomain(reset_less=True, local=True)
        clk, pll_locked, waiting = Signal(), Signal(), Signal(init=1)
        shifted = self._shifted(m) if self.shifted else None
        if self.pll is not None and self.pll.takes_pin:
            self.pll.build(m, port.io, clk, pll_locked, shifted)
            m.d.comb += ClockSignal("start").eq(clk)
        else:
            pad: Any = io.Buffer("i", port)
            m.submodules.pad = pad
            m.d.comb += ClockSignal("start").eq(pad.i)  # a clock that is gated must not come from a global net
            if self.pll is None:
                m.d.comb += [clk.eq(pad.i), pll_locked.eq(1)]
            else:
                self.pll.build(m, pad.i, clk, pll_locked, shifted)

        locked = Signal()
        m.submodules.synchronizer = cdc.FFSynchronizer(pll_locked, locked, o_domain="start")
        wait = Signal(range(RESET_CYCLES), init=RESET_CYCLES - 1)
        with m.If(~locked):
            m.d.start += wait.eq(wait.init)
        with m.Elif(wait != 0):
            m.d.start += wait.eq(wait - 1)
        m.d.start += waiting.eq(wait != 0)
        m.d.comb += [self.start_clk.eq(ClockSignal("start")), self.runs.eq(~waiting)]
        if self.has_reset:
            m.d.comb += [self.clk.eq(clk), self.rst.eq(waiting)]
        else:
            m.submodules.gate = tuning_of(self.board).gate(clk, ~waiting, self.clk)
        return m

    def _shifted(self, m: Module) -> ShiftedClock:
        """The second clock, and the pulses that move it."""
        m.domains.steps = ClockDomain(reset_less=True, local=True)
        m.d.comb += ClockSignal("steps").eq(self.clk)
        count, pulse, earlier = Signal(range(self.STEP_CYCLES)), Signal(init=1), Signal()
        with m.If(self.step.valid):
            m.d.steps += count.eq(count + 1)
        m.d.steps += [pulse.eq(~count[-1]), earlier.eq(self.step.payload)]
        m.d.comb += self.step.ready.eq(count.all())
        return ShiftedClock(self.memory_clk, pulse, earlier)
