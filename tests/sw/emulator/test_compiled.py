"""The compiled kernels against those of NumPy: the same values, flags and errors, and only where they are wanted."""

import random
import subprocess
import sys

import numpy as np
import pytest

from concord.emulator import Emulator, fused, kernels
from concord.golden import binary16
from concord.host.emulated import EmulatedDevice
from concord.program import Span
from concord.program.assembler import assemble
from concord.spec.formats import Flag
from concord.spec.isa import Mem, Op
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.compiled_kernels import needs_numba
from support.program_gen import random_halves, random_memories, random_program

#: Programs of one chain from wide 0..3, or narrow 0..3, to wide 16 and narrow 16; operands are in wide 8..11.
STEPS = {
    "copy": "",
    "add": "vv_add 8, row=1",
    "subtract": "vv_sub 8, row=1",
    "subtract from": "vv_rsub 8, row=1",
    "multiply": "vv_mul 8, row=1",
    "maximum": "vv_max 8, row=1",
    "minimum": "vv_min 8, row=1",
    "relu": "v_relu",
    "table": "v_tbl 2",
    "several": "vv_mul 8, row=1\nv_relu\nvv_add 8, row=1\nv_tbl 2",
}
SPANS = [Span(RegionId.WIDE, 0, 64), Span(RegionId.NARROW, 0, 64)]
#: Both zeros, the ends of the subnormal and of the normal numbers, halves of the last place, and infinities and NaNs.
CORNERS = [0x0000, 0x0001, 0x0002, 0x03FF, 0x0400, 0x0401, 0x3BFF, 0x3C00, 0x3C01, 0x7800, 0x7BFE, 0x7BFF]
SPECIAL = [0x7C00, 0x7E00, 0x7C01]


def corners(rng, shape, special):
    """Half of them corners of either sign, the others of any exponent; most vectors have no special numbers."""
    bits = rng.integers(0, 0x7C00, shape)
    bits = np.where(rng.random(shape) < 0.5, rng.choice(CORNERS, shape), bits)
    if special:
        bits = np.where(rng.random(shape) < 0.01, rng.choice(SPECIAL, shape), bits)
    return (bits | rng.integers(0, 2, shape) << 15).astype(np.uint16)


def program(steps, source="wide", quant=""):
    """Memories with a program of one chain."""
    memories = random_memories(TINY, random.Random(steps + quant))
    words = assemble(f"set_shape rows=4\n{quant}\nv_rd {source}, 0, row=1\n{steps}\nv_wr wide, 16, row=1\n"
                     "v_wr narrow, 16, row=1\nhalt")  # fmt: skip
    memories.program[: len(words)] = words
    return memories


def assert_kernels_agree(memories, wide=None, lanes=16, **inputs):
    """A batch with either kernels, in chunks; returns what they left."""
    found = []
    for use in (False, True):
        emulator = Emulator(memories.copy(), lanes=lanes, compiled=use)
        left, (mant, exp) = emulator.run_batch(wide or {}, SPANS, **inputs).outputs
        found.append((left, mant, exp, emulator.memories.flags))
    for a, b in zip(*found, strict=True):
        assert np.array_equal(a, b)
    return found[0]


@pytest.mark.slow
@needs_numba
@pytest.mark.parametrize("quant", ["", "set_quant mode=1 exp=-3", "set_quant mode=1 exp=2"])
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
@pytest.mark.parametrize("steps", STEPS)
def test_corners_of_every_operation(steps, special, quant):
    rng = np.random.default_rng(len(steps))
    memories = program(STEPS[steps], quant=quant)
    for _ in range(6):
        wide = {0: corners(rng, (50, 4, 4), special), 8: corners(rng, (50, 4, 4), special)}
        assert_kernels_agree(memories, wide=wide)


@needs_numba
@pytest.mark.parametrize("quant", ["", "set_quant mode=1 exp=-3"])
@pytest.mark.parametrize("steps", ["copy", "relu", "table"])
def test_every_pattern(steps, quant):
    every = np.arange(1 << 16, dtype=np.uint16).reshape(4096, 4, 4)
    assert_kernels_agree(program(STEPS[steps], quant=quant), {0: every}, lanes=512)


