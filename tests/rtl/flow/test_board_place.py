"""A small design on every package and with every link: nextpnr takes the pins, all clocks are met, and it is packed."""

import pytest
from rich.console import Console

from concord.spec.boards import BOARD_SPECS
from concord_boards import board_named
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.clocking import clock_of
from concord_rtl.flow.report import clocks
from support.flow_design import Echo

pytestmark = pytest.mark.slow
DEEP = pytest.mark.deep


@pytest.mark.parametrize(
    ("name", "link", "domains"),
    [
        ("orangecrab-25f", "usb", 4),
        pytest.param("orangecrab-85f", "uart", 2, marks=DEEP),
        pytest.param("icepi-zero", "usb", 4, marks=DEEP),
        pytest.param("colorlight-i5", "uart", 2, marks=DEEP),
        pytest.param("colorlight-i9", "spi", 3, marks=DEEP),
        pytest.param("icesugar-pro", "spi", 3, marks=DEEP),
    ],
)
def test_it_is_placed_and_packed(tmp_path, name, link, domains):
    board, spec = board_named(name), BOARD_SPECS[name]
    hz, pll = clock_of(board, min(spec.clock_hz, 60e6))
    assert pll is not None
    top = BoardTop(Echo([]), board, clock_hz=hz, link=spec.link(link))
    flow = Flow(board, tmp_path, Console(quiet=True))
    flow.generate(lambda: top, "echo")
    flow.synthesize()
    reached = clocks(flow.place([1], Goal(hz, hz, False))[1], hz)
    assert len(reached) == domains and all(clock["met"] for clock in reached)
    flow.pack(flow.placed, flow.bitstream)
    assert flow.bitstream.stat().st_size > 50_000
