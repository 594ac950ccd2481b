"""The fast emulator against the reference machine, and both against results worked out by hand."""

import random

import numpy as np
import pytest

from concord.emulator import Emulator, ReferenceMachine, Run, product
from concord.golden import binary16
from concord.image import Memories
from concord.program import Span, trace, verify
from concord.program.assembler import assemble
from concord.spec.formats import Flag
from concord.spec.isa import Op, Trap
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_25F, TINY
from support.program_gen import random_memories, random_program
from support.reference_runs import assert_machines_agree
from support.rtl_configs import SCALING, SCALING_NARROW

pytestmark = pytest.mark.usefixtures("both_kernels")

CONFIGS = {
    "tiny": TINY,
    "two engines": TINY.replace(engines=2, matrix_depth=512, acc_width=30, mfu_lanes=1, lanes=4),
    "long mantissas": TINY.replace(act_mant=12, wgt_mant=16, act_exp_min=-24, wgt_exp_min=-31, wgt_exp_max=8, lanes=1),
    "sliding": TINY.replace(native=8, lanes=8, mfu_lanes=4, window_taps=6, matrix_depth=64),
    "scaling": SCALING,
    "scaling, few bits": SCALING_NARROW,
    "ecp5-25f": ECP5_25F.replace(narrow_depth=64, wide_depth=64, matrix_depth=256, engines=4),
}


def memories_with(text, config=TINY, seed=0):
    memories = random_memories(config, random.Random(seed))
    words = assemble(text)
    memories.program[: len(words)] = words
    return memories


def halves(*values):
    return binary16.encode(np.array(values))


# Hand-made ---------------------------------------------------------------------------------------


@pytest.fixture(params=[ReferenceMachine, Emulator])
def machine(request):
    return request.param


def test_a_layer_by_hand(machine):
    memories = Memories(TINY)
    words = assemble(
        "v_rd wide, 0\nv_wr narrow, 0\nv_rd narrow, 0\nmv_mul 0\nvv_add 1\nv_relu\nv_wr wide, 2\nv_wr narrow, 2\nhalt"
    )
    memories.program[: len(words)] = words
    memories.wide[0] = halves(1.0, -2.0, 3.0, 0.5)
    memories.wide[1] = halves(0.5, 0.25, -100.0, 0.0)
    memories.matrix_mant[0] = [[1, 2], [3, 4], [5, 6], [0, -1]]
    memories.matrix_mant[1] = [[7, 8], [0, 0], [1, -1], [0, 0]]
    memories.matrix_exp[:2] = -1
    run = machine(memories).run()
    # dynamic exponent of 3.0 is 1 - 6: the inputs are exact
    sums = [(1 - 4 + 21 + 4) / 2, (3 - 8) / 2, (5 - 12 + 3 - 0.5) / 2, 1.0]
    assert memories.narrow_mant[0].tolist() == [32, -64, 96, 16]
    assert memories.narrow_exp[0] == -5
    assert binary16.decode(memories.wide[2]).tolist() == [sums[0] + 0.5, 0.0, 0.0, 1.0]
    assert memories.narrow_exp[2] == 3 - 6
    assert memories.narrow_mant[2].tolist() == [92, 0, 0, 8]
    assert run == Run(Trap.NONE, 0, dense_steps=2, depthwise_steps=0, chains=2, vectors=2)
    assert not memories.flags.any()


def test_a_depthwise_window_by_hand(machine):
    memories = Memories(TINY)
    words = assemble(
        """
        set_iters inner=3
        set_window kh=1 kw=3 stride_x=1
        set_pad x0=-1 height=1 width=3
        v_rd narrow, 16383, inner=1     # the left neighbour of address 0 is never read
        mv_mul 0, mode=depthwise
        v_wr wide, 8, inner=1
        v_rd narrow, 16383, inner=1
        v_max
        v_wr wide, 16, inner=1
        v_rd narrow, 16383, inner=1
        v_redmax
        v_wr wide, 24, inner=1
        halt
        """
    )
    memories.program[: len(words)] = words
    memories.narrow_mant[:3] = [[1, 2, 3, 4], [10, 20, 30, 40], [-5, 0, 5, -50]]
    memories.matrix_mant[:2, :, :] = [[[1, 2]] * 4, [[4, 99]] * 4]  # taps 1, 2 and 4, the last lane unused
    memories.matrix_exp[:2] = 0
    run = machine(memories).run()
    assert binary16.decode(memories.wide[8:11]).tolist() == [
        [2 + 40, 4 + 80, 6 + 120, 8 + 160],
        [1 + 20 - 20, 2 + 40 + 0, 3 + 60 + 20, 4 + 80 - 200],
        [10 - 10, 20 + 0, 30 + 10, 40 - 100],
    ]
    assert binary16.decode(memories.wide[16:19]).tolist() == [[10, 20, 30, 40], [10, 20, 30, 40], [10, 20, 30, 40]]
    assert binary16.decode(memories.wide[24:27]).tolist() == [[40] * 4] * 3
    assert run == Run(Trap.NONE, 0, dense_steps=0, depthwise_steps=9, chains=3, vectors=9)


