"""Which parameters a configuration may have."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from concord.spec.formats import ACT_MANT_MAX, HALF_EXP_MAX, HALF_EXP_MIN, HALF_FRAC, MANT_MAX, MANT_MIN
from concord.spec.isa import MATRIX_ADDR_BITS, VECTOR_ADDR_BITS
from concord.spec.link import TARGET

if TYPE_CHECKING:
    from concord.spec.config import NpuConfig

#: Greatest number of instruction words.
PROGRAM_DEPTH_MAX = 4096
#: Least number of bits of an accumulator.
ACC_WIDTH_MIN = 8


def check(config: NpuConfig) -> None:
    """Refuse a configuration that no NPU can be made of.

    Raises
    ------
    TypeError
        If a parameter is no integer and must be one.
    ValueError
        If a parameter is out of its range, or does not go with the others.
    """
    for field in fields(config):
        value = getattr(config, field.name)
        if field.type == "int" and (not isinstance(value, int) or isinstance(value, bool)):
            raise TypeError(f"{field.name} must be an integer, not {value!r}")
    _check_shape(config)
    _check_numbers(config)
    _check_depths(config)


def _require(config: NpuConfig, name: str, rule: str, ok: bool) -> None:
    if not ok:
        raise ValueError(f"{name} must be {rule}, not {getattr(config, name)!r}")


def _check_shape(config: NpuConfig) -> None:
    n = config.native
    _require(config, "native", "a power of two in 4..64", 4 <= n <= 64 and n & (n - 1) == 0)
    _require(config, "lanes", f"a divisor of native={n}", config.lanes >= 1 and n % config.lanes == 0)
    _require(config, "engines", "1, 2, 4 or 8", config.engines in (1, 2, 4, 8))
    lanes_ok = 1 <= config.mfu_lanes <= n // 2 and n % config.mfu_lanes == 0
    _require(config, "mfu_lanes", f"a divisor of native={n} and at most {n // 2}", lanes_ok)
    if config.serial:
        for name, value in (("engines", 1), ("mfu_lanes", 1), ("stochastic", False)):
            _require(config, name, f"{value} in a serial configuration", getattr(config, name) == value)


def _check_numbers(config: NpuConfig) -> None:
    act, wgt = f"in {MANT_MIN}..{ACT_MANT_MAX}, so that every code is a binary16 number", f"in {MANT_MIN}..{MANT_MAX}"
    _require(config, "act_mant", act, MANT_MIN <= config.act_mant <= ACT_MANT_MAX)
    _require(config, "wgt_mant", wgt, MANT_MIN <= config.wgt_mant <= MANT_MAX)
    # Blocks of subnormal numbers all clamp, so converters never normalise one.
    low = HALF_EXP_MIN - (config.act_mant - 2)
    act_ok = low <= config.act_exp_min < config.act.exp_max
    _require(config, "act_exp_min", f"in {low}..{config.act.exp_max - 1}", act_ok)
    _require(
        config, "wgt_exp_min", f"at most wgt_exp_max={config.wgt_exp_max}", config.wgt_exp_min <= config.wgt_exp_max
    )
    _require(config, "wgt_exp_min", "at least -31", config.wgt_exp_min >= -31)
    _require(config, "wgt_exp_max", "at most 8", config.wgt_exp_max <= 8)
    _require(config, "acc_width", f"in {ACC_WIDTH_MIN}..{config.full_bits}",
             ACC_WIDTH_MIN <= config.acc_width <= config.full_bits)  # fmt: skip
    if config.acc_register:
        _require(config, "acc_register", "0 in a serial configuration", not config.serial)
        least, most = max(config.acc_width, config.lane_dot_bits), config.full_bits - 1
        rule = f"0, which is {most + 1} bits here, or in {least}..{most}"
        _require(config, "acc_register", rule, least <= config.acc_register <= most)
    if config.serial:
        # Sums of two binary16 numbers are on the same grid as products.
        most = -HALF_FRAC - config.act_exp_min
        _require(config, "wgt_exp_min", f"at most {most} in a serial configuration", config.wgt_exp_min <= most)
        least = config.acc_frac + HALF_EXP_MAX + 3
        _require(config, "acc_width", f"at least {least} in a serial configuration", config.acc_width >= least)
    _require(config, "max_terms", "a power of two in 1..4096", config.max_terms in {1 << k for k in range(13)})


def _check_depths(config: NpuConfig) -> None:
    limits = {"matrix_depth": MATRIX_ADDR_BITS, "narrow_depth": VECTOR_ADDR_BITS, "wide_depth": VECTOR_ADDR_BITS}
    for name, bits in limits.items():
        _require(config, name, f"in 16..{1 << bits}", 16 <= getattr(config, name) <= 1 << bits)
    most = (1 << TARGET["addr"].width) // config.rows
    rule = f"at most {most} with {config.rows} rows a word: a link address has {TARGET['addr'].width} bits"
    _require(config, "matrix_depth", rule, config.matrix_depth <= most)
    rule = f"in 16..{PROGRAM_DEPTH_MAX}"
    _require(config, "program_depth", rule, 16 <= config.program_depth <= PROGRAM_DEPTH_MAX)
    _require(config, "table_depth", "a power of two in 16..4096", config.table_depth in {1 << k for k in range(4, 13)})
    _require(config, "table_slots", "in 1..16", 1 <= config.table_slots <= 16)
    _require(config, "inflight", "a power of two in 4..32", config.inflight in {4, 8, 16, 32})
    _require(config, "loop_levels", "in 1..4", 1 <= config.loop_levels <= 4)
    words = max(config.narrow_word.nbytes, config.wide_word.nbytes, config.matrix_row.nbytes)
    _require(config, "max_payload", f"in {words + 8}..4096", words + 8 <= config.max_payload <= 4096)
    sizes = {0} | {1 << k for k in range(7, 16) if config.max_payload <= 1 << k}
    _require(config, "inbox", f"0 or a power of two in {config.max_payload}..32768", config.inbox in sizes)
