"""``i_loss`` on the compiled RTL leaves what the reference machine leaves, in the cycles of the model.

``CONCORD_SEEDS`` is the number of random programs on each configuration.
"""

import os
import random

import pytest

from concord.host import connect
from concord.host.rtl import find_library
from support.device_runs import check_machines
from support.integer_programs import LOSS_SMALL, LOSS_WHOLE, random_case, random_loss

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "40"))


@pytest.fixture(scope="module", params=[LOSS_SMALL, LOSS_WHOLE], ids=lambda config: config.name)
def device(request):
    with connect("rtl", request.param, library=find_library(request.param)) as device:
        yield device


def test_random_losses(device):
    for seed in range(SEEDS):
        try:
            check_machines(device, random_loss(random.Random(seed), device.config))
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def test_losses_between_chains(device):
    """What chains have left, an update that was the latest ``i_run`` among it, is nothing to a loss, and vice versa."""
    for seed in range(SEEDS // 4):
        rng = random.Random(seed)
        words, memories = random_case(rng, device.config, size=3)
        loss = random_loss(rng, device.config)
        end = next(k for k, word in enumerate(loss.program.tolist()) if not word)
        program = [*words[:-1], *loss.program.tolist()[: end - 1], *words]
        if len(program) > device.config.program_depth:
            continue
        loss.program[: len(program)] = program
        for name in ("matrix_mant", "matrix_exp", "narrow_exp"):
            getattr(loss, name)[:] = getattr(memories, name)
        try:
            check_machines(device, loss)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
