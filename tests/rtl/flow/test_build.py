"""The whole flow on a small design; block RAMs filled afterwards are as if built with the contents."""

import random

import pytest
from rich.console import Console

from concord.spec.links import USB, uart
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY, UP5K
from concord_boards import board_named
from concord_rtl.build import _summary
from concord_rtl.core.implementation import Contents
from concord_rtl.core.top import NpuTop
from concord_rtl.families import family_named
from concord_rtl.families.ecp5.tuning import tuned, tuning
from concord_rtl.flow import contents, report
from concord_rtl.flow.bitstream import Flow, Goal
from concord_rtl.flow.board_top import BoardTop, reachable
from concord_rtl.flow.bram import BlockRams
from concord_rtl.flow.clocking import NET
from concord_rtl.flow.tools import Job, run_jobs
from concord_rtl.memories.matrix_memory import MatrixMemory
from support.flow_design import Echo, random_store

SHAPES = {
    "ulx3s-25f": {"wide": (72, 2048), "odd": (37, 600), "table": (16, 1024), "small": (17, 64)},
    "icebreaker": {"wide": (36, 256), "odd": (11, 300), "table": (16, 512), "small": (9, 64)},
}


#: Weights in two banks of block RAM of different shapes, as in the preset ecp5-85f.
WEIGHTS = TINY.replace(name="weights", matrix_depth=2560)


def build(folder, board, seed, make, hz=None):
    """Flow and runs of the design that ``make()`` returns; ``seed`` tells designs apart."""
    flow = Flow(board, folder, Console(quiet=True))
    hz = hz or board.oscillator_hz
    flow.generate(lambda: BoardTop(make(), board, clock_hz=hz, link=uart()), seed)
    flow.synthesize()
    return flow, flow.place([1], Goal(hz, hz))


def check_filled(flow, fresh, old, new):
    """``new`` filled into ``flow``, which was built with ``old``, gives what was built with ``new``: ``fresh``."""
    rams = BlockRams(flow.family.geometry, flow.placed.read_text())
    layout = rams.locate(old)
    assert not layout.missing
    layout.write(rams, new)
    assert rams.text() == fresh.placed.read_text()
    assert layout.read(BlockRams(flow.family.geometry, fresh.placed.read_text())) == new

    flow.pack(flow.placed, flow.bitstream)
    fresh.pack(fresh.placed, fresh.bitstream)
    assert flow.bitstream.read_bytes() != fresh.bitstream.read_bytes()
    filled = flow.folder / "filled"
    filled.write_text(rams.text())
    flow.pack(filled, flow.bitstream)
    assert flow.bitstream.read_bytes() == fresh.bitstream.read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_filled_equals_built_with_the_contents(name, tmp_path):
    board = board_named(name)
    old, new = ([random_store(key, *shape, seed) for key, shape in SHAPES[name].items()] for seed in ("old", "new"))
    flow, runs = build(tmp_path / "old", board, "old", lambda: Echo(old))
    check_filled(flow, build(tmp_path / "new", board, "new", lambda: Echo(new))[0], old, new)

    used = report.utilisation(runs[1], flow.family)
    assert used["EBR"]["used"] > 0
    assert all(entry["met"] for entry in report.clocks(runs[1], board.oscillator_hz))
    assert not all(entry["met"] for entry in report.clocks(runs[1], 1e9))

    stamp = flow.placed.stat().st_size, (flow.folder / "seed1.json").stat().st_mtime_ns
    build(tmp_path / "old", board, "old", lambda: Echo(old))
    assert stamp == (flow.placed.stat().st_size, (flow.folder / "seed1.json").stat().st_mtime_ns)


