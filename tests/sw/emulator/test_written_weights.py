"""Products whose weights a program has written: the emulator against the reference machine, runs and batches."""

import random

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine, product
from concord.emulator.inputs import Inputs
from concord.emulator.outputs import Outputs
from concord.emulator.phases import BatchPhase
from concord.golden import binary16
from concord.image import Image, Memories
from concord.overflow.intervals import Bounds
from concord.overflow.machine import Watcher
from concord.program import Span
from concord.program.assembler import assemble
from concord.spec.formats import FLAG_BITS
from concord.spec.memmap import RegionId
from support.program_gen import random_memories, random_program
from support.reference_runs import assert_machines_agree
from support.rtl_configs import SCALING, WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS

pytestmark = pytest.mark.usefixtures("both_kernels")

CONFIGS = {
    config.name: config
    for config in (
        WRITABLE,
        WRITABLE_ENGINES,
        WRITABLE_WINDOWS,
        SCALING.replace(name="scaling", writable_matrix=True, wgt_mant=SCALING.act_mant),
        WRITABLE.replace(name="short register", acc_width=24, acc_register=24, lanes=4, engines=2),
        WRITABLE.replace(
            name="long mantissas", act_mant=12, wgt_mant=12, act_exp_min=-24, wgt_exp_min=-24, wgt_exp_max=8
        ),
    )
}
EVERYTHING = [Span(RegionId.WIDE, 0, 64), Span(RegionId.NARROW, 0, 64)]


def program_of(memories, text, at=0):
    words = assemble(text)
    memories.program[at : at + len(words)] = words
    return memories


def random_of(config, seed, size=10):
    return random_program(config, random.Random(f"{config.name} {seed}"), size)[1]


# Single runs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("part", [pytest.param(range(2), id="few"), pytest.param(range(2, 24), marks=pytest.mark.slow)])
def test_random_programs_agree(name, part):
    for seed in part:
        assert_machines_agree(random_of(CONFIGS[name], seed))


@pytest.mark.slow
@pytest.mark.parametrize("bits", ["SINGLE_BITS", "DOUBLE_BITS"])
def test_wider_sums_give_the_same(monkeypatch, bits):
    """All sums as those that might leave float32, in float64, or float64, by the golden model."""
    monkeypatch.setattr(product, bits, -1000)
    for config in CONFIGS.values():
        for seed in range(4):
            assert_machines_agree(random_of(config, seed))


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
@pytest.mark.parametrize(
    "value, mode, exp, want, flag",
    [
        (5.0, "dynamic", 0, -5, "SATURATED"),
        (3.99, "dynamic", 0, -5, 0),
        (2.0**-9, "dynamic", 0, -9, 0),
        (6e4, "dynamic", 0, -5, "SATURATED"),
        (1.0, "static", -15, -9, "SATURATED"),
        (1.0, "static", 3, -5, 0),
        (np.inf, "dynamic", 0, -5, "NONFINITE"),
    ],
)
def test_exponents_are_limited_to_those_of_weights(machine, value, mode, exp, want, flag):
    memories = program_of(Memories(WRITABLE_ENGINES), f"set_quant mode={mode} exp={exp}\nv_rd wide, 0\nm_wr 0\nhalt")
    memories.wide[0, 3] = np.float16(value).view(np.uint16)
    machine(memories).run()
    assert memories.matrix_exp[0, 0] == want
    q_max = WRITABLE_ENGINES.wgt.q_max
    assert memories.matrix_mant[1, 0].tolist() == [0, min(round(min(value, 1e5) / 2.0**want), q_max)]
    assert bool(memories.flags[1] & FLAG_BITS[flag]) if flag else not memories.flags[1]


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
def test_of_several_vectors_for_one_row_the_last_one_stays(machine):
    memories = program_of(Memories(WRITABLE), "set_shape 3, 1\nv_rd wide, 0, row=1\nm_wr 4\nhalt")
    memories.wide[:3, 0] = binary16.encode([1.0, 2.0, 3.0])
    machine(memories).run()
    assert memories.matrix_mant[4, 0, 0] * 2.0 ** memories.matrix_exp[4, 0] == 3.0
    assert not memories.matrix_mant[4, 1:].any()


