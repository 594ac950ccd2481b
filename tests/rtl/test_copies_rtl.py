"""Programs with copies from the external memory, on the compiled RTL with a model of the memory at its pins.

Contents of all memories, flags and counters are those of the reference machine, with the cycles of the model of the
controller. ``CONCORD_SEEDS`` is the number of random programs on each configuration.
"""

import os

import pytest

from support.back_door import connected
from support.device_runs import check_seeds
from support.program_gen import random_program
from support.rtl_configs import COPYING, COPYING_ENGINES, COPYING_LANES

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "10"))


@pytest.fixture(scope="module", params=[COPYING, COPYING_ENGINES, COPYING_LANES], ids=lambda config: config.name)
def device(request):
    with connected(request.param) as device:
        yield device


def test_random_programs(device):
    check_seeds(device, lambda rng: random_program(device.config, rng, 12)[1], range(SEEDS))
