"""Programs with a chain for every kind of result, on memories full of corners."""

from __future__ import annotations

import numpy as np

from concord.program.builder import ProgramBuilder
from concord.spec.isa import Mem, MvMode, Op
from concord.spec.memmap import RegionId
from support.program_gen import random_codes, random_memories

_PATTERNS = np.array(
    [0, 0x8000, 1, 0x8001, 0x3FF, 0x83FF, 0x400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00], np.uint16
)
#: Of whole vectors: zeros of both signs meet more often.
_ALIKE = np.concatenate([_PATTERNS, np.tile(_PATTERNS[:2], 4)])
_STEPS = (Op.VV_MUL, Op.VV_ADD, Op.VV_SUB, Op.VV_RSUB, Op.VV_MAX, Op.VV_MIN, Op.V_RELU, Op.V_TBL)
#: How chains begin: source, and what reduces it.
_STARTS = (
    (Mem.WIDE, None), (Mem.NARROW, None), (Mem.WIDE, Op.V_MAX), (Mem.NARROW, Op.V_REDMAX), (Mem.WIDE, Op.V_REDMAX),
    (Mem.NARROW, MvMode.DENSE), (Mem.NARROW, MvMode.DEPTHWISE),
)  # fmt: skip
#: Chains write to words from here on; sources lie below.
_TARGETS = 32


def corner_program(config, rng):
    """Words of a program, and the memories it starts from, as :func:`support.program_gen.random_program` gives them."""
    builder = ProgramBuilder()
    kinds = [(mem, reduce, None) for mem, reduce in _STARTS] + [(Mem.WIDE, None, step) for step in _STEPS]
    kinds += 2 * [(Mem.WIDE, None, step) for step in (Op.VV_MUL, Op.VV_SUB, Op.VV_RSUB)]  # -0 needs two zeros
    rng.shuffle(kinds)
    for mem, reduce, step in kinds:
        if rng.random() < 0.5:
            builder.set_quant(mode=rng.randint(0, 1), exp=rng.randint(config.act.exp_min, config.act.exp_max),
                              rounding=rng.randint(0, 1 + config.stochastic))  # fmt: skip
        _chain(builder, config, rng, mem, reduce, step)
    builder.halt()
    words = builder.words()
    memories = _memories(config, rng)
    memories.program[: len(words)] = words
    return words, memories


def _chain(builder, config, rng, mem, reduce, step):
    source = rng.randrange(_TARGETS)
    builder.v_rd(mem, source)
    if isinstance(reduce, MvMode):
        builder.mv_mul(rng.randrange(config.matrix_depth - 4), mode=reduce)
    elif reduce is not None:
        builder.emit(reduce)
    if step is Op.V_TBL:
        builder.v_tbl(rng.randrange(config.table_slots), unit=rng.randint(0, 1))
    elif step is Op.V_RELU:
        builder.v_relu(unit=rng.randint(0, 1))
    elif step is not None:
        builder.emit(step, unit=rng.randint(0, 1), addr=rng.choice([source, rng.randrange(_TARGETS)]))
    for target in (Mem.WIDE, Mem.NARROW):
        builder.v_wr(target, _TARGETS + rng.randrange(8) + 8 * (target is Mem.WIDE))


def _memories(config, rng):
    """Vectors of one corner, and vectors of several; blocks and rows of weights with extreme exponents."""
    draw = np.random.default_rng(rng.getrandbits(64))
    memories, act, wgt = random_memories(config, rng), config.act, config.wgt
    for array in (memories.wide, memories.table.reshape(-1, 1)):
        mixed = draw.choice(_PATTERNS, array.shape)
        alike = np.broadcast_to(draw.choice(_ALIKE, (len(array), 1)), array.shape)
        array[:] = np.where(draw.random((len(array), 1)) < 0.6, alike, mixed)
    for mant, exp, form in (
        (memories.narrow_mant, memories.narrow_exp, act), (memories.matrix_mant, memories.matrix_exp, wgt)
    ):  # fmt: skip
        mant[:] = random_codes(draw, mant.shape, form.q_max) * (draw.random((*mant.shape[:-1], 1)) > 0.1)
        ends = [form.exp_min, form.exp_min, form.exp_max, min(form.exp_max, 15 - form.headroom)]
        inner = draw.integers(form.exp_min, form.exp_max + 1, exp.shape)
        exp[:] = np.where(draw.random(exp.shape) < 0.7, draw.choice(ends, exp.shape), inner)
    for slot in range(config.table_slots):  # from the least code on, so that every entry is read
        count = len(_PATTERNS) * 2
        base = rng.randrange(config.table_depth - count)
        word = config.table_slot.pack(low=-count // 2, high=count // 2 - 1, offset=base + count // 2,
                                      scale=rng.randint(-2, 4), settled_low=0, settled_high=1)  # fmt: skip
        memories.write(RegionId.SLOTS, slot, [word])
    return memories
