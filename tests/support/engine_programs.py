"""Programs whose rows write what other rows of their group read."""

from __future__ import annotations

from concord.image import Memories
from concord.program.assembler import assemble
from concord.spec.config import NpuConfig

#: Row 0 overwrites the source of both rows.
FEEDBACK = """
set_shape rows=2 cols=1
v_rd narrow, 2
mv_mul 0
v_wr narrow, 2, row=-1
v_wr wide, 4, row=1
halt
"""
#: Besides, every row adds what the row before has written.
SOURCE_AND_OPERAND = """
set_shape rows=2 cols=1
v_rd narrow, 2
mv_mul 0
vv_add 8, row=1
v_wr narrow, 2, row=-1
v_wr wide, 9, row=1
halt
"""
#: The ``row`` stride of the source acts T times per group.
STRIDE = """
set_shape rows=8
v_rd narrow, 2, row=1
mv_mul 0
v_wr wide, 16, row=1
halt
"""


def feedback_memories(config: NpuConfig, text: str) -> Memories:
    """Such a program, k times the vector 1, 2, 3, 4 at narrow 1 + k, and row r of the matrix r + 2 times the unit."""
    memories = Memories(config)
    words = assemble(text)
    memories.program[: len(words)] = words
    for k in range(1, 9):
        memories.narrow_mant[1 + k] = [k * x for x in (1, 2, 3, 4)]
    memories.matrix_exp[:] = 0
    for row in range(8):
        group, engine = divmod(row, config.engines)
        for element in range(config.native):
            part, lane = divmod(element, config.lanes)
            memories.matrix_mant[group * config.steps + part, engine * config.native + element, lane] = row + 2
    return memories
