"""Programs on the compiled RTL with several tile engines leave what the reference machine and the emulator leave.

``CONCORD_SEEDS`` is the number of random programs on each configuration: 30 on that with four engines if it is not set.
"""

import os
import random

import pytest

from concord.host import connect
from concord.host.rtl import find_library
from concord.spec.presets import TINY
from support.device_runs import compare, load
from support.engine_programs import FEEDBACK, SOURCE_AND_OPERAND, STRIDE, feedback_memories
from support.program_gen import random_program
from support.reference_runs import assert_machines_agree
from support.rtl_configs import FOUR_ENGINES

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "0"))
CONFIGS = [FOUR_ENGINES, *([TINY.replace(engines=2)] if SEEDS else [])]


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda config: f"T={config.engines}")
def device(request):
    with connect("rtl", request.param, library=find_library(request.param)) as device:
        yield device


def check(device, memories):
    load(device, memories)
    device.start(0)
    device.wait()
    compare(device, memories)
    assert_machines_agree(memories)


@pytest.mark.parametrize("text", [FEEDBACK, SOURCE_AND_OPERAND, STRIDE], ids=["source", "source and operand", "stride"])
def test_what_the_rows_of_a_group_read(device, text):
    check(device, feedback_memories(device.config, text))


def test_random_programs(device):
    for seed in range(SEEDS or 30):
        try:
            check(device, random_program(device.config, random.Random(seed), 8)[1])
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
