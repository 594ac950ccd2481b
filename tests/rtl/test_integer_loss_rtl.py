"""``i_loss`` on the compiled RTL leaves what the reference machine leaves, in the cycles of the model.

``CONCORD_SEEDS`` is the number of random programs on each configuration.
"""

import os

import pytest

from concord.emulator import Emulator
from concord.spec.isa import Trap
from support.back_door import connected
from support.device_runs import check_seeds
from support.integer_contents import LOSS_SMALL, LOSS_WHOLE
from support.integer_programs import random_case, random_loss

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "16"))


@pytest.fixture(scope="module", params=[LOSS_SMALL, LOSS_WHOLE], ids=lambda config: config.name)
def device(request):
    with connected(request.param) as device:
        yield device


def test_random_losses(device):
    check_seeds(device, lambda rng: random_loss(rng, device.config), range(SEEDS))


def test_losses_between_chains(device):
    """What chains have left, an update that was the latest ``i_run`` among it, is nothing to a loss, and vice versa."""
    check_seeds(device, lambda rng: loss_between_chains(rng, device.config), range(SEEDS // 3))


def loss_between_chains(rng, config):
    """A random program, a loss, and the program once more; ``None`` if that is too long, or traps then."""
    words, memories = random_case(rng, config, size=3)
    loss = random_loss(rng, config)
    end = next(k for k, word in enumerate(loss.program.tolist()) if not word)
    program = [*words[:-1], *loss.program.tolist()[: end - 1], *words]
    if len(program) > config.program_depth:
        return None
    loss.program[: len(program)] = program
    for name in ("matrix_mant", "matrix_exp", "narrow_exp"):
        getattr(loss, name)[:] = getattr(memories, name)
    return loss if Emulator(loss.copy()).run().trap is Trap.NONE else None
