"""Whatever configuration is accepted, the RTL, the reference machine and the emulator leave the same."""

import random

import pytest

from support.back_door import connected
from support.device_runs import check_seeds
from support.program_gen import random_program
from support.random_configs import random_config
from support.reference_runs import assert_machines_agree


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_on_the_emulator(seed):
    rng = random.Random(seed)
    for _ in range(3):
        config = random_config(rng)
        for _ in range(2):
            assert_machines_agree(random_program(config, rng, 6)[1])


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(8))
def test_on_the_rtl(seed):
    config = random_config(random.Random(100 + seed))
    with connected(config) as device:
        check_seeds(device, lambda rng: random_program(config, rng, 6)[1], range(20))