def test_vectors_see_what_earlier_ones_of_their_chain_wrote(machine):
    memories = Memories(TINY)
    words = assemble("set_shape rows=5\nv_rd wide, 0, row=1\nvv_add 9\nv_wr wide, 1, row=1\nhalt")
    memories.program[: len(words)] = words
    memories.wide[0] = memories.wide[9] = halves(1, 2, 3, 4)
    machine(memories).run()
    assert binary16.decode(memories.wide[5]).tolist() == [6, 12, 18, 24]


def test_flags_stay_until_cleared(machine):
    memories = Memories(TINY)
    words = assemble("nop\nv_rd wide, 0\nvv_mul 0\nv_wr wide, 1\nv_rd wide, 1\nv_wr narrow, 0\nhalt")
    memories.program[: len(words)] = words
    memories.wide[0] = halves(1, -300, 0, 2)
    device = machine(memories)
    device.run()
    want = [0, 1 << Flag.HALF_OVERFLOW, 0, 0, 1 << Flag.NONFINITE]
    assert memories.flags[:5].tolist() == want
    memories.wide[0] = 0
    device.run()
    assert memories.flags[:5].tolist() == want
    assert memories.flag_union() == 1 << Flag.HALF_OVERFLOW | 1 << Flag.NONFINITE
    device.clear_flags()
    device.run()
    assert not memories.flags.any()


def test_chains_before_a_trap_complete(machine):
    memories = Memories(TINY)
    words = [*assemble("v_rd wide, 0\nv_wr wide, 1"), *assemble("v_rd wide, 0\nv_wr wide, 2")[:1], 0]
    memories.program[: len(words)] = words
    memories.wide[0] = halves(1, 2, 3, 4)
    run = machine(memories).run()
    assert run == Run(Trap.BAD_OPCODE, 3, 0, 0, chains=1, vectors=1)
    assert np.array_equal(memories.wide[1], memories.wide[0])
    assert not memories.wide[2].any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("v_rd wide, 64\nv_wr wide, 0\nhalt", "addresses of wide must be below 64, not 64"),
        ("v_rd wide, 0\nv_wr narrow, 64\nhalt", "addresses of narrow must be below 64, not 64"),
        ("v_rd wide, 0\nvv_add 70\nv_wr narrow, 0\nhalt", "addresses of wide must be below 64, not 70"),
        ("v_rd narrow, 0\nmv_mul 255\nv_wr wide, 0\nhalt", "matrix addresses must be below 256, not 256"),
    ],
)
def test_addresses_beyond_the_memories_are_refused(machine, text, message):
    with pytest.raises(ValueError, match=message):
        machine(memories_with(text)).run()


# Random programs ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
def test_random_programs_agree(name):
    for seed in range(20):
        words, memories = random_program(CONFIGS[name], random.Random(f"{name} {seed}"), 10)
        problems = [str(p) for p in verify(words, CONFIGS[name])]
        assert not [p for p in problems if "beyond" in p or "traps" in p or "outside" in p or "max_terms" in p]
        copy = memories.copy()
        want, got = ReferenceMachine(memories).run(), Emulator(copy).run()
        assert got == want, f"seed {seed}"
        assert copy.differences(memories) == [], f"seed {seed}"