@needs_numba
@pytest.mark.parametrize("op", ["add", "subtract", "multiply"])
def test_sums_and_products_of_many_binades(op):
    """Every significand with random ones, where rounding twice would show."""
    rng, memories = np.random.default_rng(8), program(STEPS[op])
    fine = np.arange(0x3C00, 0x4000, dtype=np.uint16).reshape(64, 4, 4)
    for shift in range(-14, 15, 2):
        other = rng.integers(0x3C00, 0x4000, (64, 4, 4)) + (shift << 10) | rng.integers(0, 2, (64, 4, 4)) << 15
        assert_kernels_agree(memories, {0: fine, 8: other.astype(np.uint16)}, lanes=64)


@needs_numba
@pytest.mark.parametrize("seed", range(12))
def test_random_programs(seed):
    rng = np.random.default_rng(seed)
    _, memories = random_program(TINY, random.Random(f"compiled {seed}"), 10)
    numbers = {(Mem.WIDE, 3): kernels.decode(random_halves(rng, (37, 8, 4), wild=bool(seed % 2)))}
    narrow = {5: (memories.narrow_mant[rng.integers(0, 64, (37, 2))], rng.integers(-9, -2, (37, 2)))}
    assert_kernels_agree(memories, numbers=numbers, narrow=narrow)


@needs_numba
@pytest.mark.parametrize("mem", Mem, ids=lambda mem: mem.name.lower())
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
def test_numbers(mem, special):
    """Inputs in float32: corners of binary16, the middles between two of them, and what is beside those."""
    rng = np.random.default_rng(7)
    memories = program("")
    for batch in (1, 16, 37):
        bits = corners(rng, (batch, 8, 4), special)
        exact, above = (kernels.decode(b) for b in (bits, bits + (bits & 0x7FFF < 0x7BFF)))
        with np.errstate(all="ignore"):
            middle = (exact + above) / np.float32(2)
            near = np.nextafter(middle, rng.choice(np.float32([-np.inf, np.inf]), bits.shape))
            tiny = rng.choice(np.float32([1e-45, -1e-45, 1e-38, 2.0**-25, -(2.0**-25), -0.0]), bits.shape)
            huge = rng.choice(np.float32([65519.99, 65520.0, -65520.0, 1e38, -3e38]), bits.shape)
        kinds = [exact, middle, near, tiny] + [huge] * special
        kind = rng.integers(0, 4, bits.shape)
        kind = np.where(rng.random(bits.shape) < 0.01, len(kinds) - 1, kind)
        assert_kernels_agree(memories, numbers={(mem, 0): np.choose(kind, kinds)})


@needs_numba
@pytest.mark.parametrize("mode", ["dense", "depthwise"])
def test_products(mode):
    """Sums of either sign of zero, and sums that overflow."""
    rng = np.random.default_rng(3)
    memories = random_memories(TINY, random.Random(1))
    window = "set_window kh=1 kw=3 stride_x=1" if mode == "depthwise" else "set_shape rows=2 cols=3"
    text = (
        f"{window}\nv_rd narrow, 0\nmv_mul 0, mode={mode}\nvv_add 8\nv_wr wide, 16, row=1\nv_wr narrow, 16, row=1\nhalt"
    )
    words = assemble(text)
    memories.program[: len(words)] = words
    for top in (-9, 3, 9):
        mant = rng.integers(-127, 128, (50, 3, 4)) * rng.integers(0, 2, (50, 3, 1))
        exp = rng.integers(top - 3, top + 1, (50, 3))
        *_, flags = assert_kernels_agree(memories, narrow={0: (mant, exp)}, wide={8: corners(rng, (50, 1, 4), False)})
    assert flags.any()


@needs_numba
def test_depthwise_sums_of_one_lane():
    """The same as in a batch, where the order of the taps decides about the bits; and -0 adds up to +0."""
    rng = np.random.default_rng(8)
    x = (rng.normal(0, 1, (40, 5)) * np.exp2(rng.integers(-20, 20, (40, 5)))).astype(np.float32)
    rows, weights = rng.integers(0, 36, (6, 2, 9)), rng.normal(0, 1, (2, 4, 9)).astype(np.float32)
    rows[0], x[rows[0].min() : rows[0].max() + 4] = rows[0, 0, 0], -0.0
    together = np.empty((48, 5), dtype=np.float32)
    fused.compiled().depthwise(x, rows, weights, together)
    assert not np.signbit(together[:8]).any() and together[8:].any()
    for lane in range(5):
        alone = np.empty((48, 1), dtype=np.float32)
        fused.compiled().depthwise(x[:, lane : lane + 1].copy(), rows, weights, alone)
        assert np.array_equal(alone.view(np.int32), together[:, lane : lane + 1].copy().view(np.int32))


