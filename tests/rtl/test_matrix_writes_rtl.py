"""Programs that write the matrix memory, on the compiled RTL, leave what the reference machine leaves.

Contents of all memories, the matrix memory too, flags, and all counters, with the cycles of the model; and so does the
emulator. ``CONCORD_SEEDS`` is the number of random programs on each configuration.
"""

import os

import numpy as np
import pytest

from concord.image import Memories
from concord.program.assembler import assemble
from support.back_door import connected
from support.device_runs import check_machines, check_seeds
from support.program_gen import random_program
from support.rtl_configs import WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("CONCORD_SEEDS", "10"))
CONFIGS = [WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS]


@pytest.fixture(scope="module", params=CONFIGS, ids=lambda config: config.name)
def device(request):
    with connected(request.param) as device:
        yield device


def check(device, memories):
    """Run a program; returns the cycles that it took."""
    check_machines(device, memories)
    return device.counters()["CYCLES"]


def filled(config, text):
    """A program, and narrow vectors that differ."""
    memories = Memories(config)
    draw = np.random.default_rng(3)
    memories.narrow_mant[:] = draw.integers(-99, 100, memories.narrow_mant.shape)
    memories.narrow_exp[:] = draw.integers(-12, -6, memories.narrow_exp.shape)
    memories.matrix_mant[:] = draw.integers(-99, 100, memories.matrix_mant.shape)
    program = assemble(text)
    memories.program[: len(program)] = program
    return memories


def test_random_programs(device):
    check_seeds(device, lambda rng: random_program(device.config, rng, 12)[1], range(SEEDS))


@pytest.mark.parametrize("mode", ["dense", "depthwise"])
def test_a_product_multiplies_what_was_written_just_before(device, mode):
    """Keys that change from turn to turn, in the same tile: each product waits for its own, not for the next ones."""
    config = device.config
    check(device, filled(config, f"""
        set_quant mode=dynamic
        set_shape rows={config.engines if mode == "dense" else 1} cols=1
        loop 6
        set_iters inner={config.rows}
        set_shape rows=1 cols=1
        v_rd narrow, 0, reg=1, inner=1
        m_wr {4 * config.steps}, inner=1
        set_iters
        set_shape rows={config.engines if mode == "dense" else 1} cols=1
        v_rd narrow, 30, reg=1
        mv_mul {4 * config.steps} mode={mode}
        v_wr wide, 0, row=1, reg=2
        inc_addr 1, 2
        inc_addr 2, {config.engines}
        end_loop
        halt
    """))  # fmt: skip


def rows_and_product(config, first, second=8):
    """Rows of a tile, and a product of a vector and the tile ``first``."""
    return f"""
        set_shape rows=1 cols=1
        set_iters inner={config.rows}
        v_rd narrow, 0, inner=1
        m_wr {second * config.steps}, inner=1
        set_iters
        v_rd narrow, 30
        mv_mul {first * config.steps}
        v_wr wide, 0
        halt
    """


def test_products_behind_all_rows_do_not_wait(device):
    before, same, behind = (check(device, filled(device.config, rows_and_product(device.config, k))) for k in (7, 8, 9))
    assert before == same > behind + 10
    assert behind == check(device, filled(device.config, rows_and_product(device.config, 4, 3)))


def test_what_the_configurations_have():
    assert {config.window_taps > 0 for config in CONFIGS} == {False, True}
    assert any(config.engines > 1 for config in CONFIGS)
    assert {config.steps > 1 for config in CONFIGS} == {False, True}
    assert {config.lanes > config.mfu_lanes for config in CONFIGS} == {False, True}
