import pytest

from concord.spec.boards import BOARD_SPECS
from concord.spec.links import USB, LinkKind, uart
from concord.spec.presets import PRESETS
from concord_boards import BOARDS, board_named
from concord_rtl.families import ECP5, ICE40
from concord_rtl.families.ecp5 import pll as ecp5
from concord_rtl.families.ice40 import pll as ice40
from concord_rtl.flow.board_top import BoardTop, check_link
from concord_rtl.flow.clocking import clock_of
from concord_rtl.flow.ports.uart import divisor_of
from concord_rtl.link.usb_port import USB_HZ, USB_IO_HZ
from support.flow_design import Echo

PINS = {
    "ulx3s-85f": ("M1", "L4", "G2", "B2"),
    "ulx3s-25f": ("M1", "L4", "G2", "B2"),
    "icebreaker": ("6", "9", "35", "37"),
}


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_every_board_names_a_preset_and_has_its_pins(name):
    board = board_named(name)
    assert board.name == name and list(BOARDS) == list(BOARD_SPECS)
    assert board.preset == BOARD_SPECS[name].preset and board.preset in PRESETS
    platform = board.platform()
    platform.lookup("uart", 0)
    for resource, number in board.leds:
        platform.lookup(resource, number)
    assert platform.lookup(board.oscillator).clock.frequency == board.oscillator_hz


def test_unknown_board_is_refused():
    with pytest.raises(ValueError, match=r"^board must be one of ulx3s-85f, .*, icebreaker, not 'de10'$"):
        board_named("de10")
    with pytest.raises(ValueError, match=r"not 'icebraker'; did you mean icebreaker\?$"):
        board_named("icebraker")


@pytest.mark.parametrize("name", sorted(BOARD_SPECS))
def test_placements_are_of_the_presets_of_the_board(name):
    assert set(BOARD_SPECS[name].presets) <= set(PRESETS)
    assert set(board_named(name).placements) <= set(BOARD_SPECS[name].presets)


@pytest.mark.parametrize(
    ("name", "clock"), [("ulx3s-85f", 100e6), ("ulx3s-25f", 25e6), ("icebreaker", 12e6), ("icebreaker", 24e6)]
)
def test_top_has_pins_and_clock(name, clock):
    board = board_named(name)
    top = BoardTop(Echo([]), board, clock_hz=clock, link=uart())
    assert top.hz == clock
    assert top.port.divisor == clock / 1e6
    files = board.platform().prepare(top, "npu", emit_src=False).files
    pins = files["npu.lpf" if board.family == "ecp5" else "npu.pcf"]
    for pin in PINS[name]:
        assert f'"{pin}"' in pins or f" {pin}\n" in pins
    has_pll = "PLL" in files["npu.il"]
    assert has_pll == (clock != board.oscillator_hz)


@pytest.mark.parametrize(
    ("name", "pins"),
    [("ulx3s-85f", {"sck": "B11", "csn": "C11", "copi": "A10", "cipo": "A11"}),
     ("icebreaker", {"csn": "3", "copi": "48", "cipo": "46", "sck": "44"})],
)  # fmt: skip
def test_top_with_spi(name, pins):
    """It has its own pins, none of the serial port, and the lights; its clock has a target."""
    board = board_named(name)
    link = BOARD_SPECS[name].link("spi")
    files = board.platform().prepare(BoardTop(Echo([]), board, clock_hz=24e6, link=link), "npu", emit_src=False).files
    text = files["npu.lpf" if board.family == "ecp5" else "npu.pcf"]
    for signal, pin in pins.items():
        assert f'COMP "spi_0__{signal}__io" SITE "{pin}"' in text or f"spi_0__{signal}__io {pin}\n" in text
    assert f'"{PINS[name][0]}"' not in text and f" {PINS[name][0]}\n" not in text
    assert f'"{PINS[name][3]}"' in text or f" {PINS[name][3]}\n" in text
    hz = 2.0 * link.clock_hz
    assert f'FREQUENCY PORT "spi_0__sck__io" {hz} HZ' in text or f"set_frequency spi_0__sck__io {hz / 1e6}" in text


@pytest.mark.parametrize("name", sorted(BOARD_SPECS))
def test_boards_have_pins_for_their_links(name):
    kinds = {link.kind for link in BOARD_SPECS[name].links}
    assert (LinkKind.SPI in kinds) == (board_named(name).spi is not None)
    assert BOARD_SPECS[name].link().kind is LinkKind.UART