@needs_numba
def test_scales_that_decide_on_the_precision():
    rng = np.random.default_rng(6)
    scale = np.exp2(rng.integers(-15, 10, (40, 7))).astype(np.float32)
    grain = np.where(rng.random(scale.shape) < 0.2, np.float32(np.inf), scale)
    words, windows = rng.integers(0, 40, 9), rng.integers(0, 40, (30, 3))
    assert fused.compiled().extremes(scale, grain, words) == (scale[words].max(), grain[words].min())
    for ratio in (1.0, 8.0, 300.0):
        found = np.empty((30, 7), dtype=np.bool_)
        fused.compiled().beyond(scale, grain, windows, ratio, found)
        assert np.array_equal(found, scale[windows].max(axis=1) > grain[windows].min(axis=1) * ratio)


@needs_numba
@pytest.mark.parametrize("reduce", ["v_max", "v_redmax"])
@pytest.mark.parametrize("special", [False, True], ids=["finite", "special"])
def test_maxima(reduce, special):
    memories = random_memories(TINY, random.Random(2))
    words = assemble(
        "set_iters inner=4\nset_window kh=1 kw=3 stride_x=1\nset_pad x0=-1 height=1 width=4\n"
        f"v_rd wide, 16383, inner=1\n{reduce}\nv_wr wide, 16, inner=1\nv_wr narrow, 16, inner=1\nhalt"
    )
    memories.program[: len(words)] = words
    rng = np.random.default_rng(4)
    for _ in range(6):
        assert_kernels_agree(memories, wide={0: corners(rng, (50, 4, 4), special)})


@needs_numba
@pytest.mark.parametrize("sign", [1, -1])
def test_one_lane_decides_on_the_flags(sign):
    """Of many lanes and elements one alone is beyond the greatest mantissa, overflows, or is beyond the table."""
    for steps, quant, at, least, flag in (
        ("", "set_quant mode=1 exp=0", 0, 128.0, Flag.SATURATED),
        ("vv_add 8, row=1", "", 8, 40000.0, Flag.HALF_OVERFLOW),
        ("v_tbl 0", "", 0, 8.0, Flag.TABLE_CLAMPED),
    ):
        memories = program(steps, quant=quant)
        slot = TINY.table_slot.pack(low=-8, high=7, offset=8, scale=0, settled_low=0, settled_high=0)
        memories.write(RegionId.SLOTS, 0, [slot])
        memories.table[:16] = 0x3C00
        for value in (0.0, sign * least):
            wide = np.zeros((40, 12, 4))
            wide[17, 1], wide[17, 9] = value, value if at else 0.0
            if flag is Flag.TABLE_CLAMPED and sign < 0:
                wide[17, 1] *= 1.125
            *_, flags = assert_kernels_agree(memories, wide={0: binary16.encode(wide)})
            assert (flags & 1 << flag).any() == flags.any() == bool(value)


@needs_numba
@pytest.mark.parametrize("settled", [(0, 0), (0, 1), (1, 0), (1, 1)], ids=str)
@pytest.mark.parametrize(
    ("value", "side"), [(-8.0, None), (-8.5, None), (-8.75, 0), (7.0, None), (7.25, None), (7.5, 1), (300.0, 1)]
)
def test_codes_at_the_ends_of_a_table(value, side, settled):
    """The first and the last entry are inside, however the end is; beyond an end that is not settled is the flag."""
    memories = program("v_tbl 0")
    slot = TINY.table_slot.pack(low=-8, high=7, offset=8, scale=0, settled_low=settled[0], settled_high=settled[1])
    memories.write(RegionId.SLOTS, 0, [slot])
    memories.table[:16] = binary16.encode(np.arange(16.0))
    wide = np.zeros((3, 4, 4))
    wide[1, 2, 3] = value
    left, *_, flags = assert_kernels_agree(memories, wide={0: binary16.encode(wide)})
    assert flags.any() == (side is not None and not settled[side])
    assert binary16.decode(left)[1, 18, 3] == np.clip(np.rint(value), -8, 7) + 8


