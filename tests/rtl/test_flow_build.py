"""The whole flow on a small design; block RAMs filled afterwards are as if built with the contents."""

import pytest
from rich.console import Console

from concord_boards import board_named
from concord_rtl.flow import report
from concord_rtl.flow.bitstream import Flow
from concord_rtl.flow.board_top import BoardTop
from concord_rtl.flow.bram import BlockRams
from flow_design import Echo, random_store

SHAPES = {
    "ulx3s-25f": {"wide": (72, 2048), "odd": (37, 600), "table": (16, 1024), "small": (17, 64)},
    "icebreaker": {"wide": (36, 256), "odd": (11, 300), "table": (16, 512), "small": (9, 64)},
}


def build(folder, board, seed):
    stores = [random_store(name, *shape, seed) for name, shape in SHAPES[board.name].items()]
    flow = Flow(board, folder, Console(quiet=True))
    hz = board.oscillator_hz
    flow.generate(lambda: BoardTop(Echo(stores), board, clock_hz=hz, baud=1_000_000), seed)
    flow.synthesize()
    return flow, stores, flow.place([1], hz)


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_filled_equals_built_with_the_contents(name, tmp_path):
    board = board_named(name)
    flow, old, runs = build(tmp_path / "old", board, "old")
    fresh, new, _ = build(tmp_path / "new", board, "new")

    rams = BlockRams(board.family, flow.placed.read_text())
    layout = rams.locate(old)
    assert not layout.missing
    layout.write(rams, new)
    assert rams.text() == fresh.placed.read_text()
    assert layout.read(BlockRams(board.family, fresh.placed.read_text())) == new

    flow.pack(flow.placed, flow.bitstream)
    fresh.pack(fresh.placed, fresh.bitstream)
    assert flow.bitstream.read_bytes() != fresh.bitstream.read_bytes()
    filled = flow.folder / "filled"
    filled.write_text(rams.text())
    flow.pack(filled, flow.bitstream)
    assert flow.bitstream.read_bytes() == fresh.bitstream.read_bytes()

    used = report.utilisation(runs[1], board.family)
    assert used["EBR"]["used"] > 0
    assert all(entry["met"] for entry in report.clocks(runs[1], board.oscillator_hz))
    assert not all(entry["met"] for entry in report.clocks(runs[1], 1e9))

    stamp = flow.placed.stat().st_size, (flow.folder / "seed1.json").stat().st_mtime_ns
    build(tmp_path / "old", board, "old")
    assert stamp == (flow.placed.stat().st_size, (flow.folder / "seed1.json").stat().st_mtime_ns)
