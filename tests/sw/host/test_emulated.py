"""Batches of the emulated device leave what one run after the other leaves, whatever comes between them."""

import random
from dataclasses import replace

import numpy as np
import pytest

from concord.host.device import Device
from concord.host.emulated import EmulatedDevice
from concord.host.errors import DeviceError, TrapError
from concord.image import Image, Phase, Port, PortRange
from concord.program.assembler import assemble
from concord.spec.memmap import Reg, RegionId
from support.rtl_configs import SLIDING

INPUT, OUTPUT = Port("x", RegionId.WIDE, 0, (2, 4)), Port("y", RegionId.WIDE, 24, (4,))
#: Programs one behind the other: sums, a narrow copy of the inputs and an infinite sum; the inputs times what the first
#: one left; windows over narrow vectors of several programs, whose exponents decide how long they take.
PROGRAMS = {
    "sum": "v_rd wide, 0\nvv_add 1\nv_wr wide, 24\nv_rd wide, 0\nvv_sub 1\nv_wr wide, 16\n"
    "set_iters 2\nv_rd wide, 0, inner=1\nv_wr narrow, 4, inner=1\n"
    "set_iters 1\nv_rd wide, 8\nvv_add 8\nv_wr wide, 9\nhalt\n",
    "product": "v_rd wide, 0\nvv_mul 16\nv_wr wide, 24\nv_wr narrow, 20\nhalt\n",
    "windows": "set_iters 2\nv_rd wide, 0, inner=1\nv_wr narrow, 8, inner=1\nfence\nset_window 1, 4, 0, 1\n"
    "set_iters 4\nv_rd narrow, 6, inner=1\nmv_mul 0, mode=depthwise, sliding=1\nv_wr wide, 24, inner=1\nhalt\n",
}


class OneByOne(EmulatedDevice):
    """Runs the samples of a batch one after the other, as other devices do."""

    def _run_batch(self, image, schedule, batch, size, timeout):
        return Device._run_batch(self, image, schedule, batch, size, timeout)


def image():
    """The programs, and where each of them begins."""
    words, begins = [], {}
    for name, text in PROGRAMS.items():
        begins[name] = len(words)
        words += assemble(text)
    begins["trap"] = len(words)
    return Image(SLIDING, (*words, 0), inputs=(INPUT,), outputs=(OUTPUT,)), begins


def image_in_phases():
    """Windows over the first half of the inputs, and sums over the second one."""
    whole, begins = image()
    inputs = (Port("x", RegionId.WIDE, 0, (4, 4)),)
    phases = tuple(
        Phase(begins[name], (PortRange("x", 2 * k, 2, 0),), (PortRange("y", k, 1, 24),))
        for k, name in enumerate(("windows", "sum"))
    )
    return replace(whole, inputs=inputs, outputs=(Port("y", RegionId.WIDE, 24, (2, 4)),), phases=phases)


def devices(loaded=None):
    """One that computes batches, and one that does not, with the same contents."""
    whole, begins = image()
    made, loaded = [EmulatedDevice(SLIDING, workers=1), OneByOne(SLIDING)], loaded or whole
    numbers, words = np.random.default_rng(1), []
    for _ in range(8 * SLIDING.native):
        words.append(SLIDING.matrix_row.pack(mant=numbers.integers(-99, 99, SLIDING.lanes).tolist(), exp=15))
    for device in made:
        device.load(loaded)
        device.write("wide", 8, OUTPUT.encode(np.full(4, 60000.0), SLIDING))
        device.write("matrix", 0, words)
    return made, begins


def samples(rng, count, vectors=2):
    """Values whose vectors have different exponents."""
    draw = np.random.default_rng(rng.randrange(1 << 30))
    return draw.normal(0, 1, (count, vectors, 4)) * 2.0 ** draw.integers(-5, 5, (count, vectors, 1))


def seen(device):
    """Vector memories, flags, counters and registers."""
    vectors = {name: device.read(name, 0, device.regions[RegionId[name.upper()]].depth) for name in ("wide", "narrow")}
    registers = device.read("regs", int(Reg.STATUS), 1), device.read("regs", int(Reg.CYCLES), 1)
    return vectors, device.flags(), device.counters(), registers


