"""What the pages decide, as programs: their text, and what they leave in memory from address 8 on or how they trap.

Memories before them are those of :func:`contract_memories`.
"""

from __future__ import annotations

from concord.golden import binary16
from concord.image import Memories
from concord.program.assembler import assemble
from concord.spec import isa
from concord.spec.config import NpuConfig
from concord.spec.formats import ExponentMode
from concord.spec.isa import Mem, Op, Trap
from concord.spec.memmap import RegionId

INF, MINUS_INF, NAN = 0x7C00, 0xFC00, 0x7E00
#: NaNs of other patterns: signalling, negative, all ones.
NANS = [0x7C01, 0xFE00, 0x7FFF, 0xFDFF]
#: Contents of table 0: infinities, and NaNs that are not the canonical one.
ENTRIES = [INF, MINUS_INF, 0x7C01, 0xFFFF]


def patterns(*numbers):
    """binary16."""
    return [int(bits) for bits in binary16.encode([float(x) for x in numbers])]


def contract_memories(config: NpuConfig, program: str | list[int]) -> Memories:
    """Memories for the programs below; N must be 4. Row tile r of the matrix is r + 1 times the unit matrix."""
    memories = Memories(config)
    words = assemble(program) if isinstance(program, str) else program
    memories.program[: len(words)] = words
    memories.wide[0] = patterns(1, 2, 3, 4)
    memories.wide[1] = NANS
    memories.wide[2] = patterns(0, 1, 2, 3)
    memories.wide[3] = patterns(5, 6, 7, 8)
    memories.wide[4] = patterns(0.3, 0.7, 1.1, 1.9)
    for at, values in enumerate(([1, 2, 3, 4], [10, 20, 30, 40], [50, 60, 70, 80])):
        memories.narrow_mant[at] = values
    memories.matrix_exp[:] = config.wgt_exp_max
    one = 1 << -config.wgt_exp_max
    for row in range(8):
        group, engine = divmod(row, config.engines)
        for element in range(4):
            part, lane = divmod(element, config.lanes)
            memories.matrix_mant[group * config.steps + part, engine * 4 + element, lane] = (row + 1) * one
    memories.table[:4] = ENTRIES
    slot = {field.name: 0 for field in config.table_slot.fields} | {"high": 3}
    memories.write(RegionId.SLOTS, 0, [config.table_slot.pack(**slot)])
    return memories


#: By the sentence that each shows: text, and binary16 vectors from wide address 8 on.
RESULTS = {
    "a copy keeps the pattern of a NaN": ("v_rd wide, 1\nv_wr wide, 8\nhalt", [NANS]),
    "an operation gives the canonical NaN": (
        "".join(
            f"v_rd wide, 1\n{operation}\nv_wr wide, {8 + k}\n"
            for k, operation in enumerate(
                [
                    *(f"{op} 0" for op in ("vv_mul", "vv_add", "vv_sub", "vv_rsub", "vv_max", "vv_min")),
                    *("v_relu", "v_max", "v_redmax"),
                ]
            )
        )
        + "halt",
        [[NAN] * 4] * 9,
    ),
    "a table gives its entries as they are": ("v_rd wide, 2\nv_tbl 0\nv_wr wide, 8\nv_wr narrow, 8\nhalt", [ENTRIES]),
    "cols does not matter to maxima, copies and depthwise products": (
        """
        set_shape rows=1 cols=3
        v_rd narrow, 0
        v_max
        v_wr wide, 8
        v_rd narrow, 0
        v_redmax
        v_wr wide, 9
        v_rd narrow, 0
        v_wr wide, 10
        v_rd narrow, 0
        mv_mul 0, mode=depthwise
        v_wr wide, 11
        halt
        """,
        [patterns(1, 2, 3, 4), patterns(4, 4, 4, 4), patterns(1, 2, 3, 4), patterns(1, 0, 0, 0)],
    ),
    "a maximum without a tap inside is -inf, a product +0": (
        """
        set_window kh=2 kw=2
        set_pad y0=5 height=2 width=2
        v_rd wide, 0
        v_max
        v_wr wide, 8
        v_rd narrow, 0
        v_redmax
        v_wr wide, 9
        v_rd narrow, 0
        mv_mul 0
        v_wr wide, 10
        v_rd narrow, 0
        mv_mul 0, mode=depthwise
        v_wr wide, 11
        halt
        """,
        [[MINUS_INF] * 4, [MINUS_INF] * 4, [0] * 4, [0] * 4],
    ),
    "vector addresses count modulo 2^14, those of the matrix modulo 2^18": (
        """
        set_addr 1, 16383
        set_addr 2, 0x3ffff
        v_rd narrow, 2, reg=1
        mv_mul 1, reg=2
        v_wr wide, 9, reg=1
        set_iters inner=2
        set_window kw=2 stride_x=1
        set_pad x0=-1 height=1 width=3
        v_rd narrow, 16383, inner=1     # the left neighbour of address 0 is never read
        v_max
        v_wr wide, 9, inner=1
        halt
        """,
        [patterns(10, 20, 30, 40), patterns(1, 2, 3, 4), patterns(10, 20, 30, 40)],
    ),
}

_CHAIN = [isa.encode(Op.V_RD, mem=Mem.WIDE), *(isa.encode(Op.V_WR, mem=mem, addr=8) for mem in (Mem.WIDE, Mem.NARROW))]

#: Words, and how the program ends.
TRAPS = {
    "a third v_wr, wide": ([*_CHAIN, isa.encode(Op.V_WR, mem=Mem.WIDE, last=1)], Trap.CHAIN_ORDER, 3),
    "a third v_wr, narrow": ([*_CHAIN, isa.encode(Op.V_WR, mem=Mem.NARROW, last=1)], Trap.CHAIN_ORDER, 3),
    "set_quant exp is checked in dynamic mode, too": (
        [isa.encode(Op.SET_QUANT, mode=ExponentMode.DYNAMIC, exp=-16), isa.encode(Op.HALT)],
        Trap.BAD_FIELD,
        0,
    ),
}

#: Two programs: the one at 0 sets everything, the one at ``SECOND`` must not notice.
STATE = """
set_addr 1, 3
set_shape rows=2 cols=2
set_iters inner=2 outer=2
set_window kh=2 kw=2 stride_y=1 stride_x=1 dil_y=2 dil_x=2
set_pad y0=-1 x0=-1 step_y=2 step_x=2 height=1 width=1
set_quant static exp=5 rounding=nearest_away
loop count=3
halt
v_rd narrow, 0, reg=1, row=1, inner=1, outer=1
v_max
v_wr wide, 8, reg=1, row=1, inner=1, outer=1
v_wr narrow, 8
loop count=2
nop
end_loop
halt
"""
SECOND = 8
#: The noise begins again: both starts convert to the same codes; a second conversion in the same run does not.
NOISE = """
set_quant rounding=stochastic
v_rd wide, 4
v_wr narrow, {}
v_rd wide, 4
v_wr narrow, {}
halt
"""