@pytest.mark.parametrize("name", [name for name, spec in BOARD_SPECS.items() if USB in spec.links])
def test_top_with_usb_has_its_pins_and_clocks(name):
    board = board_named(name)
    files = board.platform().prepare(BoardTop(Echo([]), board, clock_hz=50e6, link=USB), "npu", emit_src=False).files
    assert all(f'SITE "{pin}"' in files["npu.lpf"] for pin in ("D15", "E15", "B12"))
    assert files["npu.il"].count("cell \\EHXPLLL") == 2


def test_the_clocks_of_usb_are_exact():
    pll = ECP5.usb_pll(25e6)
    vco = 25e6 / pll.REF_DIV * pll.FB_DIV * pll.FB_OUT_DIV
    assert ecp5.VCO[0] <= vco <= ecp5.VCO[1]
    assert (vco / pll.USB_DIV, vco / pll.USB_IO_DIV) == (USB_HZ, USB_IO_HZ) == (12e6, 48e6)


def test_boards_without_the_clocks_of_usb_are_refused():
    with pytest.raises(ValueError, match="board must be one whose PLL makes the clocks of USB, not one with ice40"):
        ICE40.usb_pll(12e6)
    with pytest.raises(ValueError, match="oscillator must have 25 MHz for USB, not 12"):
        ECP5.usb_pll(12e6)


def test_usb_without_its_packages_is_refused(monkeypatch):
    monkeypatch.setattr("concord_rtl.flow.board_top.find_spec", lambda name: None)
    check_link(50e6, uart())
    with pytest.raises(ValueError, match="luna-usb is of the extra usb"):
        check_link(50e6, USB)


@pytest.mark.parametrize(("hz", "baud", "divisor"), [(50e6, 1_000_000, 50), (12e6, 3_000_000, 4), (50e6, 115_200, 434)])
def test_bit_rate_of_a_clock(hz, baud, divisor):
    assert divisor_of(hz, baud) == divisor


@pytest.mark.parametrize(("hz", "baud"), [(25e6, 3_000_000), (12e6, 4_000_000), (50e6, 0), (50e6, -9600)])
def test_bit_rates_that_the_clock_does_not_give_are_refused(hz, baud):
    with pytest.raises(
        ValueError, match=rf"baud must be within [\d.]+ % of {hz / 1e6:g} MHz / n with n of at least 4, not {baud}"
    ):
        divisor_of(hz, baud)


@pytest.mark.parametrize("mhz", [10, 12, 33.3, 50, 62.5, 80, 100, 133, 200])
def test_ecp5_pll_is_near_and_within_limits(mhz):
    pll = ecp5.ecp5_pll(25e6, mhz * 1e6)
    vco = 25e6 / pll.ref_div * pll.fb_div
    assert 25e6 / pll.ref_div >= ecp5.PFD_MIN
    assert ecp5.VCO[0] <= vco <= ecp5.VCO[1]
    assert vco / pll.out_div == pytest.approx(pll.hz)
    assert 0.98 * mhz * 1e6 <= pll.hz <= mhz * 1e6 * (1 + 1e-6)


@pytest.mark.parametrize("mhz", [18, 24, 30, 48, 60, 100])
def test_ice40_pll_is_near_and_within_limits(mhz):
    pll = ice40.ice40_pll(12e6, mhz * 1e6)
    pfd = 12e6 / (pll.divr + 1)
    vco = pfd * (pll.divf + 1)
    assert ice40.PFD[0] <= pfd <= ice40.PFD[1]
    assert ice40.VCO[0] <= vco <= ice40.VCO[1]
    assert vco / (1 << pll.divq) == pytest.approx(pll.hz)
    assert 0.98 * mhz * 1e6 <= pll.hz <= mhz * 1e6 * (1 + 1e-6)


@pytest.mark.parametrize(("make", "hz"), [(ECP5.pll, 1e6), (ECP5.pll, 1e9), (ICE40.pll, 13e6), (ICE40.pll, 600e6)])
def test_frequency_out_of_reach_is_refused(make, hz):
    with pytest.raises(ValueError, match="clock must be a frequency the PLL can make"):
        make(12e6, hz)


@pytest.mark.parametrize("name", sorted(BOARD_SPECS))
def test_clock_and_bit_rate_can_be_made(name):
    spec = BOARD_SPECS[name]
    hz, _ = clock_of(board_named(name), spec.clock_hz)
    assert divisor_of(hz, spec.link().baud) == round(hz / spec.link().baud)
