"""Resources that a configuration takes: multipliers and memories exactly, logic and clock as fitted to builds.

LUTs of an ECP5 are those with carry chains as synthesis makes them. They were fitted to builds of ``ecp5-25f``,
``ecp5-85f`` and ``ecp5-85f-256``, and what options take was counted after synthesis. The clock is the line with the
least squares of errors of the records (:data:`ECP5_BUILDS`). :func:`greatest_errors` says how far estimates are from
these; other shapes may be further away.

Builds with an iCE40 are the preset ``up5k`` and configurations like it with fewer lanes or narrower mantissas, with
seed 1. Logic cells are within :data:`ICE40_LUT_ERROR` of them. The clock is that of the board, for which the PLL is set
before place and route; all builds reach it.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import linear_regression

from concord.spec.blocks import LEAST_RAM_WORDS, Blocks, banks_of, blocks_of, lacks
from concord.spec.boards import BOARD_SPECS
from concord.spec.builds import BUILDS, Build
from concord.spec.config import NpuConfig
from concord.spec.devices import ECP5_DEVICES, FpgaDevice
from concord.spec.multipliers import paired
from concord.spec.operations import Op
from concord.spec.presets import PRESETS

#: LUTs of a row and of each of its lanes; of two rows' lane whose products share a multiplier; of a register of windows
#: in a row; of a lane of the multifunction units; of a write under way, in trackers and gates; of a bit of a wide word,
#: in queues; of the rest.
ROW, LANE, PAIR, WINDOW, MFU_LANE, WRITE, WIDE_BIT, REST = 560, 39, 55, 9, 2320, 134, 16.2, 8400
#: LUTs of 16 words of 4 bits in logic; of what makes codes in a lane: the multifunction unit with it, less the one
#: without; and of what lets programs write the matrix memory of ``ecp5-85f``, after synthesis. They were not fitted.
LOGIC_RAM, LOGIC_RAM_WORDS, LOGIC_RAM_BITS, SCALE_LANE, MATRIX_WRITE = 6, 16, 4, 450, 406
#: LUTs of the feeder, which REST counts and a configuration without an inbox has not: its part of ``ecp5-85f-256``.
#: Of the integer engine a lane with its part of the lazy update and of the words, and the rest, from the engines with
#: four lanes and with two (``python -m concord_rtl.build integers``, with ``--config``). A carry cell is two LUTs, a
#: cell of LUT RAM six. All are counts after synthesis, and were not fitted.
FEEDER, INTEGER_LANE, INTEGER_REST = 2830, 2920, 6330
#: LUTs of the external memory: those that ``ecp5-85f`` takes more with it after synthesis (``python -m
#: concord_rtl.build area --whole --accumulators 0``). A carry cell is two LUTs, a cell of LUT RAM six.
EXTERNAL_MEMORY = 1880
#: Records of builds with an ECP5.
ECP5_BUILDS = tuple(build for build in BUILDS if build.board in ECP5_DEVICES)
#: Share of the LUTs that short carry chains save: 3 % of ``ecp5-85f``, 7 % of ``ecp5-85f-256``.
SHORT_CHAINS = 0.05
#: Lanes, bits of the mantissas of activations and of weights, logic cells and MHz of builds with an iCE40 beside
#: ``up5k``.
ICE40_BUILDS = ((2, 8, 7, 5055, 25.90), (1, 8, 7, 4989, 28.72), (4, 6, 6, 5148, 27.61))
#: Logic cells of a lane, of a bit of a mantissa, and of the rest.
ICE40_LANE, ICE40_BIT, ICE40_REST = 67, 14, 4712
#: Greatest error of the estimate at these builds.
ICE40_LUT_ERROR = 0.004
#: Share of the LUTs that a design can take and still be routed, and of the logic cells of an iCE40.
FULL, ICE40_FULL = 0.95, 0.99
#: Logic cells of an ECP5 above which the router runs out of wires: it got to an end with 58,064, and not with 65,062.
ROUTABLE = 60_000


@dataclass(frozen=True)
class Use:
    """Resources that a configuration takes of an FPGA.

    Parameters
    ----------
    luts, clock_mhz : float
        Estimates.
    blocks : Blocks
        Multipliers and memories, exactly.
    full : float
        Share of the LUTs of a device that it may take.
    """

    luts: float
    clock_mhz: float
    blocks: Blocks
    full: float = FULL

    def fits(self, device: FpgaDevice) -> bool:
        """True if a device has as much, and wires enough to connect it."""
        return self.luts <= min(self.full * device.luts, ROUTABLE) and not lacks(self.blocks, device)


def use_of(config: NpuConfig) -> Use:
    """Resources that a configuration takes: of an iCE40 if it is element-serial, else of an ECP5."""
    blocks = blocks_of(config)
    if config.serial:
        return Use(_ice40_luts(config), BOARD_SPECS["icebreaker"].clock_hz / 1e6, blocks, ICE40_FULL)
    shared = config.rows * config.lanes // 2 if paired(config) else 0
    luts = (
        config.rows * (ROW + LANE * config.lanes)
        + PAIR * shared
        + WINDOW * config.native * config.window_taps
        + MFU_LANE * config.mfu_lanes
        + WRITE * config.inflight
        + WIDE_BIT * config.wide_word.width
        + REST
        + config.rows * _logic_luts(config.matrix_row.width, config.matrix_depth)
        + (SCALE_LANE * config.mfu_lanes if config.has(Op.VV_SCALE) else 0)
        + (MATRIX_WRITE if config.has(Op.M_WR) else 0)
        + (EXTERNAL_MEMORY if config.has(Op.COPY) else 0)
        + _integer_luts(config)
        - (0 if config.inbox else FEEDER)
    )
    return Use(luts, _clock_of(luts), blocks)


def built_luts(build: Build) -> float:
    """LUTs of a build with an ECP5 if its carry chains were as synthesis makes them."""
    return build.cells / (1 - SHORT_CHAINS) if build.short_chains else build.cells


def greatest_errors() -> tuple[float, float]:
    """Greatest relative errors of LUTs and clock at the records."""
    uses = [(build, use_of(PRESETS[build.preset])) for build in ECP5_BUILDS]
    luts = max(abs(use.luts / built_luts(build) - 1) for build, use in uses)
    return luts, max(abs(use.clock_mhz / build.reached_mhz - 1) for build, use in uses)


def _logic_luts(width: int, depth: int) -> int:
    """LUTs of that bank of a memory that is too small for block RAM."""
    last = banks_of(depth)[-1]
    if last >= LEAST_RAM_WORDS:
        return 0
    return LOGIC_RAM * -(-last // LOGIC_RAM_WORDS) * -(-width // LOGIC_RAM_BITS)


def _integer_luts(config: NpuConfig) -> int:
    """LUTs of the integer engine."""
    return INTEGER_REST + INTEGER_LANE * config.mfu_lanes if config.has(Op.I_RUN) else 0


def _clock_of(luts: float) -> float:
    """MHz of an ECP5 design with so many LUTs."""
    points = [(built_luts(build), build.reached_mhz) for build in ECP5_BUILDS]
    slope, offset = linear_regression(*zip(*points, strict=True))
    return offset + slope * luts


def _ice40_luts(config: NpuConfig) -> float:
    """Logic cells of an element-serial configuration."""
    return ICE40_REST + ICE40_LANE * config.lanes + ICE40_BIT * (config.act_mant + config.wgt_mant)