@pytest.mark.parametrize("programs", ["sum product", "product sum", "windows sum", "sum windows product"])
def test_a_batch_of_one_program_and_then_of_another(programs):
    """Each leaves the memories of its last run, also what the other one does not write."""
    made, begins = devices()
    rng, programs = random.Random(programs), programs.split()
    batches = [samples(rng, 3) for _ in programs]
    results = [[device.run(x, pc=begins[name]) for name, x in zip(programs, batches, strict=True)] for device in made]
    np.testing.assert_array_equal(*results)
    assert len({str(seen(device)) for device in made}) == 1


@pytest.mark.parametrize("count", [1, 4])
def test_counters_behind_a_batch_are_those_of_its_last_run(count):
    """Of both of its phases, of which the first one has windows; and of a start alone behind it."""
    made, begins = devices(image_in_phases())
    for seed in (3, 4):
        x = samples(random.Random(seed), count, 4)
        results = [device.run(x) for device in made]
        np.testing.assert_array_equal(*results)
        counted, alone = made[0].counters(), made[1].counters()
        assert counted == alone
        assert seen(made[0]) == seen(made[1])
        for device in made:
            device.start(begins["product"])
        assert made[0].counters() == made[1].counters() != counted
        for device in made:
            device.run(x[:1])
        assert made[0].counters() == made[1].counters()


def test_a_trap_ends_a_batch_with_its_first_sample():
    """What later ones would have raised is not raised."""
    made, begins = devices()
    x = samples(random.Random(1), 3)
    x[1:] = 60000.0
    for device in made:
        device.write("program", begins["product"] - 1, [0])  # in the place of the first halt
        device.write("wide", 8, [0])
        with pytest.raises(TrapError, match="BAD_OPCODE"):
            device.run(x, pc=begins["sum"])
        assert device.read("wide", 0, 1) == OUTPUT.encode(x[0, 0], SLIDING)
    assert seen(made[0]) == seen(made[1])
    assert not made[0].flags()


def test_counters_of_single_runs_are_not_added_to_those_of_batches():
    """Phases of which the first one reads what the second one leaves: a run alone is made of starts."""
    whole, begins = image()
    part = PortRange("x", 0, 2, 0)
    phases = Phase(begins["product"], (part,), (PortRange("y", 0, 1, 24),)), Phase(begins["sum"], (), ())
    (device, _), _ = devices(replace(whole, phases=phases))
    x = samples(random.Random(1), 3)
    device.run(x[:1])
    alone = device.counters()
    device.run(x)
    assert device.counters() == alone


#: What a host does, see :func:`do`.
ACTIONS = ("run", "start", "write", "program", "clear", "flags", "wide", "narrow", "regs", "counters")


def do(device, begins, what, number, rng):
    """One thing that a host does, and what it gets."""
    name = rng.choice([*PROGRAMS, *PROGRAMS, "trap"])
    try:
        if what == "run":
            return device.run(samples(rng, number), pc=begins[name]).tolist()
        if what == "start":
            device.start(begins[name])
            return device.wait()
    except TrapError as error:
        return str(error)
    if what == "write":
        region = rng.choice(["wide", "narrow"])
        return device.write(region, rng.choice([0, 1, 4, 8, 9, 16, 20, 24]), [rng.randrange(100)])
    if what == "program":
        return device.write("program", begins["trap"], [assemble("halt")[0] if number % 2 else 0])
    if what == "clear":
        return device.clear_flags()
    if what == "flags":
        return device.flags()
    if what in ("wide", "narrow", "regs"):
        return device.read(what, int(Reg.STATUS) if what == "regs" else 0, 4 if what == "regs" else 30)
    return device.counters()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_a_host_does(seed):
    made, begins = devices()
    rng = random.Random(seed)
    for _ in range(25):
        what = rng.choice(["run", *ACTIONS])
        number, draw = rng.choice([0, 1, 2, 3, 5]), rng.random()
        first, second = (do(device, begins, what, number, random.Random(draw)) for device in made)
        assert first == second, what
    assert seen(made[0]) == seen(made[1])


def test_nothing_is_executed_on_a_closed_device():
    (device, _), begins = devices()
    device.run(samples(random.Random(1), 2), pc=begins["sum"])
    device.close()
    for call in (lambda: device.read("wide", 0), lambda: device.start(), lambda: device.clear_flags()):
        with pytest.raises(DeviceError, match="the device was closed"):
            call()
