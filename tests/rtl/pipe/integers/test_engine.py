# amaranth: UnusedElaboratable=no
"""The integer engine in its core, simulated as it is written: a few chains of every kind, against the emulator."""

import random

import numpy as np
import pytest

from concord.emulator import Emulator
from concord.image import Memories
from concord.program.assembler import assemble
from concord.spec.memmap import Reg, RegionId
from concord_rtl.core.core import NpuCore
from support.bench import simulate
from support.core_bench import contents, read, run, write
from support.integer_contents import TRAIN_SMALL, random_contents

pytestmark = pytest.mark.slow

CONFIG = TRAIN_SMALL.replace(
    name="train-core", narrow_depth=64, wide_depth=64, matrix_depth=64, program_depth=64, table_depth=16
)
READ = {
    RegionId.NARROW: 64,
    RegionId.WIDE: 64,
    RegionId.MATRIX: 16 * CONFIG.rows,
    RegionId.TENSORS: 4,
    RegionId.UPDATES: 3,
}


def differences(text, prepare=lambda memories: None, compared=(RegionId.NARROW, RegionId.WIDE, RegionId.TENSORS)):
    """Run a program on the core and on the emulator; what differs, and the cycles of both."""
    memories = random_contents(random.Random(5), CONFIG)
    memories.tensor_top[:4], memories.tensor_exp[:4], memories.updates[:] = 0, 0, 0
    prepare(memories)
    program = assemble(text)
    memories.program[:] = 0
    memories.program[: len(program)] = program
    want, got, registers = memories.copy(), memories.copy(), {}
    ran = Emulator(want).run()
    dut = NpuCore(CONFIG, contents(memories))

    async def bench(ctx):
        for region in (RegionId.TENSORS, RegionId.FACTORS):
            for addr in range(4):
                await write(ctx, dut, region, addr, memories.read(region, addr, 1)[0])
        registers.update(await run(ctx, dut))
        for region in compared:
            for addr in range(READ[region]):
                got.write(region, addr, [await read(ctx, dut, region, addr)])

    simulate(dut, bench, cycles=200_000)
    return want.differences(got), registers[Reg.CYCLES] - ran.cycles


def tensors(**values):
    """Set tensor registers: exponent and greatest magnitude by name ``t1``, ``t2`` ..."""

    def prepare(memories: Memories):
        for name, (exp, top) in values.items():
            memories.tensor_exp[int(name[1:])], memories.tensor_top[int(name[1:])] = exp, top

    return prepare


def small(memories):
    """Codes of few bits, so that sums fit."""
    memories.matrix_mant[:] //= 4
    tensors(t1=(0, 0), t2=(2, 127))(memories)


@pytest.mark.parametrize("of", [0, 1])
def test_a_product_with_digits_and_a_bias(of):
    text = f"""
        set_shape rows=2, cols=2
        set_iters inner=3
        t_bias 3, 1, 2
        i_src product, addr=0, inner=4
        i_mat 0, row=8
        i_taps vector=1, vector_digit=2, matrix=2, matrix_digit=4, digits=2, of={of}
        i_opd narrow, addr=40, row=1
        i_dst wide, addr=0, row=2, inner=4
        i_run 9, add=1, peak=1, tensor=3, to_vector=1
        halt
    """
    assert differences(text, small) == ([], 0)


def test_a_window_with_padding():
    """Taps in front of the first row and column, and behind the last ones."""
    text = """
        set_shape rows=1, cols=1
        set_iters inner=4, outer=3
        set_window kh=2, kw=2, stride_y=3, stride_x=1
        set_pad y0=-1, x0=-1, height=2, width=3
        i_src product, addr=8, inner=1, outer=3
        i_mat 4
        i_taps matrix=2
        i_dst wide, addr=0, inner=2, outer=8
        t_set 3, 0
        i_run 8, peak=1, tensor=3, to_vector=1
        halt
    """
    assert differences(text, small) == ([], 0)


def test_digits_and_columns_of_rounded_integers():
    text = """
        set_shape rows=2
        set_iters inner=2
        t_fit 3, 2, 16, 1
        i_planes count=3, dst=1, col=20
        i_src wide, addr=0, row=2, inner=4
        i_dst narrow, addr=20, row=3, inner=6
        i_col 9, row=2, inner=5
        i_opd narrow, addr=50, row=1
        i_run 4, round1=1, mask=1, valid=5, to_vector=1, to_column=1
        halt
    """
    compared = (RegionId.NARROW, RegionId.MATRIX, RegionId.TENSORS)
    assert differences(text, tensors(t2=(-3, (1 << 31) - 1)), compared) == ([], 0)


def test_a_scaled_sum_of_wide_integers():
    text = """
        set_shape rows=2
        set_iters inner=2
        t_scale 3, 2, 1
        t_fit 3, 3, 32, 0
        t_add 1, 3, 2
        i_src wide, addr=0, row=2, inner=4
        i_opd wide, addr=8, row=2, inner=4
        i_dst wide, addr=16, row=2, inner=4
        i_run 4, scale=1, factor=1, round0=1, add=1, peak=1, tensor=1
        t_fit 1, 1, 32, 1
        i_run 4, scale=1, factor=1, round0=1, add=1, round1=1, relu=1, to_vector=1
        halt
    """

    def prepare(memories):
        memories.factor_mant[1], memories.factor_exp[1] = -40961, -16
        tensors(t2=(-3, (1 << 31) - 1))(memories)

    assert differences(text, prepare) == ([], 0)


def test_rows_of_tiles_and_address_registers():
    text = """
        set_shape rows=1
        set_iters inner=4
        loop 2
        i_src narrow, reg=1, addr=3, inner=1
        i_planes reg=2
        i_row 16, inner=1
        i_run 4, to_row=1
        inc_addr 1, 5
        inc_addr 2, -9
        end_loop
        halt
    """
    assert differences(text, compared=(RegionId.MATRIX,)) == ([], 0)


@pytest.mark.parametrize("exp, grows", [(0, True), (6, False)])
def test_an_update_that_grows_and_one_that_does_not(exp, grows):
    text = """
        set_shape rows=2
        set_iters inner=2
        t_fit 3, 2, 32, 1
        t_upd 1, 3, 40
        i_src wide, addr=0, row=2, inner=4
        i_opd narrow, addr=4, row=1, inner=2
        i_col 8, row=8, inner=1
        i_row 40, row=8, inner=1
        i_run 5, round1=1, update=1, to_column=1, to_row=1
        halt
    """

    def prepare(memories):
        memories.narrow_mant[4:8] = np.clip(memories.narrow_mant[4:8], -126, 126)
        memories.narrow_mant[5, 1] = 127
        memories.wide[44:48] = 16000
        memories.wide[0:16] = 1  # 65,537 as wide integers
        tensors(t1=(exp, 127), t2=(-17, 65537))(memories)

    assert differences(text, prepare, tuple(READ)) == ([], 0)
    memories = random_contents(random.Random(5), CONFIG)
    prepare(memories)
    memories.program[:], memories.updates[:] = 0, 0
    memories.program[: len(assemble(text))] = assemble(text)
    Emulator(memories).run()
    assert bool(memories.updates[2]) == grows
