from dataclasses import astuple, replace
from math import ceil

import pytest

from concord.spec.boards import BOARD_SPECS
from concord.spec.dram import PARTS
from concord.spec.dram import SDRAM_32MB as PART
from concord.spec.presets import presets_of


def test_sizes():
    assert PART.nbytes == 32 << 20
    assert replace(PART, width=8, row_bits=12).nbytes == 8 << 20
    assert [part.nbytes >> 20 for part in PARTS.values()] == [32, 4]
    assert [name for name, board in BOARD_SPECS.items() if not board.dram] == [
        "icebreaker",
        "orangecrab-25f",
        "orangecrab-85f",
    ]


@pytest.mark.parametrize("fastest", [25e6, 50e6, 66.7e6, 72e6, 83e6, 100e6])
def test_cycles_are_no_shorter_than_the_times_and_no_cycle_longer(fastest):
    timing, period = PART.timing(20e6, fastest), 1e9 / fastest
    for name in ("rcd", "rp", "rrd", "rfc", "wr"):
        assert getattr(timing, name) == ceil(round(getattr(PART, name) / period, 6))
    assert timing.ras * period >= PART.ras - 1e-3 and (timing.ras + timing.rp) * period >= PART.rc - 1e-3
    assert min(astuple(timing)) >= 1


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
@pytest.mark.parametrize("slowest", [20e6, 60e6, 100e6])
def test_refreshes_leave_time_for_rows_to_be_closed(slowest, part):
    timing = part.timing(slowest, 100e6)
    latest = timing.refresh + timing.ras + timing.wr + timing.rp + timing.rfc
    assert latest / slowest * 1e9 <= part.refresh


@pytest.mark.parametrize("clocks", [(0, 50e6), (60e6, 50e6), (50e6, 101e6)])
def test_clocks_out_of_range(clocks):
    with pytest.raises(ValueError, match="clocks must be 0 < slowest <= fastest <= 100 MHz, not"):
        PART.timing(*clocks)


def test_a_clock_too_slow_for_refreshes():
    with pytest.raises(ValueError, match=r"slowest clock must leave time between refreshes, not be 5 MHz"):
        PART.timing(5e6, 100e6)


@pytest.mark.parametrize("refresh", [100, 360, 700])
def test_clocks_of_an_interval(refresh):
    """At the slowest clock the latest refresh is in time, at a slower one it is not."""
    slowest, fastest = PART.clocks(refresh)
    longest = PART.timing(fastest, fastest).longest
    assert fastest == PART.cas_hz
    assert (refresh + longest) / slowest * 1e9 == pytest.approx(PART.refresh)


def test_presets_have_the_memory_of_their_board():
    for board, spec in BOARD_SPECS.items():
        for config in presets_of(board):
            assert config.dram in ("", spec.dram)
            if config.dram:
                slowest, fastest = config.sdram.clocks(config.dram_refresh)
                assert slowest <= config.clock_hz <= fastest
    assert [config.dram for config in presets_of("ulx3s-85f")] == ["", "sdram-32mb"]
    assert {config.dram for config in presets_of("orangecrab-85f")} == {""}
