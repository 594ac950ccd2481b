"""Random programs leave the same memories, flags and counters on the RTL and on the reference machine."""

import random

import numpy as np
import pytest

from concord.cycles import count
from concord.emulator import ReferenceMachine
from concord.golden import binary16
from concord.image import Memories
from concord.program.assembler import assemble
from concord.spec import multipliers
from concord.spec.memmap import Reg, RegionId
from concord.spec.presets import TINY, UP5K
from concord_rtl.core.core import NpuCore
from concord_rtl.host.registers import COUNTERS
from concord_rtl.memories.matrix_memory import MatrixMemory
from support.back_door import connected
from support.bench import simulate
from support.core_bench import contents, execute, read, write
from support.device_runs import after, load
from support.engine_programs import FEEDBACK, feedback_memories
from support.program_gen import random_program

TWO_ENGINES = TINY.replace(engines=2)
WIDE = TINY.replace(native=8, lanes=4, mfu_lanes=2)
SERIAL = UP5K.replace(matrix_depth=256, narrow_depth=64, wide_depth=64, program_depth=128)
SERIAL_PARTS = SERIAL.replace(native=8, lanes=2, act_mant=5, wgt_mant=9, act_exp_min=-12, acc_width=43, loop_levels=2)


def check(config, seed, size=4, cycles=60_000):
    _, memories = random_program(config, random.Random(seed), size)
    registers, left = execute(memories, cycles=cycles)
    want = memories.copy()
    run = ReferenceMachine(want).run()
    assert want.differences(left) == []
    for reg in (Reg.DENSE_STEPS, Reg.DEPTHWISE_STEPS, Reg.CHAINS, Reg.VECTORS):
        assert registers[reg] == getattr(run, reg.name.lower()), reg
    counts = count(memories.program.tolist(), config)
    for reg in (Reg.CYCLES, *COUNTERS):
        assert registers[reg] == getattr(counts, reg.name.lower()), reg
    assert registers[Reg.TRAP] == 0
    assert registers[Reg.FLAGS_ANY] == want.flag_union()
    return registers


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.deep)])
def test_tiny(seed):
    check(TINY, seed)


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(100, 102))
def test_two_engines(seed):
    check(TWO_ENGINES, seed)


@pytest.mark.deep
def test_what_the_rows_of_a_group_of_two_read():
    memories = feedback_memories(TWO_ENGINES, FEEDBACK)
    _, left = execute(memories)
    ReferenceMachine(memories).run()
    assert memories.differences(left) == []


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(200, 202))
def test_native_eight(seed):
    check(WIDE, seed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(SERIAL, id="lanes are a vector", marks=pytest.mark.deep),
        pytest.param(SERIAL_PARTS, id="parts of a vector"),
    ],
)
def test_serial(config):
    registers = check(config, 5, cycles=200_000)
    assert registers[Reg.HAZARD_STALLS] == 0 and registers[Reg.CYCLES] > registers[Reg.VECTORS]


@pytest.mark.slow
@pytest.mark.parametrize("config", [TINY, UP5K], ids=["tiny", "serial"])
def test_flags_are_those_of_their_own_vectors(config):
    """Chains that raise every flag, each followed by one that raises none."""
    quiet = "v_rd wide, 0\nv_wr wide, 9\n"
    text = (
        "set_quant mode=static, exp=-9\n"
        f"v_rd wide, 1\nvv_add 1\nv_wr wide, 8\n{quiet}"  # beyond binary16
        f"v_rd wide, 1\nv_wr narrow, 8\n{quiet}"  # beyond the mantissas
        f"v_rd wide, 2\nv_wr narrow, 8\n{quiet}"  # infinite
        "v_rd wide, 0\nv_wr narrow, 9\nv_rd wide, 0\nv_wr wide, 10\nv_wr narrow, 10\nhalt"
    )
    memories = Memories(config)
    words = assemble(text)
    memories.program[: len(words)] = words
    memories.wide[:3] = binary16.encode(np.array([0.0, 60000.0, np.inf]))[:, None]
    with connected(config) as device:
        load(device, memories)
        device.start(0)
        device.wait()
        left, flags_any = after(device, memories), device.read(RegionId.REGS, Reg.FLAGS_ANY)[0]
    want = memories.copy()
    ReferenceMachine(want).run()
    assert want.differences(left) == []
    raised = {pc: int(flags) for pc, flags in enumerate(left.flags) if flags}
    assert len(raised) == 3 and len(set(raised.values())) == 3
    assert flags_any == want.flag_union()


@pytest.mark.deep
def test_the_comparison_notices_one_wrong_weight():
    _, memories = random_program(TINY, random.Random(0), 4)
    registers, left = execute(memories)
    assert registers[Reg.TRAP] == 0
    memories.matrix_mant ^= 1
    ReferenceMachine(memories).run()
    assert memories.differences(left)


def read_all(config, regions):
    """Contents of regions before and after they were read over the bus."""
    _, memories = random_program(config, random.Random(7), 4)
    before, found = [], []

    async def bench(ctx):
        for region in regions:
            for addr in range(0, memories.region(region).depth, 7):
                before.append(memories.read(region, addr, 1)[0])
                found.append(await read(ctx, dut, region, addr) & (1 << memories.region(region).word.width) - 1)

    dut = NpuCore(config, contents(memories))
    simulate(dut, bench, cycles=60_000)
    return before, found


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        pytest.param(TWO_ENGINES, id="two engines"),
        pytest.param(WIDE, id="eight", marks=pytest.mark.deep),
        pytest.param(SERIAL, id="serial", marks=pytest.mark.deep),
    ],
)
def test_the_host_reads_what_is_there(config):
    regions = (RegionId.PROGRAM, RegionId.MATRIX, RegionId.NARROW, RegionId.WIDE, RegionId.TABLE)
    before, found = read_all(config, regions)
    assert before == found and len(set(before)) > 50


@pytest.mark.slow
def test_the_host_writes_rows_of_pairs_and_reads_them(monkeypatch):
    """One access after the other without a pause: parts of a row must not be mixed with those of the next."""
    monkeypatch.setattr(multipliers, "MOST_MULTIPLIERS", 0)
    assert multipliers.paired(TINY)
    dut, rng = NpuCore(TINY), random.Random(5)
    bits = TINY.matrix_row.width
    rows = {addr: rng.getrandbits(bits) for addr in rng.sample(range(TINY.matrix_depth * TINY.rows), 30)}

    async def bench(ctx):
        for addr, word in rows.items():
            await write(ctx, dut, RegionId.MATRIX, addr, word)
        for addr, word in rows.items():
            assert await read(ctx, dut, RegionId.MATRIX, addr) == word

    simulate(dut, bench, cycles=3_000)


@pytest.mark.deep
def test_the_host_waits_no_longer_than_the_matrix_memory_takes(monkeypatch):
    latency = MatrixMemory.HOST_LATENCY.fget
    monkeypatch.setattr(MatrixMemory, "HOST_LATENCY", property(lambda memory: latency(memory) - 1))
    before, found = read_all(TWO_ENGINES, [RegionId.MATRIX])
    assert before != found
