"""Configurations of the compiled RTL beside the presets.

Tests share them, as compiling one takes longer than most tests: each differs from ``TINY`` in more than one thing.
"""

from concord.spec.presets import TINY, with_mantissas

#: With a feeder, memories for networks of some size, and mantissas above a byte.
FED = with_mantissas(
    TINY.replace(inbox=1024, max_payload=512, narrow_depth=2048, wide_depth=2048, matrix_depth=8192, program_depth=512),
    9,
).replace(name="tiny-fed")

#: With several tile engines, and mantissas below a byte.
FOUR_ENGINES = with_mantissas(TINY.replace(engines=4), 7).replace(name="tiny-four")

#: With more elements than multipliers in a row, few vectors under way, and mantissas of two widths.
EIGHT = TINY.replace(
    name="tiny-eight", native=8, lanes=2, mfu_lanes=4, engines=2, inflight=4, matrix_depth=128, act_mant=5, wgt_mant=9
)

#: With windows that slide.
SLIDING = TINY.replace(
    name="tiny-sliding", lanes=4, window_taps=4, narrow_depth=512, wide_depth=512, program_depth=512, max_payload=512
)

#: By bits of a mantissa, from the fewest to the most.
BY_MANTISSA = {
    config.act_mant: config for config in (with_mantissas(TINY, 3), FOUR_ENGINES, FED, with_mantissas(TINY, 12))
}