@pytest.mark.deep
def test_weights_in_instantiated_block_rams(tmp_path):
    board, regions = board_named("ulx3s-25f"), [RegionId.MATRIX]
    rng = random.Random(1)
    given = [contents.noise(WEIGHTS, RegionId.MATRIX)]
    given.append([rng.getrandbits(WEIGHTS.matrix_row.width) for _ in given[0]])
    built = [
        build(tmp_path / str(k), board, str(k), lambda rows=rows: Echo([], MatrixMemory(WEIGHTS, rows)))
        for k, rows in enumerate(given)
    ]
    (flow, runs), (fresh, _) = built
    check_filled(flow, fresh, *(contents.stores(WEIGHTS, Contents(matrix=rows), regions) for rows in given))
    # Of a row of 20 bits, 2048 words take three block RAMs 9 bits wide, and 512 words one 36 bits wide.
    assert report.utilisation(runs[1], flow.family)["EBR"]["used"] == WEIGHTS.rows * (3 + 1)


@pytest.mark.deep
@pytest.mark.parametrize("link", [pytest.param(uart(), id="uart"), pytest.param(USB, id="usb")])
def test_a_clock_set_afterwards_equals_one_built_with_it(tmp_path, link):
    """And the target of place and route is not that of the PLL in the netlist; clocks of the link have their own."""
    board, texts = board_named("ulx3s-25f"), []
    for hz in (50e6, 87.5e6):
        flow = Flow(board, tmp_path / f"{hz:g}", Console(quiet=True))
        flow.generate(lambda hz=hz: BoardTop(Echo([]), board, clock_hz=hz, link=link), f"{hz:g}")
        flow.synthesize()
        runs = flow.place([1], Goal(60e6, 60e6, tunable=True))
        assert runs[1]["fmax"][NET]["constraint"] == pytest.approx(60, abs=0.01)
        texts.append(flow.placed.read_text())
        assert tuning(texts[-1], board.oscillator_hz).hz == hz
        targets = {round(clock["target_mhz"]) for clock in report.clocks(runs[1], 60e6) if clock["met"]}
        assert targets == {"uart": {60, 25}, "usb": {60, 25, 12, 48}}[link.name]
    hz, pll = reachable(board, 88e6, link)
    assert hz == 87.5e6 and texts[0] != texts[1] == tuned(texts[0], pll, board.oscillator_hz)


@pytest.mark.slow
def test_a_pll_takes_the_pin_of_the_oscillator(tmp_path):
    board = board_named("icebreaker")
    flow, runs = build(tmp_path, board, "pll", lambda: Echo([random_store("a", 8, 512, 0)]), hz=24_000_000)
    assert all(entry["met"] for entry in report.clocks(runs[1], 24e6))
    assert "SB_PLL40_PAD" in flow.file("il").read_text()


@pytest.mark.deep
def test_the_serial_preset_fits_its_board(tmp_path):
    """Without place and route, which takes minutes: what nextpnr counts after packing."""
    board = board_named("icebreaker")
    flow = Flow(board, tmp_path, Console(quiet=True))
    marked = contents.marked(UP5K, family_named(board.family), Contents())
    flow.generate(lambda: BoardTop(NpuTop(UP5K, marked), board, clock_hz=UP5K.clock_hz, link=uart()), "up5k")
    flow.synthesize()
    log = tmp_path / "pack.log"
    files = ["--json", flow.file("json").name, "--pcf", flow.file("pcf").name, "--log", log.name]
    args = [*board.place, *files, "--pack-only", "--quiet"]
    run_jobs(flow.console, [Job("packing", "nextpnr-ice40", args, tmp_path, log)])
    used = report.packed(log.read_text(), flow.family)
    assert set(used) == {"LC", "EBR", "DSP", "SPRAM"}
    assert all(n <= of for n, of in used.values()), used


def test_a_summary_is_of_the_fastest_placement():
    board = board_named("ulx3s-85f")
    used = {key: {"used": 1, "available": 2} for key in family_named(board.family).resources.values()}
    runs = {
        seed: {"fmax": {"clk": {"achieved": mhz, "constraint": 50}}, "utilization": used, "aim_hz": 5e7, "seconds": 1}
        for seed, mhz in ((1, 51.0), (2, 63.5), (3, 60.0))
    }
    summary = _summary(board, TINY, 60e6, USB, runs)
    assert summary["seed"] == 2 and summary["met"] and summary["clocks"][0]["mhz"] == 63.5
    assert {seed: run["mhz"] for seed, run in summary["seeds"].items()} == {"1": 51.0, "2": 63.5, "3": 60.0}
