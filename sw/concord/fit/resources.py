"""What a configuration takes of an ECP5: block RAMs and multipliers exactly, logic and clock as fitted to builds.

The builds are the three with an ECP5 in ``docs/bench.md``. Estimates of LUTs are within :data:`LUT_ERROR` of them. That
is no error of other shapes, for more numbers were fitted than there are builds. The clock is the line with the least
squares of errors over the three, which are within :data:`CLOCK_ERROR`.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import linear_regression

from concord.spec.config import NpuConfig
from concord.spec.devices import ECP5_RAM_SHAPES, Device
from concord.spec.formats import BINARY16_WIDTH, Flag
from concord.spec.isa import WORD_BITS
from concord.spec.multipliers import lanes_in_logic, paired

#: Block RAMs of the link, beside those of the NPU.
LINK_RAMS = 2
#: LUTs of a row and of each of its lanes; of two rows' lane whose products share a multiplier; of a lane of the
#: multifunction units; of a write under way, in trackers and gates; of a bit of a wide word, in queues; of the rest.
ROW, LANE, PAIR, MFU_LANE, WRITE, WIDE_BIT, REST = 560, 39, 83, 2320, 134, 16.2, 8800
#: LUTs and MHz of builds, by preset.
BUILDS = {"ecp5-25f": (21_941, 96.82), "ecp5-85f": (41_274, 77.27), "ecp5-85f-256": (63_965, 65.27)}
#: Greatest errors of the estimates at these builds.
LUT_ERROR, CLOCK_ERROR = 0.04, 0.06
#: Share of the LUTs that a design can take and still be routed.
FULL = 0.95


@dataclass(frozen=True)
class Use:
    """What a configuration takes.

    Parameters
    ----------
    luts, clock_mhz : float
        Estimates.
    multipliers, rams : int
        Exact.
    """

    luts: float
    multipliers: int
    rams: int
    clock_mhz: float

    def fits(self, device: Device) -> bool:
        """Whether a device has as much."""
        return self.luts <= FULL * device.luts and self.multipliers <= device.multipliers and self.rams <= device.rams


def rams_of(width: int, depth: int) -> int:
    """Block RAMs of a memory, all of one shape."""
    return min(-(-depth // words) * -(-width // bits) for words, bits in ECP5_RAM_SHAPES)


def use_of(config: NpuConfig) -> Use:
    """What a configuration takes of an ECP5.

    Raises
    ------
    ValueError
        If it is element-serial: such a configuration is for other devices.
    """
    if config.serial:
        raise ValueError(f"config must not be element-serial, as {config.name} is")
    products, units = config.rows * config.lanes, 2 * config.mfu_lanes
    shared = products // 2 if paired(config) else 0
    multipliers = shared - config.rows // 2 * lanes_in_logic(config) if shared else products
    memories = [
        *[(config.matrix_row.width, config.matrix_depth)] * config.rows,
        (config.narrow_word.width, config.narrow_depth),
        (config.wide_word.width, config.wide_depth),
        (WORD_BITS, config.program_depth),
        *[(BINARY16_WIDTH, config.table_depth)] * units,
        (len(Flag), config.program_depth),
        *([(8, config.inbox)] if config.inbox else []),
    ]
    luts = (
        config.rows * (ROW + LANE * config.lanes) + PAIR * shared + MFU_LANE * config.mfu_lanes
        + WRITE * config.inflight + WIDE_BIT * config.wide_word.width + REST
    )  # fmt: skip
    return Use(luts, multipliers + units, sum(rams_of(*one) for one in memories) + LINK_RAMS, _clock_of(luts))


def _clock_of(luts: float) -> float:
    """MHz of a design with so many LUTs."""
    slope, offset = linear_regression(*zip(*BUILDS.values(), strict=True))
    return offset + slope * luts
