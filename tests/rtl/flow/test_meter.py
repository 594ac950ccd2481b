import pytest
from amaranth import *
from amaranth.lib import wiring
from amaranth.lib.wiring import Out
from amaranth.sim import Simulator

from concord_rtl.families.ecp5.pll import Ecp5Pll, ecp5_pll
from concord_rtl.families.ecp5.tuning import WORDS, tuned, tuning
from concord_rtl.flow.board_top import divisor_of
from concord_rtl.flow.meter import BitMeter

OSCILLATOR = 25_000_000


class Start(wiring.Component):
    """A meter whose clock starts some time after the oscillator."""

    def __init__(self, meter, wait):
        self.meter, self.wait = meter, wait
        super().__init__({"divisor": Out(meter.divisor.shape())})

    def elaborate(self, platform):
        m = Module()
        m.domains.oscillator = ClockDomain(reset_less=True)
        m.submodules.meter = self.meter
        waiting = Signal(range(self.wait + 1), init=self.wait)
        with m.If(waiting != 0):
            m.d.oscillator += waiting.eq(waiting - 1)
        m.d.comb += [self.meter.run.eq(waiting == 0), self.divisor.eq(self.meter.divisor)]
        return m


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mhz", "baud"),
    [(50, 1_000_000), (62.5, 115_200), (87.5, 3_000_000), (95.8333, 3_000_000), (108, 1_000_000), (112.5, 3_000_000)],
)
def test_the_serial_port_finds_its_divisor(mhz, baud):
    meter = BitMeter(OSCILLATOR, baud, 4000)
    dut, hz = Start(meter, 5), mhz * 1e6
    seen = []

    async def bench(ctx):
        seen.append(ctx.get(dut.divisor))
        await ctx.tick("oscillator").repeat(5 + meter.window + 10)
        seen.append(ctx.get(dut.divisor))
        await ctx.tick("oscillator").repeat(2 * meter.window)
        seen.append(ctx.get(dut.divisor))

    simulator = Simulator(dut)
    simulator.add_clock(1 / hz)
    simulator.add_clock(1 / OSCILLATOR, domain="oscillator")
    simulator.add_testbench(bench)
    simulator.run()
    assert seen == [4000, divisor_of(hz, baud), divisor_of(hz, baud)]


USB = Ecp5Pll(10e6, 5, 2, 48)


def settings(pll, feedback="CLKOS"):
    """What nextpnr writes about a PLL, among other things."""
    lines = [f"word: {name} {getattr(pll, part) - 1:07b}" for name, part in WORDS.items()]
    rest = ["word: CLKOS2_DIV 0000111", "enum: MODE EHXPLLL", f"enum: FEEDBK_PATH {feedback}", ""]
    return "\n".join([".tile_group MIB_R50C2:PLL0_LL MIB_R50C3:BANKREF8", "word: CLKFB_DIV 0000000", *lines, *rest, ""])


def test_the_clock_of_a_design_is_read_and_replaced():
    old, new = ecp5_pll(OSCILLATOR, 110e6), ecp5_pll(OSCILLATOR, 97.3e6)
    assert old != new and tuning(settings(old), OSCILLATOR) == old
    assert tuned(settings(old), new, OSCILLATOR) == settings(new)
    for texts in (("", settings(USB, "CLKOP")), (settings(USB, "CLKOP"), "")):  # that of a link stays as it is
        first, last = texts
        assert tuned(first + settings(old) + last, new, OSCILLATOR) == first + settings(new) + last


def test_other_designs_are_refused():
    pll = Ecp5Pll(100e6, 1, 24, 6)
    with pytest.raises(ValueError, match="one PLL with feedback from CLKOS, not 0"):
        tuning("", OSCILLATOR)
    with pytest.raises(ValueError, match="one PLL with feedback from CLKOS, not 2"):
        tuned(settings(pll) * 2, pll, OSCILLATOR)
    text = settings(pll).replace("CLKOP_CPHASE 0000101", "CLKOP_CPHASE 0000100")
    with pytest.raises(ValueError, match="CLKOP_CPHASE must be that of divider 6, not of 5"):
        tuning(text, OSCILLATOR)
