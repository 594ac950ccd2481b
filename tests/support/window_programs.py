"""Programs whose windows fill the queue of the window unit, or reach over the border of the image."""

from __future__ import annotations

import numpy as np

from concord.image import Memories
from concord.program.assembler import assemble
from concord.spec.presets import TINY

CONFIG = TINY.replace(native=8, lanes=8, mfu_lanes=4, window_taps=6, matrix_depth=64, narrow_depth=128)
#: Windows of 3 x 2 over lines of 32 words, three new words each. Word 78, the last line's in column 14, comes from a
#: chain whose operand comes from another one: it is read when the queue is full, and written much later.
FULL = """
v_rd wide, 0
v_relu unit=1
v_wr wide, 30
v_rd wide, 1
vv_add 30, unit=1
v_wr narrow, 78
set_iters 23
set_window kh=3, kw=2, stride_y=32, stride_x=1
v_rd narrow, 0, inner=1
mv_mul 0, mode=depthwise, sliding=1
v_wr wide, 32, inner=1
halt
"""
#: Windows of 2 x 3 with a border on all sides.
BORDERS = """
set_iters 10, 3
set_window kh=2, kw=3, stride_y=8, stride_x=1
set_pad y0=-1, x0=-1, step_y=1, step_x=1, height=2, width=8
v_rd narrow, 9, inner=1, outer=8
mv_mul 0, mode=depthwise, sliding=1
v_wr wide, 16, inner=1, outer=10
halt
"""


def memories_of(text: str, exponents=None) -> Memories:
    """Memories with a program and random words.

    The narrow words have one of some exponents, or six different ones in every window of :data:`FULL`.
    """
    draw, memories = np.random.default_rng(2), Memories(CONFIG)
    words = assemble(text)
    memories.program[: len(words)] = words
    memories.narrow_mant[:] = draw.integers(-99, 100, memories.narrow_mant.shape)
    places = np.arange(CONFIG.narrow_depth)
    memories.narrow_exp[:] = -9 + 2 * (places // 32) + places % 2
    if exponents is not None:
        memories.narrow_exp[:] = draw.choice(exponents, len(places))
    memories.matrix_mant[:] = draw.integers(-99, 100, memories.matrix_mant.shape)
    memories.wide[:32] = draw.integers(0x3000, 0x5000, (32, CONFIG.native))
    return memories
