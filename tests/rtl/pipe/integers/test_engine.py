"""The integer engine in its core: a few chains of every kind on the compiled RTL, against the emulator."""

import random

import numpy as np
import pytest

from concord.emulator import Emulator
from concord.image import Memories
from concord.program.assembler import assemble
from concord.spec.memmap import Reg
from support.back_door import connected
from support.core_bench import execute
from support.device_runs import after, load
from support.integer_contents import TRAIN_SMALL, random_contents

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def device():
    with connected(TRAIN_SMALL) as device:
        yield device


def memories_for(text, prepare, config=TRAIN_SMALL):
    """Memories with a program, full of integers but for the first tensor registers."""
    memories = random_contents(random.Random(5), config)
    memories.tensor_top[:4], memories.tensor_exp[:4], memories.updates[:] = 0, 0, 0
    prepare(memories)
    program = assemble(text)
    memories.program[:] = 0
    memories.program[: len(program)] = program
    return memories


def differences(device, text, prepare=lambda memories: None):
    """Run a program on the device and on the emulator; what differs, and the cycles of both."""
    memories = memories_for(text, prepare)
    load(device, memories)
    device.start(0)
    device.wait()
    want = memories.copy()
    ran = Emulator(want).run()
    assert memories.differences(want), "a program must change something"
    return want.differences(after(device, memories)), device.counters()["CYCLES"] - ran.cycles


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
def test_a_product_with_digits_and_a_bias(device, of):
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
    assert differences(device, text, small) == ([], 0)


#: Taps in front of the first row and column, and behind the last ones.
WINDOW = """
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


def test_a_window_with_padding(device):
    assert differences(device, WINDOW, small) == ([], 0)


@pytest.mark.deep
def test_a_window_with_padding_in_the_simulator_of_amaranth():
    """Elaborating the core and running it there takes twenty times as long."""
    config = TRAIN_SMALL.replace(
        name="train-core", narrow_depth=64, wide_depth=64, matrix_depth=64, program_depth=64, table_depth=16
    )
    memories = memories_for(WINDOW, small, config)
    registers, left = execute(memories)
    want = memories.copy()
    assert registers[Reg.CYCLES] == Emulator(want).run().cycles
    assert (left.wide == want.wide).all() and (left.narrow_mant == want.narrow_mant).all()
    assert (left.wide != memories.wide).any()


def test_digits_and_columns_of_rounded_integers(device):
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
    assert differences(device, text, tensors(t2=(-3, (1 << 31) - 1))) == ([], 0)


def test_a_scaled_sum_of_wide_integers(device):
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

    assert differences(device, text, prepare) == ([], 0)


def test_rows_of_tiles_and_address_registers(device):
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
    assert differences(device, text) == ([], 0)


@pytest.mark.parametrize("exp, grows", [(0, True), (6, False)])
def test_an_update_that_grows_and_one_that_does_not(device, exp, grows):
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

    assert differences(device, text, prepare) == ([], 0)
    memories = memories_for(text, prepare)
    Emulator(memories).run()
    assert bool(memories.updates[2]) == grows
