"""Division of the multipliers of a device by a configuration."""

from __future__ import annotations

from concord.spec.config import NpuConfig
from concord.spec.devices import ECP5_DEVICES
from concord.spec.operations import Op

#: Multipliers of the largest device of all families.
MOST_MULTIPLIERS = max(device.multipliers for device in ECP5_DEVICES.values())
#: Greatest widths of the shared operand and of the others, where two products share a multiplier.
PAIR_MOST_SHARED, PAIR_MOST_OTHER = 12, 8


def pairs_take(shared: int, other: int) -> bool:
    """True if two products may share a multiplier, with operands of these widths."""
    return shared in range(2, PAIR_MOST_SHARED + 1) and other in range(2, PAIR_MOST_OTHER + 1)


def mfu_multipliers(config: NpuConfig) -> int:
    """Multipliers of the multifunction units: one per lane of each, and two per lane that make codes."""
    return (4 if config.has(Op.VV_SCALE) else 2) * config.mfu_lanes


def paired(config: NpuConfig) -> bool:
    """True if two rows share their multipliers: with one for each product, no device would have enough.

    The multifunction units have some, too. The host alone writes rows in pairs, in parts; integer chains write lanes,
    and programs and copies whole rows.
    """
    if config.has(Op.I_RUN) or config.has(Op.M_WR) or config.has(Op.COPY):
        return False
    needed = config.rows * config.lanes + mfu_multipliers(config)
    return config.lanes % 2 == 0 and pairs_take(config.act_mant, config.wgt_mant) and needed > MOST_MULTIPLIERS


def lanes_in_logic(config: NpuConfig) -> int:
    """Lanes of a pair of rows whose multipliers are logic: those for which even pairs leave none."""
    missing = config.rows * config.lanes // 2 + mfu_multipliers(config) - MOST_MULTIPLIERS
    return min(config.lanes, max(0, -(-2 * missing // config.rows)))