@pytest.mark.slow
def test_random_programs_cover_the_instruction_set():
    ops, flags = set(), 0
    for seed in range(40):
        config = SCALING if seed % 4 == 0 else TINY
        words, memories = random_program(config, random.Random(seed), 10)
        for chain in trace(words, config).chains:
            ops |= set() if chain.scale is None else {Op.VV_SCALE}
            ops |= {mfu_op.op for mfu_op in chain.mfu_ops} | {chain.reduce} | {(chain.reduce, chain.mode)}
            ops |= {chain.quant.rounding, (chain.quant.mode, "static")}
        Emulator(memories).run()
        flags |= memories.flag_union()
    assert {op for op in Op if 0x10 < op < 0x28} <= ops
    assert flags == (1 << len(Flag)) - 1


def test_a_difference_is_noticed():
    words, memories = random_program(TINY, random.Random(7), 10)
    copy = memories.copy()
    chain = next(c for c in trace(words, TINY).chains if c.reduce is Op.MV_MUL)
    copy.matrix_mant[chain.matrix] ^= 16
    ReferenceMachine(memories).run()
    Emulator(copy).run()
    assert copy.differences(memories)


@pytest.mark.slow
def test_the_exact_way_gives_the_same(monkeypatch):
    """Sums that might leave float64 are left to the golden model: here all of them."""
    monkeypatch.setattr(product, "DOUBLE_BITS", -1000)
    for name, config in CONFIGS.items():
        for seed in range(4):
            _, memories = random_program(config, random.Random(f"{name} {seed}"), 8)
            assert_machines_agree(memories)


# Batches -----------------------------------------------------------------------------------------


def unwritten(words, config):
    """A wide address that the program reads before it writes it, if there is one."""
    problems = [str(p) for p in verify(words, config) if "source reads wide" in str(p)]
    return int(problems[0].split("reads wide ")[1].split()[0].rstrip(",")) if problems else 0


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 4, 512])
def test_a_batch_is_the_same_as_one_by_one(lanes):
    rng = np.random.default_rng(lanes)
    for seed in range(3):
        words, memories = random_program(TINY, random.Random(f"batch {seed}"), 8)
        at = unwritten(words, TINY)
        batch = 11 if seed else 20
        wide = memories.wide[(at + rng.integers(0, 64, (batch, 1))) % 64]
        mant = memories.narrow_mant[rng.integers(0, 64, (batch, 2))]
        exp = rng.integers(-9, -2, (batch, 2))
        outputs = [Span(RegionId.WIDE, 0, 64), Span(RegionId.NARROW, 0, 64)]
        emulator = Emulator(memories.copy(), lanes=lanes)
        result = emulator.run_batch({at: wide}, outputs, narrow={5: (mant, exp)})
        again = emulator.run_batch({at: wide}, outputs, narrow={5: (mant, exp)})
        flags = np.zeros_like(memories.flags)
        for k in range(batch):
            single = memories.copy()
            single.wide[at] = wide[k, 0]
            single.narrow_mant[5:7], single.narrow_exp[5:7] = mant[k], exp[k]
            assert ReferenceMachine(single).run() == result.run
            flags |= single.flags
            for got in (result, again):
                assert np.array_equal(got.outputs[0][k], single.wide)
                assert np.array_equal(got.outputs[1][0][k], single.narrow_mant)
                assert np.array_equal(got.outputs[1][1][k], single.narrow_exp)
        assert np.array_equal(emulator.memories.flags, flags)
        assert np.array_equal(emulator.memories.wide, memories.wide)


def test_only_conversions_take_noise():
    """A chain without a narrow destination leaves the noise for the next one."""
    text = "set_shape rows=5\nset_quant rounding=stochastic\nv_rd wide, 0, row=1\nv_wr wide, 20, row=1\n"
    assert_machines_agree(memories_with(text + "v_rd wide, 0, row=1\nv_wr narrow, 0, row=1\nhalt", seed=3))


def test_floats_are_accepted_as_inputs():
    emulator = Emulator(memories_with("v_rd wide, 0\nvv_add 0\nv_wr wide, 1\nhalt"))
    values = np.arange(8, dtype=np.float16).reshape(2, 1, 4)
    result = emulator.run_batch({0: values}, [Span(RegionId.WIDE, 1)])
    assert np.array_equal(result.outputs[0].view(np.float16), values * 2)


