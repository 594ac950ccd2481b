# amaranth: UnusedElaboratable=no
import itertools
import os
from dataclasses import replace

import pytest

from concord.spec.dram import SDRAM_32MB
from concord_rtl.dram.controller import SdramController
from concord_rtl.dram.search import PhaseSearch
from support import sdram_model
from support.sdram_bench import PART, PHASES, Traffic, memory_of, refuses, run_traffic, search
from support.sdram_model import Delays, SdramFault, SdramModel

#: Clock at which the times of the small part are whole cycles or nearly so.
HZ = 100e6
#: Times that make a part too slow for the controller, each by itself, and the fault that the model must find.
SLOWER = {
    "rcd": (20.1, r"(READ|WRITE) after ACTIVATE after 20.0 ns, not 20.1"),
    "rp": (20.1, r"(ACTIVATE|REFRESH) after PRECHARGE after 20.0 ns, not 20.1"),
    "ras": (50.1, r"PRECHARGE after ACTIVATE after 50.0 ns, not 50.1"),
    "rc": (70.1, r"ACTIVATE after ACTIVATE after 70.0 ns, not 70.1"),
    "rrd": (30.1, r"ACTIVATE after that of another bank after 30.0 ns, not 30.1"),
    "rfc": (70.1, r"command after REFRESH after 70.0 ns, not 70.1"),
    "wr": (20.1, r"PRECHARGE after WRITE after 20.0 ns, not 20.1"),
    "refresh": (5000.0, r"refresh after \d+ ns, not 5000"),
}
#: The same of what is done once, in front of the search.
AT_THE_START = {
    "cas": (3, "mode 0x20"),
    "power_up": (20_000.0, "first command after"),
}


def model_of(part=PART, hz=HZ, delays=None, seed=0):
    return SdramModel(part, 1e9 / hz, PHASES, delays, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "writes", "idle", "restarts"),
    [(0.0, 0.5, 0.0, 0.0), (0.6, 0.3, 0.2, 0.002), (0.97, 0.5, 0.0, 0.001), (0.9, 0.9, 0.6, 0.0)],
)
def test_random_traffic(run, writes, idle, restarts):
    traffic = Traffic(1_500, run=run, writes=writes, idle=idle, restarts=restarts, seed=int(100 * run))
    run_traffic(memory_of(), model_of(seed=3), traffic)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(int(os.environ.get("CONCORD_SEEDS", "3"))))
def test_many_commands(seed):
    """A million with ``CONCORD_SEEDS=10``."""
    traffic = Traffic(100_000, run=0.15 * (seed % 7), writes=0.5, idle=0.1 * (seed % 3), restarts=0.0005, seed=seed)
    run_traffic(memory_of(), model_of(seed=seed), traffic)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOWER)
def test_the_model_rejects_a_controller_for_a_faster_part(name):
    value, fault = SLOWER[name]
    with pytest.raises(SdramFault, match=fault):
        run_traffic(memory_of(), model_of(replace(PART, **{name: value})), Traffic(1_500, run=0.5, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("name", AT_THE_START)
def test_the_model_rejects_the_start_of_another_part(name):
    value, fault = AT_THE_START[name]
    model, right = model_of(replace(PART, **{name: value})), model_of()
    for each in (model, right):
        search(memory_of(), each)
    assert any(fault in line for line in model.faults)
    assert not any(fault in line for line in right.faults)


@pytest.mark.slow
def test_the_model_rejects_a_bus_that_both_sides_drive(monkeypatch):
    """Of a part that lets go of the data later than the controller waits."""
    monkeypatch.setattr(sdram_model, "RELEASED", 25.0)
    with pytest.raises(SdramFault, match="both sides drive the data"):
        run_traffic(memory_of(), model_of(), Traffic(500, run=0.5, seed=1))


@pytest.mark.slow
@pytest.mark.parametrize("access", [4.0, pytest.param(5.4, marks=pytest.mark.deep), 6.5])
def test_the_search_at_every_delay(access):
    """Of pads and wires there and back: with 12 ns for a cycle two latencies are enough for all of them."""
    for clock, out, back in itertools.product((0.0, 3.0, 6.0), repeat=3):
        model = model_of(hz=83e6, delays=Delays(clock, out, back, access))
        works, phase, width, _ = search(memory_of(), model)
        assert works, (clock, out, back)
        assert width >= PhaseSearch.LEAST
        assert model.phase == phase


@pytest.mark.slow
@pytest.mark.parametrize("access", [4.0, 6.5])
@pytest.mark.parametrize(("clock", "out", "back"), [(0.0, 6.0, 1.0), (6.0, 0.0, 6.0), (2.0, 3.0, 0.0)])
def test_traffic_behind_any_pads_takes_the_same_cycles(clock, out, back, access):
    """Cycles are those of the memory without delays, for the latency does not depend on what the search has chosen."""
    traffic = Traffic(600, run=0.8, seed=4)
    model = model_of(hz=83e6, delays=Delays(clock, out, back, access), seed=1)
    assert run_traffic(memory_of(), model, traffic) == run_traffic(memory_of(), model_of(seed=1), traffic)


@pytest.mark.slow
@pytest.mark.parametrize("delays", [Delays(access=40.0), Delays(back=30.0, access=15.0)])
def test_a_memory_without_an_answer_is_refused(delays):
    model = model_of(delays=delays)
    works, *_ = search(memory_of(), model)
    assert not works
    assert refuses(memory_of(), model_of(delays=delays))


@pytest.mark.slow
def test_share_of_the_bus():
    """Of sequential columns, with refreshes and rows that are opened."""
    part = replace(SDRAM_32MB, power_up=500.0)
    dut = memory_of(part, (72e6, 72e6))
    for writes in (0.0, 1.0):
        count = 20_000
        cycles = run_traffic(dut, model_of(part, 72e6), Traffic(count, run=1.0, writes=writes, seed=2))
        assert count / cycles >= 0.95


def test_rows_that_must_be_further_apart():
    with pytest.raises(ValueError, match="rrd must be at most 3 cycles, not 4"):
        SdramController(PART, replace(PART.timing(HZ, HZ), rrd=4))


@pytest.mark.parametrize("phases", [4, 12])
def test_phases(phases):
    with pytest.raises(ValueError, match="phases must be a power of two, at least 8, not"):
        PhaseSearch(PART, phases)