@pytest.mark.parametrize("machine", [ReferenceMachine, Emulator])
def test_products_see_the_values_of_their_turn(machine):
    """A chain of a loop that does the same each time: the row is another one."""
    loop = "loop 3\nv_rd wide, 0\nm_wr 4\nv_rd narrow, 0\nmv_mul 4\nv_wr wide, 0\nend_loop\nhalt"
    memories = program_of(Memories(WRITABLE), loop)
    memories.wide[0, 0] = binary16.encode(1.0)
    memories.narrow_mant[0, 0] = 3
    machine(memories).run()
    assert binary16.decode(memories.wide[0, 0]) == 27.0


def test_a_row_has_the_power_of_two_that_was_written_last():
    """Between two binary16 numbers, and a bit more than float32 could add to it: the bounds must know the row."""
    config = WRITABLE.replace(name="fine", wgt_exp_min=-20, wgt_exp_max=0, acc_width=56)
    text = """
        set_quant mode=static exp=0
        v_rd wide, 0
        m_wr 4
        v_rd wide, 0
        m_wr 6
        set_quant mode=static exp=-14
        v_rd wide, 1
        m_wr 6
        set_shape 1, 2
        v_rd narrow, 0
        mv_mul 4
        v_wr wide, 9
        halt
    """
    memories = program_of(Memories(config), text)
    memories.wide[:2, :2] = binary16.encode([[127.0, 17.0], [2.0**-14, 0.0]])
    memories.narrow_mant[:2, :2], memories.narrow_exp[:2] = [[16, 1], [1, 0]], [0, -13]
    assert_machines_agree(memories)
    assert binary16.decode(memories.wide[9, 0]) == 2050.0  # 2049 and 2**-27


@pytest.mark.parametrize("fine", [0, 1])
def test_a_row_of_constants_has_the_exponents_of_its_words(fine):
    """The same beside a row that was written, with words of two exponents in a row of a tile."""
    config = WRITABLE.replace(name="words", wgt_exp_min=-20, wgt_exp_max=0, acc_width=56)
    memories = program_of(Memories(config), "v_rd wide, 0\nm_wr 4\nv_rd narrow, 0\nmv_mul 4\nv_wr wide, 9\nhalt")
    memories.matrix_mant[4 + fine, 1], memories.matrix_exp[4 + fine, 1] = [1, 1], -20
    memories.matrix_mant[5 - fine, 1], memories.matrix_exp[5 - fine, 1] = [127, 17], 0
    memories.narrow_mant[0], memories.narrow_exp[0] = [[1, 1, 16, 1], [16, 1, 1, 1]][fine], 0
    assert_machines_agree(memories)
    assert binary16.decode(memories.wide[9, 1]) == 2050.0


def test_words_behind_the_last_one_are_the_first():
    """A product whose words wrap around, with rows that were written at both ends."""
    config = WRITABLE.replace(name="deep", matrix_depth=1 << 18)
    last = config.matrix_depth - config.steps
    memories = program_of(
        Memories(config),
        f"""
        v_rd wide, 0
        m_wr 0
        v_rd wide, 1
        m_wr {last}
        set_shape 1, 2
        v_rd narrow, 0
        mv_mul {last}
        v_wr wide, 9
        halt
        """,
    )
    memories.wide[:2] = binary16.encode(np.arange(8.0).reshape(2, 4))
    memories.narrow_mant[:2] = [[1, 2, 3, 4], [5, 6, 7, 8]]
    assert_machines_agree(memories)
    assert binary16.decode(memories.wide[9, 0]) == np.arange(8) @ [5, 6, 7, 8, 1, 2, 3, 4]


def test_later_runs_see_what_was_written():
    """Weights that a program has read before another one writes them are not kept."""
    memories = random_memories(WRITABLE, random.Random(3))
    memories.narrow_mant[0, 0] = 5
    program_of(memories, "set_shape 2, 1\nv_rd narrow, 0\nmv_mul 4\nv_wr wide, 20, row=1\nhalt")
    program_of(memories, "v_rd wide, 0\nm_wr 6\nhalt", 32)
    memories.wide[0] = binary16.encode([1.0, 2.0, 3.0, 4.0])
    copy, results = memories.copy(), []
    emulator, reference = Emulator(copy), ReferenceMachine(memories)
    inputs = {30: memories.wide[None, 30:31]}
    for pc in (0, 32, 0, 0):
        batch = emulator.run_batch(inputs, [Span(RegionId.WIDE, 20, 2)], 0).outputs[0][0]
        for machine in (emulator, reference):
            machine.run(pc)
        assert copy.differences(memories) == []
        results.append(memories.wide[20:22].tolist())
        assert pc == 32 or batch.tolist() == results[-1]
    assert results[0] != results[2] == results[3]


