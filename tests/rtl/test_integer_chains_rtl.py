"""Integer chains on the compiled RTL leave what the reference machine leaves, in the cycles of the model.

Contents of all memories, tensor registers and counters of updates among them, and so does the emulator.
``CONCORD_SEEDS`` is the number of random programs on each configuration, beside those of all chains.
"""

import os
import random

import numpy as np
import pytest

from concord.emulator import Emulator
from concord.host import TrapError
from concord.image import Memories
from concord.program.assembler import assemble
from concord.spec.isa import Trap
from concord.spec.memmap import RegionId
from support.back_door import connected
from support.device_runs import check_machines, check_seeds, load
from support.integer_contents import TRAIN_SMALL, TRAIN_WHOLE
from support.integer_programs import random_case

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "15"))
#: Programs of all chains that are no deep test, all of them, and those of a part.
MIXED, ALL, PART = 400, 2000, 100


@pytest.fixture(scope="module", params=[TRAIN_SMALL, TRAIN_WHOLE], ids=lambda config: config.name)
def device(request):
    with connected(request.param) as device:
        yield device


def test_random_programs(device):
    check_seeds(device, lambda rng: random_case(rng, device.config)[1], range(SEEDS))


@pytest.mark.parametrize(
    "first", [pytest.param(k, marks=[pytest.mark.deep] if k >= MIXED else []) for k in range(0, ALL, PART)]
)
def test_programs_of_all_chains(first):
    """Integer chains, codes, matrices that programs write, windows and the others in a program."""
    with connected(TRAIN_SMALL) as device:
        check_seeds(device, lambda rng: random_case(rng, device.config)[1], range(first, first + PART))


def test_random_programs_that_may_trap(device):
    """A trap of the emulator is one of the RTL, at the same word and after the same cycles; nothing else traps."""
    trapped = 0
    for seed in range(100, 100 + SEEDS):
        memories = random_case(random.Random(seed), device.config, traps=True)[1]
        load(device, memories)
        run = Emulator(memories.copy()).run()
        device.start(0)
        if run.trap is Trap.NONE:
            device.wait()
        else:
            trapped += 1
            with pytest.raises(TrapError) as caught:
                device.wait()
            assert (caught.value.trap, caught.value.pc) == (run.trap, run.pc) == (Trap.INTEGER_RANGE, run.pc), seed
        assert device.counters()["CYCLES"] == run.cycles, seed
    assert trapped > SEEDS // 10


def updated(device, weights, accumulators, changes, exps):
    """One update of a vector of weights; returns the tensor register of the weights and the counters of updates."""
    config = device.config
    memories = Memories(config)
    program = assemble("""
        t_fit 3, 2, 32, 1
        t_upd 1, 3, 100
        i_src wide, addr=4
        i_opd narrow, addr=30
        i_col 8
        i_row 40
        i_run 6, round1=1, update=1, to_column=1, to_row=1
        halt
    """)
    memories.program[: len(program)] = program
    memories.narrow_mant[30] = weights
    memories.wide[130] = np.asarray(accumulators, np.int16).view(np.uint16)
    memories.wide[4:6] = np.asarray(changes, "<i4").view("<u2").reshape(2, config.native)
    memories.tensor_exp[1:3] = exps
    memories.tensor_top[2] = int(np.abs(np.asarray(changes)).max())
    check_machines(device, memories)
    return device.read(RegionId.TENSORS, 1), device.read(RegionId.UPDATES, 0, 3)


def same(device, value):
    return [value] * device.config.native


def test_a_block_grows_by_one_place(device):
    most = (1 << 15) - 1
    (tensor,), counts = updated(device, same(device, 127), same(device, 0), same(device, most), (0, -15))
    assert tensor >> 48 == 1 and tensor & (1 << 48) - 1 == 64
    assert counts == [0, 0, 1]


def test_updates_are_refused_and_vanish(device):
    n = device.config.native
    changes = [1 << 20] * (n // 2) + [1] * (n - n // 2)
    _, counts = updated(device, same(device, 3), same(device, 32767), changes, (0, -17))
    assert counts == [n // 2, n - n // 2, 0]


def test_an_accumulator_that_the_format_does_not_have_traps(device):
    with pytest.raises(TrapError) as caught:
        updated(device, same(device, 0), same(device, -32768), same(device, 5), (0, -15))
    assert caught.value.trap is Trap.INTEGER_RANGE


def test_the_greatest_exponent_cannot_grow(device):
    with pytest.raises(TrapError) as caught:
        updated(device, same(device, 127), same(device, 0), same(device, (1 << 15) - 1), (127, 112))
    assert caught.value.trap is Trap.INTEGER_RANGE


@pytest.mark.parametrize("exps", [(0, -300), (-200, -215), (200, 190)])
def test_exponents_that_training_does_not_have_trap(device, exps):
    """At the end of the chain: in the cycles of one that does not grow, though what comes out may have to."""
    with pytest.raises(TrapError) as caught:
        updated(device, same(device, 127), same(device, 0), same(device, (1 << 15) - 1), exps)
    assert caught.value.trap is Trap.INTEGER_RANGE


@pytest.mark.parametrize(
    "numbers", [(127, -32768, 32767, (0, -15)), (127, 0, 32767, (127, 112))], ids=["contents", "the greatest exponent"]
)
def test_an_update_that_traps_does_not_grow(device, numbers):
    weight, acc, change, exps = numbers
    n, config = device.config.native, device.config
    memories = Memories(config)
    program = assemble("""
        t_upd 1, 2, 100
        i_src wide, addr=4
        i_opd narrow, addr=30
        i_run 6, round1=1, update=1
        halt
    """)
    memories.program[: len(program)] = program
    memories.narrow_mant[30] = weight
    memories.wide[130] = np.full(n, 0, np.int16).view(np.uint16)
    memories.wide[130, 0] = np.int16(acc).view(np.uint16)
    memories.wide[4:6] = np.full(n, change, "<i4").view("<u2").reshape(2, n)
    memories.tensor_exp[1:3] = exps
    load(device, memories)
    run = Emulator(memories.copy()).run()
    device.start(0)
    with pytest.raises(TrapError):
        device.wait()
    assert device.counters()["CYCLES"] == run.cycles and run.trap is Trap.INTEGER_RANGE


def test_results_have_32_bits_though_digits_could_hold_more(device):
    memories = Memories(device.config)
    program = assemble("""
        t_set 1, 0
        t_set 2, 0
        t_add 3, 1, 2
        i_planes count=5, dst=1
        i_src wide
        i_opd wide
        i_dst narrow, addr=20
        i_run 5, add=1, to_vector=1
        halt
    """)
    memories.program[: len(program)] = program
    memories.wide[:2] = np.full(device.config.native, (1 << 31) - 1, "<i4").view("<u2").reshape(2, -1)
    load(device, memories)
    assert Emulator(memories.copy()).run().trap is Trap.INTEGER_RANGE
    device.start(0)
    with pytest.raises(TrapError, match="INTEGER_RANGE"):
        device.wait()
