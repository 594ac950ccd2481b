"""Tables and products of two tensors on the compiled RTL leave what the reference machine leaves, in as many cycles.

``CONCORD_SEEDS`` is the number of random programs on each configuration.
"""

import os

import pytest

from concord.emulator import Emulator
from concord.host import TrapError
from concord.program import trace
from concord.program.assembler import assemble
from concord.program.integers import IntegerChain
from concord.spec.isa import Trap
from concord.spec.operations import IntegerSource
from support.back_door import connected
from support.device_runs import check_machines, check_seeds, load
from support.integer_contents import LOSS_SMALL, LOSS_WHOLE, filled
from support.integer_programs import random_case

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "15"))


@pytest.fixture(scope="module", params=[LOSS_SMALL, LOSS_WHOLE], ids=lambda config: config.name)
def device(request):
    with connected(request.param) as device:
        yield device


def with_tables(config, rng):
    """Memories with a program that looks up or multiplies; ``None`` for others."""
    words, memories = random_case(rng, config)
    chains = [item for item in trace(words, config).integers if isinstance(item, IntegerChain)]
    some = any(chain.kind is IntegerSource.TABLE or chain.steps.mul for chain in chains)
    return memories if some else None


def test_random_chains(device):
    check_seeds(device, lambda rng: with_tables(device.config, rng), range(SEEDS))


def ended(device, text, **contents):
    """How a program ends, on the device as in the emulator."""
    memories, words = filled(device.config, **contents), assemble(text)
    memories.program[: len(words)] = words
    run = Emulator(memories.copy()).run()
    if run.trap is Trap.NONE:
        check_machines(device, memories)
    else:
        load(device, memories)
        device.start(0)
        with pytest.raises(TrapError) as caught:
            device.wait()
        assert (caught.value.trap, caught.value.pc) == (run.trap, run.pc)
        assert device.counters()["CYCLES"] == run.cycles
    return run.trap


@pytest.mark.parametrize("factor, trap", [(2**16 - 1, 0), (1 - 2**16, 0), (2**16, 1), (-(2**16), 1), (2**31 - 1, 1)])
def test_factors_have_17_bits(device, factor, trap):
    text = """
        i_src wide, addr=10
        i_opd wide, addr=20
        i_run 9, mul=1, peak=1, tensor=1
        halt
    """
    values = [0, 1, -1, 2**31 - 1]
    end = ended(device, text, wide={10: values, 20: [3, 5, factor, -7]}, tensors={1: (0, 0)})
    assert end is (Trap.INTEGER_RANGE if trap else Trap.NONE)