# Batches -----------------------------------------------------------------------------------------


def one_by_one(memories, pcs, wide, narrow, count):
    """Memories behind programs in a row, for every sample from the same contents."""
    for k in range(count):
        single = memories.copy()
        for at, patterns in wide.items():
            single.wide[at : at + patterns.shape[1]] = patterns[k]
        for at, (mant, exp) in narrow.items():
            single.narrow_mant[at : at + mant.shape[1]] = mant[k]
            single.narrow_exp[at : at + mant.shape[1]] = exp[k]
        machine = ReferenceMachine(single)
        for pc in pcs:
            machine.run(pc)
        yield single


def assert_batch(memories, pcs, wide, narrow, **options):
    """A batch of programs in a row, twice, against runs one by one; memories stay as they are."""
    config, before = memories.config, memories.copy()
    inputs = Inputs(config, wide, narrow, {})
    nothing, everything = Outputs(config, []), Outputs(config, EVERYTHING)
    phases = [BatchPhase(pc, None if k else inputs, nothing) for k, pc in enumerate(pcs)]
    phases[-1] = BatchPhase(pcs[-1], phases[-1].inputs, everything)
    emulator = Emulator(memories.copy(), **options)
    found = [emulator.run_phases(phases)[-1].outputs for _ in range(2)]
    flags = np.zeros_like(memories.flags)
    for k, single in enumerate(one_by_one(memories, pcs, wide, narrow, inputs.batch)):
        flags |= single.flags
        for halves, (mant, exp) in found:
            assert np.array_equal(halves[k], single.wide[:64]), k
            assert np.array_equal(mant[k], single.narrow_mant[:64]), k
            assert np.array_equal(exp[k], single.narrow_exp[:64]), k
    before.flags |= flags
    assert emulator.memories.differences(before) == []


def sources(config, memories, batch, seed):
    """Inputs of everything that random programs read."""
    rng = np.random.default_rng(seed)
    wide = memories.wide[rng.integers(0, config.wide_depth, (batch, 64))]
    at = rng.integers(0, config.narrow_depth, (batch, 64))
    mant, exp = memories.narrow_mant[at], memories.narrow_exp[at]
    return {0: wide}, {0: (mant, exp)}


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_a_batch_is_the_same_as_one_by_one(name):
    config = CONFIGS[name]
    for seed in range(4):
        memories = random_of(config, f"batch {seed}", 8)
        assert_batch(memories, [0], *sources(config, memories, 7, seed), lanes=[512, 4, 1, 3][seed])


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_phases_find_what_those_before_have_written(name):
    config = CONFIGS[name].replace(program_depth=512)
    for seed in range(3):
        first, second = (random_of(config, f"phase {seed} {k}", 6) for k in range(2))
        length = int(np.flatnonzero(second.program)[-1]) + 1
        first.program[256 : 256 + length] = second.program[:length]
        wide, narrow = sources(config, first, 5, seed)
        assert_batch(first, [0, 256], wide, narrow, lanes=[512, 2, 3][seed])
        assert_batch(first, [256, 0, 256], wide, narrow, lanes=4)


def attention(config, keys, cols, at=0):
    """Keys in narrow vectors become a matrix, which one more vector is multiplied with."""
    n = config.native
    return f"""
        set_shape rows={cols} cols=1
        set_iters inner={config.rows} outer={keys // config.rows}
        v_rd narrow, {at}, row=1, inner={cols}, outer={cols * config.rows}
        m_wr {3 * config.steps}, row={config.rows}, inner=1, outer={cols * config.rows}
        set_shape rows={keys // n} cols={cols}
        set_iters inner=2 outer=1
        v_rd narrow, {at + cols * keys}, inner={cols}
        mv_mul {3 * config.steps}
        v_wr wide, 0, row=1, inner={keys // n}
        halt
    """