@needs_numba
@pytest.mark.parametrize("exp", [-3, 0])
def test_the_greatest_mantissa_is_not_saturated(exp):
    """127 and -127 are mantissas of 8 bits, and so is what is rounded to them; 127.5 is not."""
    memories = program("", quant=f"set_quant mode=1 exp={exp}")
    for mantissa, saturated in ((127.0, False), (-127.0, False), (127.25, False), (127.5, True), (-128.0, True)):
        wide = np.zeros((3, 4, 4))
        wide[2, 1, 0] = mantissa * 2.0**exp
        _, mant, _, flags = assert_kernels_agree(memories, wide={0: binary16.encode(wide)})
        assert flags.any() == saturated and mant[2, 17, 0] == np.sign(mantissa) * 127


@needs_numba
def test_finite_vectors_never_reach_numpy(monkeypatch):
    """Otherwise the tests above would compare NumPy with itself."""
    memories, wide = program(STEPS["several"]), {at: np.full((40, 4, 4), 0x3C00) for at in (0, 8)}
    memories.table[:] = 0x3C00
    for name in ("elementwise", "look_up", "quantize"):
        monkeypatch.setattr(kernels, name, None)
    Emulator(memories, compiled=True).run_batch(wide, SPANS)
    wide[0][3, 1, 2] = 0x7C00
    with pytest.raises(TypeError, match="not callable"):
        Emulator(memories, compiled=True).run_batch(wide, SPANS)


@needs_numba
def test_an_operation_that_is_not_there_is_left_to_numpy(monkeypatch):
    """As long as it has no kernel: nothing takes it for another one."""
    memories, wide = program(STEPS["relu"]), {0: corners(np.random.default_rng(9), (40, 4, 4), special=False)}
    make = fused.FusedPass.__init__

    def unknown(self, *args, **kwargs):
        make(self, *args, **kwargs)
        self._ops[:] = max(Op) + 1

    monkeypatch.setattr(fused.FusedPass, "__init__", unknown)
    assert_kernels_agree(memories, wide=wide)


@needs_numba
def test_a_table_beyond_the_memory_is_refused():
    memories = program("v_tbl 2")
    memories.slot = lambda k: {"low": 0, "high": 1, "offset": -1, "scale": 0, "settled_low": 0, "settled_high": 0}
    for use in (False, True):
        with pytest.raises(ValueError, match=r"slot must stay inside 256 entries, not -1\.\.0"):
            Emulator(memories, compiled=use).run()


# Which kernels are used ----------------------------------------------------------------------------


def test_without_numba_they_cannot_be_wanted(monkeypatch):
    monkeypatch.setattr(fused, "installed", lambda: False)
    with pytest.raises(ModuleNotFoundError, match=r"Numba: pip install .*fast.*, or leave compiled out"):
        Emulator(TINY, compiled=True)
    with pytest.raises(ModuleNotFoundError, match="need Numba"):
        EmulatedDevice(TINY, compiled=True)
    assert not fused.LoadRule(None).fast(10**6, 10**6)


def test_kernels_are_loaded_when_batches_have_computed_enough(monkeypatch):
    monkeypatch.setattr(fused, "installed", lambda: True)
    monkeypatch.setattr(fused, "ready", lambda: False)
    rule = fused.LoadRule(None)
    assert not any(rule.fast(1, 10**9) for _ in range(1000))  # single runs do not wait
    assert [rule.fast(32, fused._WORTH_LOADING // 100) for _ in range(4)] == [False, False, False, True]
    assert rule.fast(1, 1) and fused.LoadRule(True).fast(1, 1)
    assert not fused.LoadRule(None).fast(1, 1) and not fused.LoadRule(False).fast(10**6, 10**6)
    monkeypatch.setattr(fused, "ready", lambda: True)
    assert fused.LoadRule(None).fast(1, 1) and not fused.LoadRule(False).fast(1, 1)


@pytest.mark.slow
def test_nothing_imports_numba_before_it_is_wanted():
    lines = [
        "import sys, numpy as np, concord, concord.host, concord.cli, concord.compiler.model",
        "from concord.emulator import Emulator",
        "from concord.image import Memories",
        "from concord.program.assembler import assemble",
        "from concord.spec.presets import TINY",
        "memories = Memories(TINY)",
        "memories.program[:4] = assemble('v_rd wide, 0\\nv_relu\\nv_wr wide, 1\\nhalt')",
        "emulator = Emulator(memories)",
        "emulator.run(), emulator.run_batch({0: np.zeros((1, 1, 4), np.uint16)}, [])",
        "assert 'numba' not in sys.modules",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