def test_the_device_can_be_changed_between_runs():
    emulator = Emulator(TINY)
    emulator.write(RegionId.WIDE, 0, [TINY.wide_word.pack(elem=[0x3C00, 0x4000, 0, 0xBC00])])
    for text, want in [("v_relu", [0x3C00, 0x4000, 0, 0]), ("vv_add 0", [0x4000, 0x4400, 0, 0xC000])]:
        words = assemble(f"v_rd wide, 0\n{text}\nv_wr wide, 1\nhalt")
        emulator.write(RegionId.PROGRAM, 0, words)
        assert emulator.run().trap is Trap.NONE
        assert TINY.wide_word.unpack(emulator.read(RegionId.WIDE, 1, 1)[0])["elem"] == want
    assert emulator.run(pc=100).trap is Trap.BAD_OPCODE


def test_every_memory_can_be_changed_between_runs():
    """Weights, tables and descriptors that were prepared for a run are not used for the next one."""
    text = "v_rd narrow, 0\nmv_mul 0\nv_wr wide, 1\nv_rd wide, 0\nv_tbl 0\nv_wr wide, 2\nhalt"
    emulator, memories = Emulator(memories_with(text, seed=4)), random_memories(TINY, random.Random(5))
    emulator.run()
    for region in (RegionId.MATRIX, RegionId.TABLE, RegionId.SLOTS, RegionId.NARROW, RegionId.WIDE):
        copy = emulator.memories.copy()
        words = memories.read(region, 0, memories.region(region).depth)
        emulator.write(region, 0, words)
        copy.write(region, 0, words)
        emulator.run()
        ReferenceMachine(copy).run()
        assert emulator.memories.differences(copy) == []


@pytest.mark.parametrize("mem", ["narrow", "wide"])
def test_maxima_of_negative_numbers_at_a_border(mem):
    """What lies outside the image is less than anything inside."""
    text = (
        f"set_iters inner=4\nset_window kh=1 kw=3 stride_x=1\nset_pad x0=-1 height=1 width=4\n"
        f"v_rd {mem}, 9, inner=1\nv_max\nv_wr wide, 40, inner=1\nhalt"
    )
    memories = memories_with(text)
    memories.wide[8:16] |= 0x8000
    memories.wide[8:16] &= 0xBFFF
    memories.narrow_mant[8:16] = -np.abs(memories.narrow_mant[8:16]) - (memories.narrow_mant[8:16] == 0)
    assert_machines_agree(memories)
    assert (binary16.decode(memories.wide[40:44]) < 0).all()


@pytest.mark.parametrize(
    ("wide", "outputs", "message"),
    [
        ({}, [], "inputs must be arrays"),
        ({0: np.zeros((2, 1, 3), np.uint16)}, [], r"inputs must be arrays \[batch, count, 4\]"),
        ({0: np.zeros((2, 1, 4), np.uint16), 1: np.zeros((3, 1, 4), np.uint16)}, [], "of one batch"),
        ({63: np.zeros((2, 2, 4), np.uint16)}, [], "inputs must lie in 64 words, not at 63..64"),
        ({0: np.zeros((0, 2, 4), np.uint16)}, [], "at least one entry"),
        ({0: np.zeros((2, 1, 4), np.float32)}, [], "binary16 bit patterns must be integers"),
        ({0: np.zeros((2, 1, 4), np.uint16)}, [Span(RegionId.WIDE, 64)], "outputs must be vectors inside"),
        ({0: np.zeros((2, 1, 4), np.uint16)}, [Span(RegionId.TABLE, 0)], "outputs must be vectors inside"),
    ],
)
def test_bad_batches_are_refused(wide, outputs, message):
    with pytest.raises(ValueError, match=message):
        Emulator(memories_with("halt")).run_batch(wide, outputs)


def test_codes_no_converter_produces_are_refused():
    emulator = Emulator(memories_with("v_rd narrow, 0\nv_wr wide, 0\nhalt"))
    outputs = [Span(RegionId.WIDE, 0)]
    with pytest.raises(ValueError, match=r"exponents must be in -15\.\.9, not 10\.\.10"):
        emulator.run_batch({}, outputs, narrow={0: (np.zeros((1, 1, 4)), np.full((1, 1), 10))})
    with pytest.raises(ValueError, match=r"mantissas must be in -127\.\.127, not -128\.\.-128"):
        emulator.run_batch({}, outputs, narrow={0: (np.full((1, 1, 4), -128), np.zeros((1, 1), int))})
    with pytest.raises(ValueError, match="lanes must be at least 1, not 0"):
        Emulator(TINY, lanes=0)