@pytest.mark.slow
@pytest.mark.parametrize("config", [WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS], ids=lambda config: config.name)
@pytest.mark.parametrize("alike", [True, False], ids=["alike", "some far away"])
def test_every_sample_has_a_matrix_of_its_own(config, alike, monkeypatch):
    """Weights and vectors with exponents near one another; or, in a few lanes, too far from one another for float32."""
    config = config.replace(wgt_exp_min=-15, wgt_exp_max=4, acc_width=50)
    keys, cols, batch = 2 * config.rows, 2, 40
    memories = program_of(Memories(config), attention(config, keys, cols))
    draw = np.random.default_rng(3)
    mant = draw.integers(-127, 128, (batch, cols * (keys + 2), config.native))
    exp = draw.integers(-8, -6, mant.shape[:2])
    if not alike:
        exp[7, 1::2] -= 6  # half of every key
        exp[11, -1] += 8
    calls = []
    columns = product.BlockProduct._columns
    monkeypatch.setattr(product.BlockProduct, "_columns", lambda *arguments: calls.append(0) or columns(*arguments))
    assert_batch(memories, [0], {}, {0: (mant, exp)}, workers=2)
    assert bool(calls) == (not alike)


def test_a_batch_of_several_chunks_and_workers(monkeypatch):
    """A later chunk begins with the rows of the memories again: the product comes before the write."""
    monkeypatch.setattr("concord.emulator.machine._SHARED_VALUES", 0)
    memories = random_memories(WRITABLE, random.Random(8))
    use = "v_rd narrow, 0\nmv_mul 4\nv_wr wide"
    program_of(memories, f"{use}, 9\nv_rd wide, 0\nm_wr 4\n{use}, 10\nhalt")
    wide = binary16.encode(np.random.default_rng(2).normal(size=(23, 1, 4)))
    for lanes, workers in ((3, 1), (4, 2), (512, 1)):
        assert_batch(memories, [0], {0: wide}, {}, lanes=lanes, workers=workers)


@pytest.mark.parametrize(
    "texts, dependent",
    [
        (["v_rd wide, 0\nm_wr 4\nv_rd narrow, 0\nmv_mul 4\nv_wr wide, 9\nhalt"], False),  # other rows are constants
        (["set_iters inner=2\nv_rd narrow, 0\nmv_mul 4\nv_wr wide, 9\nv_rd wide, 0\nm_wr 4\nhalt"], True),
        (["v_rd narrow, 0\nmv_mul 4\nv_wr wide, 9\nhalt", "v_rd wide, 0\nm_wr 4\nhalt"], True),
        (["v_rd wide, 0\nm_wr 4\nhalt", "v_rd narrow, 0\nmv_mul 4\nv_wr wide, 9\nhalt"], False),
        (["v_rd narrow, 0\nmv_mul 4\nv_wr wide, 9\nhalt", "v_rd wide, 0\nm_wr 6\nhalt"], False),
    ],
)
def test_what_a_run_may_see_of_the_one_before(texts, dependent):
    memories = Memories(WRITABLE)
    for k, text in enumerate(texts):
        program_of(memories, text, 24 * k)
    inputs = Inputs(WRITABLE, {0: np.zeros((2, 1, 4), dtype=np.uint16)}, {}, {})
    phases = [BatchPhase(24 * k, None if k else inputs, Outputs(WRITABLE, [])) for k in range(len(texts))]
    assert Emulator(memories).dependent(phases) == dependent


# What needs constants ----------------------------------------------------------------------------


def test_sums_with_written_weights_are_neither_counted_nor_bounded():
    text = "v_rd wide, 0\nm_wr 4\nv_rd narrow, 0\nmv_mul 4\nv_wr wide, 9\nhalt"
    memories = program_of(Memories(WRITABLE), text)
    with pytest.raises(ValueError, match=r"weights must be constants .*, and not written by m_wr"):
        Bounds(Image(WRITABLE, tuple(assemble(text)))).run({})
    watcher = Watcher(WRITABLE, lambda pc: f"chain at {pc}")
    with pytest.raises(ValueError, match=r"weights must be constants .*, and not written by m_wr"):
        Emulator(memories, watch=watcher).run()
