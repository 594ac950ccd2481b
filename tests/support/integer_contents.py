"""Small configurations with integer chains, and memories full of integers that are weighted to the ends of ranges."""

from __future__ import annotations

import numpy as np

from concord.image import Memories
from concord.program import Span
from concord.spec.config import NpuConfig
from concord.spec.integers import FACTOR_MANT_BITS, FACTORS, TENSORS
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_25F, ECP5_85F

#: Small configurations with integer chains: one, two and more steps a tile, and several beats. The first and the
#: last have codes and written matrices beside them, the first windows, too.
TRAIN_SMALL = ECP5_25F.replace(
    name="train-small", integer_chains=True, code_scaling=True, writable_matrix=True, window_taps=4, inbox=0, lanes=4,
    narrow_depth=512, wide_depth=512, matrix_depth=512,
)  # fmt: skip
TRAIN_WHOLE = TRAIN_SMALL.replace(
    name="train-whole", code_scaling=False, writable_matrix=False, window_taps=0, lanes=8, mfu_lanes=4,
    matrix_depth=256, loop_levels=1,
)  # fmt: skip
TRAIN_LARGE = ECP5_85F.replace(
    name="train-large", mfu_lanes=4, inbox=0, outbox=0, code_pages=1, narrow_depth=512, wide_depth=512,
    matrix_depth=512,
)  # fmt: skip
#: Everything, with the memories of a large preset.
EVERYTHING_85F = ECP5_85F.replace(name="everything-85f", mfu_lanes=2, wide_depth=2048, integer_chains=True)
#: Words of the memories that a small one has, for the verifier.
EVERYTHING = [
    Span(RegionId.NARROW, 0, 512), Span(RegionId.WIDE, 0, 512), Span(RegionId.TENSORS, 0, TENSORS),
    Span(RegionId.FACTORS, 0, FACTORS), Span(RegionId.SLOTS, 0, TRAIN_SMALL.table_slots),
]  # fmt: skip
CONFIGS = (TRAIN_SMALL, TRAIN_WHOLE, TRAIN_LARGE)


def integers_of(draw, shape, bits: int):
    """Integers of the symmetric range, of all magnitudes alike, weighted to zeros, ends and powers of two."""
    limit = (1 << bits - 1) - 1
    sizes = draw.integers(0, bits, shape)
    values = draw.integers(0, 1 << 62, shape) & (np.int64(1) << sizes) - 1
    powers = np.minimum((np.int64(1) << np.minimum(sizes, bits - 1)) + draw.integers(-1, 2, shape), limit)
    halves = np.minimum(np.int64(3) << np.maximum(sizes - 2, 0), limit)
    kind = draw.random(shape)
    values = np.select([kind < 0.08, kind < 0.16, kind < 0.3, kind < 0.35], [0, limit, powers, halves], values)
    return np.where(draw.random(shape) < 0.5, -values, values)


def random_contents(rng, config: NpuConfig) -> Memories:
    """Memories full of integers; of the wide memory one half holds wide integers, the other one accumulators."""
    draw = np.random.default_rng(rng.getrandbits(64))
    memories, n = Memories(config), config.native
    digits = np.clip(integers_of(draw, memories.narrow_mant.shape, 8), -64, 63)
    small = draw.random((config.narrow_depth, 1)) < 0.3
    memories.narrow_mant[:] = np.where(small, digits, integers_of(draw, memories.narrow_mant.shape, 8))
    memories.narrow_exp[:] = draw.integers(config.act.exp_min, config.act.exp_max + 1, config.narrow_depth)
    memories.matrix_mant[:] = integers_of(draw, memories.matrix_mant.shape, 8)
    half = config.wide_depth // 2
    whole = integers_of(draw, (half // 2, n), 32).astype("<i4")
    memories.wide[:half] = whole.view("<u2").reshape(half, n)
    memories.wide[half:] = integers_of(draw, (config.wide_depth - half, n), 16).astype("<i2").view("<u2")
    memories.tensor_top[:] = np.abs(integers_of(draw, TENSORS, 48))
    memories.tensor_top[: TENSORS // 2] = np.abs(integers_of(draw, TENSORS // 2, 32))
    memories.tensor_exp[:] = draw.integers(-40, 21, TENSORS)
    memories.tensor_exp[-4:] = draw.choice([-128, -127, 126, 127], 4)
    memories.factor_mant[:] = integers_of(draw, FACTORS, FACTOR_MANT_BITS)
    memories.factor_exp[:] = draw.integers(-30, 10, FACTORS)
    memories.updates[:] = draw.choice([0, 7, (1 << 32) - 1], 3)
    return memories


def filled(config=TRAIN_SMALL, *, wide=None, narrow=None, tensors=None, factors=None):
    """Memories with wide integers, narrow vectors, tensor registers ``(exp, top)`` and factors ``(mant, exp)``."""
    memories = Memories(config)
    for address, values in (wide or {}).items():
        vector = np.resize(np.array(values, dtype=np.int64), config.native).astype("<i4")
        memories.wide[address : address + 2] = vector.view("<u2").reshape(2, -1)
    for address, values in (narrow or {}).items():
        memories.narrow_mant[address] = np.resize(values, config.native)
    for number, (exp, top) in (tensors or {}).items():
        memories.tensor_exp[number], memories.tensor_top[number] = exp, top
    for number, (mant, exp) in (factors or {}).items():
        memories.factor_mant[number], memories.factor_exp[number] = mant, exp
    return memories
