"""Configurations of the compiled RTL beside the presets.

Tests share them, as compiling one takes longer than most tests: each differs from ``TINY`` in more than one thing.
Only tests that are marked ``deep`` compile others than those of ``NAMED`` (:mod:`support.rtl_libraries`).
"""

from concord.spec.presets import ECP5_85F_256, TINY, UP5K, with_mantissas
from support.integer_contents import TRAIN_SMALL, TRAIN_WHOLE

#: With a feeder, memories for networks of some size, and mantissas above a byte.
FED = with_mantissas(
    TINY.replace(inbox=1024, max_payload=512, narrow_depth=2048, wide_depth=2048, matrix_depth=8192, program_depth=512),
    9,
).replace(name="tiny-fed")

#: For networks on codes.
FED_SCALING = FED.replace(name="tiny-fed-scaling", code_scaling=True, table_depth=1024, table_slots=8)

#: With room for several requests, which the host sends ahead of their replies, and for many results; and for codes.
FED_AHEAD = FED_SCALING.replace(name="tiny-ahead", request_buffer=4096, outbox=2048)

#: For codes that have an origin, as mantissas do not hold those of a byte less any zero point.
ORIGINS = FED_SCALING.replace(name="tiny-origins", act_mant=8, wgt_mant=8)

#: With several tile engines, and mantissas below a byte.
FOUR_ENGINES = with_mantissas(TINY.replace(engines=4), 7).replace(name="tiny-four")

#: With more elements than multipliers in a row, few vectors under way, mantissas of the least and the greatest width, a
#: feeder, and depths that are no powers of two, of which more than 32 words are in the last block RAM.
EIGHT = TINY.replace(
    name="tiny-eight", native=8, lanes=2, mfu_lanes=4, engines=2, inflight=4, act_mant=3, wgt_mant=12, inbox=512,
    matrix_depth=301, narrow_depth=77, wide_depth=67, program_depth=1071,
)  # fmt: skip

#: With windows that slide.
SLIDING = TINY.replace(
    name="tiny-sliding", lanes=4, window_taps=4, narrow_depth=512, wide_depth=512, program_depth=512, max_payload=512
)

#: With windows that slide in one of several tile engines.
ENGINES_AND_WINDOWS = TINY.replace(name="tiny-windows", lanes=4, engines=2, window_taps=4, narrow_depth=256)

#: With windows of 3 x 3 in rows that share their multipliers, as no device has one for each product.
NINE_TAPS = TINY.replace(
    name="tiny-nine", native=16, lanes=16, mfu_lanes=2, window_taps=9, matrix_depth=64, narrow_depth=256, inflight=8,
    wide_depth=128, program_depth=256, max_payload=256,
)  # fmt: skip

#: With windows of as many taps as lanes in rows of their own: mantissas are too wide to share multipliers.
SIXTEEN_TAPS = NINE_TAPS.replace(name="tiny-sixteen", window_taps=16, wgt_mant=9)

#: With codes of accumulators, windows that slide and several tile engines; mantissas hold asymmetric codes of a byte.
SCALING = ENGINES_AND_WINDOWS.replace(name="tiny-scaling", act_mant=9, code_scaling=True)

#: The same with accumulators that leave their bits often.
SCALING_NARROW = SCALING.replace(name="tiny-scaling-narrow", acc_width=26, mfu_lanes=1)

#: With a matrix memory that programs write.
WRITABLE = TINY.replace(name="tiny-writable", writable_matrix=True, narrow_depth=128, wide_depth=128, program_depth=256)

#: The same with several tile engines, and a format of weights that vectors leave at both ends.
WRITABLE_ENGINES = TINY.replace(
    name="tiny-writable-engines", writable_matrix=True, native=8, lanes=2, mfu_lanes=2, engines=2, wgt_exp_min=-9,
    wgt_exp_max=-5, acc_width=44, matrix_depth=128, narrow_depth=128,
)  # fmt: skip

#: The same with windows.
WRITABLE_WINDOWS = NINE_TAPS.replace(name="tiny-writable-windows", writable_matrix=True, mfu_lanes=4, narrow_depth=128)

#: With an external memory that is refreshed often.
COPYING = TINY.replace(name="tiny-copying", dram="sdram-32mb", dram_refresh=120, matrix_depth=512, program_depth=256)

#: The same with a matrix memory that programs write, several tile engines, and a column for each mantissa.
COPYING_ENGINES = WRITABLE_ENGINES.replace(
    name="tiny-copying-engines", dram="sdram-32mb", dram_refresh=77, act_mant=9, wgt_mant=9
)

#: The same with integer chains and codes, whose rows have lanes in memories of their own.
COPYING_LANES = TRAIN_SMALL.replace(name="train-copying", dram="sdram-32mb", dram_refresh=90, code_scaling=True)

#: With a register that sums of some terms leave, in several tile engines.
SHORT_REGISTER = TINY.replace(name="tiny-short", lanes=4, engines=2, acc_width=24, acc_register=24)

#: By bits of a mantissa, from the fewest to the most.
BY_MANTISSA = {
    config.act_mant: config for config in (with_mantissas(TINY, 3), FOUR_ENGINES, FED, with_mantissas(TINY, 12))
}

#: What tests compile that are not marked ``deep``.
NAMED = (
    TINY, UP5K, ECP5_85F_256, FED, FED_AHEAD, FOUR_ENGINES, EIGHT, SLIDING, NINE_TAPS, SCALING_NARROW, SHORT_REGISTER,
    WRITABLE, WRITABLE_ENGINES, WRITABLE_WINDOWS, TRAIN_SMALL, TRAIN_WHOLE, COPYING,
)  # fmt: skip
