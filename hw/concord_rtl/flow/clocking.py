"""The clock of the design on a board."""

from amaranth import *
from amaranth.lib import cdc, io, wiring
from amaranth.lib.wiring import Out

from .pll import ecp5_pll, ice40_pll

#: Cycles the reset stays after the PLL has locked: block RAM of iCE40 is not readable at once after configuration.
RESET_CYCLES = 256


class Clocking(wiring.Component):
    """Makes the ``sync`` domain from the board's oscillator: directly if it has the frequency wanted, else with a PLL.

    Does not use a reset button; the domain is in reset until the PLL has locked and :data:`RESET_CYCLES` cycles more.

    Parameters
    ----------
    board : Board
        The board; decides about the kind of PLL.
    wanted_hz : int
        Frequency wanted.

    Members
    -------
    locked : Out(1)
        The PLL has locked; not synchronised.

    Attributes
    ----------
    hz : float
        The frequency made: the greatest one possible that is not above ``wanted_hz``.
    """

    def __init__(self, board, wanted_hz):
        self.board = board
        self.pll = None
        self.hz = board.oscillator_hz
        if wanted_hz != board.oscillator_hz:
            self.pll = (ecp5_pll if board.family == "ecp5" else ice40_pll)(board.oscillator_hz, wanted_hz)
            self.hz = self.pll.hz
        super().__init__({"locked": Out(1)})

    def elaborate(self, platform):
        m = Module()
        m.submodules.pad = pad = io.Buffer("i", platform.request(self.board.oscillator, dir="-"))
        m.domains.sync = ClockDomain()
        m.domains.start = ClockDomain(reset_less=True, local=True)
        m.d.comb += ClockSignal("start").eq(ClockSignal("sync"))
        if self.pll is None:
            m.d.comb += [ClockSignal("sync").eq(pad.i), self.locked.eq(1)]
        elif self.board.family == "ecp5":
            self._ecp5(m, pad.i)
        else:
            self._ice40(m, pad.i)

        locked = Signal()
        m.submodules.locked_sync = cdc.FFSynchronizer(self.locked, locked, o_domain="start")
        wait = Signal(range(RESET_CYCLES), init=RESET_CYCLES - 1)
        with m.If(~locked):
            m.d.start += wait.eq(wait.init)
        with m.Elif(wait != 0):
            m.d.start += wait.eq(wait - 1)
        held = Signal(init=1)
        m.d.start += held.eq(wait != 0)
        m.d.comb += ResetSignal("sync").eq(held)
        return m

    def _ecp5(self, m, pin):
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
            o_CLKOP=ClockSignal("sync"),
            o_CLKOS=feedback,
            o_LOCK=self.locked,
        )

    def _ice40(self, m, pin):
        m.submodules.pll = Instance(
            "SB_PLL40_CORE",
            p_FEEDBACK_PATH="SIMPLE",
            p_DIVR=Const(self.pll.divr, 4),
            p_DIVF=Const(self.pll.divf, 7),
            p_DIVQ=Const(self.pll.divq, 3),
            p_FILTER_RANGE=Const(self.pll.filter_range, 3),
            i_REFERENCECLK=pin,
            i_RESETB=Const(1),
            i_BYPASS=Const(0),
            o_PLLOUTGLOBAL=ClockSignal("sync"),
            o_LOCK=self.locked,
        )
