"""Programs through the driver on the compiled RTL leave what the reference machine leaves, traps included."""

import random

import pytest

from concord.host import TrapError
from concord.program import trace
from concord.spec import isa
from concord.spec.presets import TINY, UP5K
from support.back_door import connected
from support.device_runs import check_seeds, compare, load
from support.program_gen import random_program
from support.rtl_configs import SCALING_NARROW

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", params=[TINY, UP5K, SCALING_NARROW], ids=lambda config: config.name)
def config(request):
    return request.param


@pytest.fixture(scope="module")
def device(config):
    with connected(config) as device:
        yield device


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_random_programs(device, config, seed):
    check_seeds(device, lambda rng: random_program(config, rng, 8)[1], range(seed, seed + 10))


def damaged(config, rng):
    """A program with a damaged word that ends in reasonable time, and memories for it; None if it has no trap."""
    words, memories = random_program(config, rng, 6)
    at = rng.randrange(len(words))
    words[at] = rng.choice([words[at] ^ 1 << rng.randrange(64), rng.getrandbits(64), 0, isa.encode(isa.Op.END_LOOP)])
    memories.program[:] = 0
    memories.program[: len(words)] = words
    try:
        found = trace(words, config, limit=2000)
    except ValueError:
        return None
    steps = sum(chain.vectors * chain.window.taps * chain.cols for chain in found.chains)
    return memories if found.trap and steps < 20_000 else None


def test_illegal_words_trap_and_the_device_stays_usable(device, config):
    rng, traps = random.Random(5), set()
    for _ in range(60):
        memories = damaged(config, rng)
        if memories is None:
            continue
        load(device, memories)
        device.start(0)
        with pytest.raises(TrapError) as caught:
            device.wait(timeout=30)
        try:
            run = compare(device, memories)
        except ValueError:  # the damage sent an earlier chain out of the memories
            continue
        assert (caught.value.trap, caught.value.pc) == (run.trap, run.pc)
        traps.add(run.trap)
    assert len(traps) >= 3
    _, memories = random_program(config, rng, 4)
    load(device, memories)
    device.start(0)
    device.wait()
    compare(device, memories)


ENDS = [
    ("mv_mul", "vv_scale"), ("mv_mul", "vv_scale", "v_relu"), ("vv_scale",), ("v_max", "vv_scale"),
    ("mv_mul", "vv_mul", "vv_scale"), ("mv_mul", "vv_scale", "vv_scale"), ("mv_mul", "vv_scale", "vv_add"),
]  # fmt: skip


@pytest.mark.parametrize("names", ENDS, ids=" ".join)
def test_where_codes_can_be_made(device, config, names):
    """On configurations without codes of accumulators, all of them trap."""
    body = [isa.encode(isa.MNEMONICS[name].op) for name in names]
    ends = [isa.encode(isa.Op.V_WR, mem=1, addr=7, last=1), isa.encode(isa.Op.HALT)]
    _, memories = random_program(config, random.Random(9), 1)
    program = [isa.encode(isa.Op.V_RD, mem=0), *body, *ends]
    memories.program[:] = 0
    memories.program[: len(program)] = program
    found = trace(program, config)
    load(device, memories)
    device.start(0)
    if found.trap:
        with pytest.raises(TrapError) as caught:
            device.wait(timeout=30)
        assert (caught.value.trap, caught.value.pc) == (found.trap, found.pc)
    else:
        device.wait()
        assert config.code_scaling
    compare(device, memories)


def test_the_comparison_notices_one_wrong_bit(device, config):
    _, memories = random_program(config, random.Random(0), 12)
    load(device, memories)
    device.start(0)
    device.wait()
    assert compare(device, memories).dense_steps
    memories.matrix_mant ^= 1
    if config.code_scaling:  # codes are limited, so that a bit of a weight may not show
        memories.wide ^= 1
    with pytest.raises(AssertionError):
        compare(device, memories)
