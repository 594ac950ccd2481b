"""Cycles and stalls of random programs, as the counters of the RTL have shown them.

The same programs are among those that ``tests/rtl/test_engines_rtl.py`` runs on the RTL and compares all counters of.
Whoever changes the generator of random programs puts in what these tests find, behind a run of those.
"""

import random

import pytest

from concord.emulator import Emulator
from support.program_gen import random_program
from support.rtl_configs import ENGINES_AND_WINDOWS, FOUR_ENGINES, NINE_TAPS, SHORT_REGISTER

#: (cycles, stalls) by configuration, of the programs with the seeds from 0 on.
COUNTED = {
    FOUR_ENGINES: [(1200, 681), (628, 414), (425, 61), (1171, 705), (781, 439), (1276, 854), (1770, 1058), (933, 366)],
    ENGINES_AND_WINDOWS: [
        (743, 82),
        (801, 297),
        (418, 61),
        (812, 358),
        (917, 321),
        (1158, 664),
        (951, 629),
        (1052, 161),
    ],
    NINE_TAPS: [(2120, 474), (2094, 53), (1936, 554), (2042, 477), (1374, 392), (1823, 503), (5537, 1851), (1272, 68)],
    SHORT_REGISTER: [(1189, 683), (631, 417), (418, 61), (1171, 705), (860, 518), (1219, 738), (771, 515), (949, 377)],
}
CASES = [(config, seed, counted) for config, found in COUNTED.items() for seed, counted in enumerate(found)]


@pytest.mark.parametrize(("config", "seed", "counted"), CASES, ids=lambda x: getattr(x, "name", str(x)))
def test_random_programs(config, seed, counted):
    run = Emulator(random_program(config, random.Random(seed), 8)[1]).run()
    assert (run.cycles, run.hazard_stalls) == counted
