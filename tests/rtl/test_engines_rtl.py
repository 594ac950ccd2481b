"""Programs on the compiled RTL with several tile engines and with windows leave what other implementations leave.

Contents, flags and counters are those of the reference machine, with the cycles of the model, and of the emulator.
``CONCORD_SEEDS`` is the number of random programs on each configuration: at most 40 if it is not set.
"""

import os
import random
from collections import Counter

import pytest

from concord.program import trace
from concord.spec import multipliers
from concord.spec.presets import TINY
from support.back_door import connected
from support.device_runs import check_machines, check_seeds
from support.engine_programs import FEEDBACK, SOURCE_AND_OPERAND, STRIDE, feedback_memories
from support.program_coverage import of_sliding, required_sliding
from support.program_gen import random_program
from support.rtl_configs import (
    EIGHT,
    ENGINES_AND_WINDOWS,
    FOUR_ENGINES,
    NINE_TAPS,
    SCALING,
    SCALING_NARROW,
    SHORT_REGISTER,
    SIXTEEN_TAPS,
)

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "0"))
#: Programs by configuration if the variable does not say how many.
FEW = {FOUR_ENGINES: 30, EIGHT: 30, NINE_TAPS: 30, SHORT_REGISTER: 12, SCALING_NARROW: 30}
#: For deep tests: parts of those above, and windows of 16 taps on rows of their own and in pairs, with two engines.
MORE = dict.fromkeys(
    [
        TINY.replace(name="tiny-two", engines=2),
        ENGINES_AND_WINDOWS,
        SCALING,
        SIXTEEN_TAPS,
        SIXTEEN_TAPS.replace(name="tiny-sixteen-pairs", wgt_mant=8, engines=2),
    ],
    40,
)


def configurations(chosen=lambda config: True):
    """Parameters of a test."""
    marked = [*((config, ()) for config in FEW), *((config, pytest.mark.deep) for config in MORE)]
    return [pytest.param(c, marks=m, id=f"T={c.engines}-{c.name}") for c, m in marked if chosen(c)]


@pytest.fixture(scope="module", params=configurations())
def device(request):
    with connected(request.param) as device:
        yield device


def has_groups(config):
    """Whether the programs that are written down are for it: they are for several engines of four rows."""
    return config.engines > 1 and config.native == 4


@pytest.mark.parametrize("device", configurations(has_groups), indirect=True)
@pytest.mark.parametrize("text", [FEEDBACK, SOURCE_AND_OPERAND, STRIDE], ids=["source", "source and operand", "stride"])
def test_what_the_rows_of_a_group_read(device, text):
    check_machines(device, feedback_memories(device.config, text))


def test_random_programs(device):
    seeds = range(SEEDS or (FEW | MORE)[device.config])
    check_seeds(device, lambda rng: random_program(device.config, rng, 8)[1], seeds)


@pytest.mark.parametrize("config", configurations(lambda config: config.window_taps))
def test_random_programs_have_windows_of_all_kinds(config):
    met = Counter()
    for seed in range((FEW | MORE)[config]):
        words, _ = random_program(config, random.Random(seed), 8)
        for chain in trace(words, config).chains:
            met.update(of_sliding(chain, config))
    assert required_sliding(config) <= met.keys()


def test_what_the_configurations_have():
    """Rows of their own and in pairs, each with windows; several engines with windows, and with short registers."""
    windows = [config for config in (*FEW, *MORE) if config.window_taps]
    assert {multipliers.paired(config) for config in windows} == {False, True}
    assert {config.window_taps for config in windows} >= {9, 16}
    assert any(config.engines > 1 and config.window_taps for config in FEW)
    assert any(config.engines > 1 and config.window_taps and multipliers.paired(config) for config in MORE)
    assert any(config.engines > 1 and config.acc_register for config in FEW)
