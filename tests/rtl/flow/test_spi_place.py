"""The slave between the pins of a board, with an echo as its core: what it takes, and the clock of the host."""

import json
import re

import pytest
from amaranth import Module, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out
from rich.console import Console

from concord.spec.boards import BOARD_SPECS
from concord_boards import board_named
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.report import clocks, utilisation

pytestmark = pytest.mark.slow


class Echo(wiring.Component):
    """Sends what it gets, a cycle later."""

    def __init__(self):
        flags = {"done": Out(1), "trapped": Out(1), "busy": Out(1)}
        super().__init__({"rx": In(stream.Signature(8)), "tx": Out(stream.Signature(8))} | flags)

    def elaborate(self, platform):
        m = Module()
        byte, valid = Signal(8), Signal()
        m.d.comb += [self.tx.payload.eq(byte), self.tx.valid.eq(valid), self.rx.ready.eq(~valid | self.tx.ready)]
        with m.If(self.rx.ready):
            m.d.sync += [byte.eq(self.rx.payload), valid.eq(self.rx.valid)]
        return m


@pytest.mark.parametrize(
    ("name", "hz", "cells", "host_mhz", "nanoseconds"),
    [("ulx3s-25f", 82e6, {"LUT4": 120, "EBR": 0}, 150, 4), ("icebreaker", 24e6, {"LC": 165, "EBR": 0}, 50, 10)],
)
def test_what_it_takes(tmp_path, name, hz, cells, host_mhz, nanoseconds):
    """Cells with clock and reset of the board; nanoseconds from the edge of the clock to the pad."""
    board = board_named(name)
    top = BoardTop(Echo(), board, clock_hz=hz, link=BOARD_SPECS[name].link("spi"))
    flow = Flow(board, tmp_path, Console())
    flow.generate(lambda: top, "spi")
    flow.synthesize()
    report = flow.place([1], Goal(hz, hz, False))[1]
    used = utilisation(report, flow.family)
    (host,) = (clock for clock in clocks(report, hz) if clock["clock"].startswith("port."))
    (delay, *_) = reversed(re.findall(r"Max delay negedge \S*port\.\S+ +-> <async> +: ([\d.]+) ns", log_of(tmp_path)))
    print(json.dumps(used), host, delay)
    assert host["met"] and host["mhz"] >= host_mhz and float(delay) < nanoseconds
    assert {resource: used[resource]["used"] <= most for resource, most in cells.items()} == dict.fromkeys(cells, True)


def log_of(folder):
    return (folder / "seed1.log").read_text()
