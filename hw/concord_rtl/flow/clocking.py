"""The clock of the design on a board."""

from amaranth import *
from amaranth.lib import cdc, io, wiring
from amaranth.lib.wiring import Out

from .pll import ecp5_pll, ice40_pll

#: Net of the clock that the PLL of ECP5 makes, in the netlist; settings of the PLL can be replaced after routing.
NET = "clocking.clk"
#: Cycles the reset stays after the PLL has locked: block RAM of iCE40 is not readable at once after configuration.
RESET_CYCLES = 256


def clock_of(board, wanted_hz):
    """Return the frequency a board can make for ``wanted_hz``, and the settings of its PLL or ``None``."""
    if wanted_hz == board.oscillator_hz:
        return wanted_hz, None
    pll = (ecp5_pll if board.family == "ecp5" else ice40_pll)(board.oscillator_hz, wanted_hz)
    return pll.hz, pll


def tunable(board, wanted_hz):
    """Whether the clock of the placed and routed design can be changed (:mod:`concord_rtl.flow.tuning`)."""
    return board.family == "ecp5" and wanted_hz != board.oscillator_hz


class Clocking(wiring.Component):
    """Makes clock and reset from the board's oscillator: directly if it has the frequency wanted, else with a PLL.

    Does not use a reset button. Until the PLL has locked, and for :data:`RESET_CYCLES` cycles more, the design is held
    in reset; behind a PLL of ECP5 its clock stands still instead: registers start with the values of the configuration,
    and no reset has to reach all of them within a cycle.

    Parameters
    ----------
    board : Board
        The board; decides about the kind of PLL.
    wanted_hz : int
        Frequency wanted.

    Members
    -------
    clk : Out(1)
        The clock.
    rst : Out(1)
        Reset of its domain, synchronous to it, if ``has_reset``.
    start_clk : Out(1)
        The clock of the start: the oscillator itself unless its pin belongs to the PLL, as on iCE40.
    runs : Out(1)
        ``clk`` runs and ``rst`` is over; synchronous to ``start_clk``.

    Attributes
    ----------
    hz : float
        The frequency made: the greatest one possible that is not above ``wanted_hz``.
    has_reset : bool
        Whether ``rst`` is used.
    tunable : bool
        As :func:`tunable`.
    """

    def __init__(self, board, wanted_hz):
        self.board = board
        self.hz, self.pll = clock_of(board, wanted_hz)
        self.tunable = tunable(board, wanted_hz)
        self.has_reset = not self.tunable
        super().__init__({name: Out(1) for name in ("clk", "rst", "start_clk", "runs")})

    def elaborate(self, platform):
        m = Module()
        port = platform.request(self.board.oscillator, dir="-")
        m.domains.start = ClockDomain(reset_less=True, local=True)
        clk, pll_locked, waiting = Signal(), Signal(), Signal(init=1)
        if self.pll is not None and self.board.family == "ice40":
            self._ice40(m, port.io, clk, pll_locked)
            m.d.comb += ClockSignal("start").eq(clk)
        else:
            m.submodules.pad = pad = io.Buffer("i", port)
            m.d.comb += ClockSignal("start").eq(pad.i)  # a clock that is gated must not come from a global net
            if self.pll is None:
                m.d.comb += [clk.eq(pad.i), pll_locked.eq(1)]
            else:
                self._ecp5(m, pad.i, clk, pll_locked)

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
            m.submodules.gate = Instance("DCCA", i_CLKI=clk, i_CE=~waiting, o_CLKO=self.clk)
        return m

    def _ecp5(self, m, pin, clk, locked):
        feedback = Signal()
        m.submodules.pll = Instance(
            "EHXPLLL",
            a_ICP_CURRENT="12",
            a_LPF_RESISTOR="8",
            a_MFG_ENABLE_FILTEROPAMP="1",
            a_MFG_GMCREF_SEL="2",
            p_FEEDBK_PATH="CLKOS",
            p_CLKI_DIV=self.pll.ref_div,
            p_CLKFB_DIV=1,
            p_CLKOP_ENABLE="ENABLED",
            p_CLKOP_DIV=self.pll.out_div,
            p_CLKOP_CPHASE=self.pll.out_div - 1,
            p_CLKOS_ENABLE="ENABLED",
            p_CLKOS_DIV=self.pll.fb_div,
            p_CLKOS_CPHASE=self.pll.fb_div - 1,
            p_OUTDIVIDER_MUXA="DIVA",
            p_OUTDIVIDER_MUXB="DIVB",
            i_CLKI=pin,
            i_CLKFB=feedback,
            i_RST=Const(0),
            i_STDBY=Const(0),
            i_ENCLKOP=Const(0),
            i_ENCLKOS=Const(0),
            i_PHASESEL0=Const(0),
            i_PHASESEL1=Const(0),
            i_PHASEDIR=Const(1),
            i_PHASESTEP=Const(1),
            i_PHASELOADREG=Const(1),
            i_PLLWAKESYNC=Const(0),
            o_CLKOP=clk,
            o_CLKOS=feedback,
            o_LOCK=locked,
        )

    def _ice40(self, m, pin, clk, locked):
        # The pin of the oscillator belongs to the PLL: nothing else can read it.
        m.submodules.pll = Instance(
            "SB_PLL40_PAD",
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=Const(self.pll.divr, 4),
            p_DIVF=Const(self.pll.divf, 7),
            p_DIVQ=Const(self.pll.divq, 3),
            p_FILTER_RANGE=Const(self.pll.filter_range, 3),
            i_PACKAGEPIN=pin,
            i_RESETB=Const(1),
            i_BYPASS=Const(0),
            o_PLLOUTGLOBAL=clk,
            o_LOCK=locked,
        )
