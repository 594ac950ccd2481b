"""A register narrower than the greatest sum, in hardware: memories and flags of the reference machine."""

import random

import pytest

from concord.emulator import ReferenceMachine
from concord.spec.formats import Flag
from concord.spec.memmap import Reg
from concord.spec.presets import TINY
from support.back_door import connected
from support.core_bench import execute
from support.device_runs import compare as compare_device
from support.device_runs import load
from support.program_gen import random_program
from support.register_cases import CASES, machine_of
from support.rtl_configs import SHORT_REGISTER

CONFIGS = {
    "20 bits": TINY.replace(acc_width=20, acc_register=20),
    "12 bits": TINY.replace(act_mant=5, wgt_mant=5, acc_width=12, acc_register=12),
    "30 bits, 28 kept": TINY.replace(acc_width=28, acc_register=30),
}


def compare(memories):
    """Flags that were raised."""
    registers, after = execute(memories)
    ReferenceMachine(memories).run()
    assert memories.differences(after) == []
    assert registers[Reg.TRAP] == 0 and registers[Reg.FLAGS_ANY] == memories.flag_union()
    return memories.flag_union()


@pytest.mark.slow
def test_sums_at_the_ends():
    """Of two engines, in the compiled RTL."""
    memories = machine_of(SHORT_REGISTER, CASES, depthwise=False)
    with connected(SHORT_REGISTER) as device:
        load(device, memories)
        device.start(0)
        device.wait()
        compare_device(device, memories)
    ReferenceMachine(memories).run()
    assert memories.flag_union() == 1 << Flag.ACC_OVERFLOW


@pytest.mark.slow
def test_sums_of_depthwise_products_at_the_ends():
    assert compare(machine_of(CONFIGS["30 bits, 28 kept"], CASES, depthwise=True)) == 1 << Flag.ACC_OVERFLOW


@pytest.mark.deep
@pytest.mark.parametrize("name", ["20 bits", "12 bits"])
def test_a_random_program(name):
    _, memories = random_program(CONFIGS[name], random.Random("register 2"), 4)
    assert compare(memories) >> Flag.ACC_OVERFLOW & 1
