"""Sums at the ends of a register: what must stay in it, and what must leave it, at which side."""

from __future__ import annotations

import numpy as np

from concord.image import Memories
from concord.program.assembler import assemble

#: Terms as (sign, exponent less the register's bits), exponent None for one unit; and the side where the sum ends.
CASES = {
    "the greatest sum": ([(1, -2), (-1, None), (1, -2)], 0),
    "one more than that": ([(1, -2), (1, -2)], 1),
    "out and back": ([(1, -2), (1, -2), (-1, None)], 1),
    "out with the last term": ([(1, -2), (-1, None), (1, -2), (1, None)], 1),
    "the least sum": ([(-1, -2), (-1, -2)], 0),
    "below and back": ([(-1, -2), (-1, -2), (-1, None), (1, -2)], -1),
    "below with the last term": ([(-1, -2), (-1, -2), (-1, None)], -1),
    "a term alone": ([(1, -1)], 1),
    "the least term": ([(-1, -1)], 0),
    "a term alone, below": ([(-1, 0)], -1),
    "a term, though the sum would fit": ([(-1, None), (1, -1)], 1),
    "a term below, though the sum would fit": ([(1, -2), (-1, 0), (1, -2)], -1),
    "out above, then far below": ([(1, -2), (1, -2), *[(-1, -2)] * 5], 1),
    "out below, then far above": ([(-1, -2)] * 3 + [(1, -2)] * 5, -1),
}


def powers(name, bits):
    """The terms of a case in a register of some bits: signs and exponents on the grid."""
    return [(sign, 0 if rest is None else bits + rest) for sign, rest in CASES[name][0]]


def exponents(config, k):
    """Exponents of a vector and of a row of weights whose mantissas 1 meet at bit k of the grid."""
    weight = min(config.wgt_exp_max, config.wgt_exp_min + max(0, k - (config.act.exp_max - config.act_exp_min)))
    return k - config.acc_frac - weight, weight


def machine_of(config, names, depthwise):
    """Memories with a program that makes the terms of some cases, each in all elements of a wide vector."""
    memories = Memories(config)
    text, vectors, words = [], 0, 0
    for number, name in enumerate(names):
        terms = powers(name, config.acc_register)
        shape = f"set_window kh=1 kw={len(terms)} stride_x=1" if depthwise else f"set_shape cols={len(terms)}"
        mode = ", mode=depthwise" if depthwise else ""
        text.append(f"{shape}\nv_rd narrow, {vectors}\nmv_mul {words}{mode}\nv_wr wide, {number}")
        for place, (sign, k) in enumerate(terms):
            x, weight = exponents(config, k)
            memories.narrow_mant[vectors + place], memories.narrow_exp[vectors + place] = sign, x
            if depthwise:  # the taps of a word share the exponent of a row
                word = words + place // config.lanes
                memories.matrix_mant[word, :, place % config.lanes] = 1 << weight - config.wgt_exp_min
                memories.matrix_exp[word] = config.wgt_exp_min
                continue
            first = words + place * config.steps
            memories.matrix_exp[first : first + config.steps] = weight
            for row in range(config.rows):
                step, lane = divmod(row % config.native, config.lanes)
                memories.matrix_mant[first + step, row, lane] = 1
        vectors += len(terms)
        words += -(-len(terms) // config.lanes) if depthwise else len(terms) * config.steps
    program = assemble("\n".join([*text, "halt"]))
    memories.program[: len(program)] = program
    return memories


def wanted(config, name):
    """The sum of a case, just beyond the register where it leaves it."""
    side = CASES[name][1]
    if side:
        return (1 << config.acc_register - 1) if side > 0 else -(1 << config.acc_register - 1) - 1
    return sum(sign << k for sign, k in powers(name, config.acc_register))


def blocks_of(config, name):
    """Operands of :func:`concord.golden.accumulate.accumulate` with one element per block."""
    terms = powers(name, config.acc_register)
    pairs = [exponents(config, k) for _, k in terms]
    mant = np.array([[sign] for sign, _ in terms])
    return mant, [x for x, _ in pairs], np.ones((1, len(terms), 1), dtype=int), [[w for _, w in pairs]]
