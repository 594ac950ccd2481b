"""Multipliers and memories that a configuration takes, exactly.

An element-serial configuration is counted on an iCE40, any other one on an ECP5: these are the devices they are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord.spec.config import SERIAL_ROWS, NpuConfig
from concord.spec.devices import (
    DEVICES,
    ECP5_RAM_SHAPES,
    ICE40_DEVICES,
    ICE40_RAM_SHAPES,
    SINGLE_PORT_RAM_SHAPE,
    FpgaDevice,
)
from concord.spec.feeder import CODE_PAGE
from concord.spec.formats import BINARY16_WIDTH, Flag
from concord.spec.isa import WORD_BITS
from concord.spec.multipliers import lanes_in_logic, mfu_multipliers, paired
from concord.spec.operations import Op

#: Words below which a memory of an ECP5 is logic.
LEAST_RAM_WORDS = 128
#: Block RAMs of the link on an ECP5, beside those of the NPU: of the payload of a request, and of the outbox.
_ECP5_LINK = 2
#: Multipliers of a lane of integer chains, and block RAMs of tensor registers.
_INTEGER_MULTIPLIERS, _TENSOR_RAMS = 2, 3
#: Block RAMs on an iCE40 that no parameter changes: registers, descriptors of tables, addresses, elements of a vector,
#: instructions that are made, and the link.
_ICE40_REST = 2 + 3 + 5 + 1 + 1 + 1
#: Bits of an operand up to which two products share a multiplier of an iCE40.
_ICE40_HALF = 8
#: Multipliers of an iCE40 that shift products onto the grid, and that of the multifunction unit.
_ICE40_OTHERS = SERIAL_ROWS + 1
#: Single-port RAMs of an iCE40 UP.
_SINGLE_PORT_RAMS = min(device.single_port_rams for device in ICE40_DEVICES.values())


@dataclass(frozen=True)
class Blocks:
    """Multipliers, block RAMs, and RAMs with a single port."""

    multipliers: int
    rams: int
    single_port_rams: int = 0


def rams_of(width: int, depth: int, shapes: Sequence[tuple[int, int]] = ICE40_RAM_SHAPES) -> int:
    """Block RAMs of a memory, all of one of these shapes: words, and bits of a word."""
    return min(-(-depth // words) * -(-width // bits) for words, bits in shapes)


def banks_of(depth: int) -> list[int]:
    """Words of the banks of a memory of an ECP5: powers of two, the greatest first, and a last one of any size."""
    least, most = ECP5_RAM_SHAPES[0][0], ECP5_RAM_SHAPES[-1][0]
    banks = []
    while depth > 0:
        bank = min(most, 1 << (depth.bit_length() - 1))
        banks.append(depth if bank < least else bank)
        depth -= banks[-1]
    return banks


def banked_rams_of(width: int, depth: int) -> int:
    """Block RAMs of an ECP5 for a memory in banks, of which a small one is logic."""
    large = [bank for bank in banks_of(depth) if bank >= LEAST_RAM_WORDS]
    return sum(-(-width // next(bits for words, bits in ECP5_RAM_SHAPES if words >= bank)) for bank in large)


def in_single_port_rams(config: NpuConfig) -> bool:
    """True if single-port RAMs hold the matrix memory of an element-serial configuration: all of it or nothing."""
    words, bits = SINGLE_PORT_RAM_SHAPE
    pairs = config.matrix_depth * config.rows // SERIAL_ROWS
    return SERIAL_ROWS * -(-config.matrix_row.width // bits) <= _SINGLE_PORT_RAMS and pairs <= words


def blocks_of(config: NpuConfig) -> Blocks:
    """Multipliers and memories of a configuration with its link, on the family it is for."""
    return _on_ice40(config) if config.serial else _on_ecp5(config)


def code_book_in_ram(config: NpuConfig) -> bool:
    """True if the code book of a feeder is in block RAM.

    It is if it has several pages, which are too large for logic, and if rows share multipliers, which fills the logic.
    """
    return bool(config.inbox) and (config.code_pages > 1 or paired(config))


def shortage(config: NpuConfig, board: str) -> str:
    """Blocks that a board has too few of for a configuration, in words; empty if there are enough.

    Parameters
    ----------
    config : NpuConfig
        The configuration.
    board : str
        Name in :data:`concord.spec.devices.DEVICES`.
    """
    if config.serial != (board in ICE40_DEVICES):
        return ""
    lacking = lacks(blocks_of(config), DEVICES[board])
    more = ""
    if config.serial and not in_single_port_rams(config):
        words, bits = SINGLE_PORT_RAM_SHAPE
        most = _SINGLE_PORT_RAMS // SERIAL_ROWS
        more = (
            f", as its matrix memory does not fit into the single-port RAMs: these hold {SERIAL_ROWS * words:,} rows "
            f"of {most * bits} bits, and it has {config.matrix_depth * config.rows:,} of {config.matrix_row.width}"
        )
    return f"{config.name} needs {lacking}{more}" if lacking else ""


def shortages(config: NpuConfig) -> list[str]:
    """Blocks that the board of a configuration lacks, in a line; none if the board is not known, or has enough."""
    text = shortage(config, config.board) if config.board in DEVICES else ""
    return [f"does not fit on {config.board}: {text}"] if text else []


def lacks(blocks: Blocks, device: FpgaDevice) -> str:
    """Blocks that a device has too few of, in words; empty if it has enough."""
    counts = {
        "multipliers": (blocks.multipliers, device.multipliers),
        "block RAMs": (blocks.rams, device.rams),
        "single-port RAMs": (blocks.single_port_rams, device.single_port_rams),
    }
    return " and ".join(f"{need} {what} of {have}" for what, (need, have) in counts.items() if need > have)


def _on_ecp5(config: NpuConfig) -> Blocks:
    products, units = config.rows * config.lanes, 2 * config.mfu_lanes
    shared = products // 2 if paired(config) else 0
    multipliers = shared - config.rows // 2 * lanes_in_logic(config) if shared else products
    memories = [
        *_matrix_memories(config),
        (config.narrow_word.width, config.narrow_depth),
        (config.wide_word.width, config.wide_depth),
        (WORD_BITS, config.program_depth),
        *[(BINARY16_WIDTH, config.table_depth)] * units,
        (len(Flag), config.program_depth),
        *[(8, depth) for depth in (config.request_buffer, config.inbox) if depth],
        *([(BINARY16_WIDTH, config.code_pages * CODE_PAGE)] if code_book_in_ram(config) else []),
    ]
    multipliers += mfu_multipliers(config) + (_INTEGER_MULTIPLIERS * config.mfu_lanes if config.has(Op.I_RUN) else 0)
    others = _ECP5_LINK + (_TENSOR_RAMS - (not config.inbox) if config.has(Op.I_RUN) else 0)  # then there is no outbox
    return Blocks(multipliers, sum(banked_rams_of(*memory) for memory in memories) + others)


def _matrix_memories(config: NpuConfig) -> list[tuple[int, int]]:
    """Bits and words of the memories that make up that of the matrices: of rows, or with integer chains of lanes."""
    if not config.has(Op.I_RUN):
        return [(config.matrix_row.width, config.matrix_depth)] * config.rows
    lanes = [config.wgt_mant + (lane < config.wgt_exp_width) for lane in range(config.lanes)]
    return [(bits, config.matrix_depth) for bits in lanes] * config.rows


def _on_ice40(config: NpuConfig) -> Blocks:
    together = 2 if max(config.act_mant, config.wgt_mant) <= _ICE40_HALF else 1
    multipliers = SERIAL_ROWS * -(-config.lanes // together) + _ICE40_OTHERS
    memories = [
        *[(config.act_mant, config.narrow_depth)] * config.native,
        (config.act_exp_width, config.narrow_depth),
        *[(BINARY16_WIDTH, config.wide_depth)] * config.native,
        (WORD_BITS, config.program_depth),
        (len(Flag), config.program_depth),
        (BINARY16_WIDTH, config.table_depth),
        *([(8, config.request_buffer)] if config.request_buffer else []),
    ]
    single = 0
    if in_single_port_rams(config):
        single = SERIAL_ROWS * -(-config.matrix_row.width // SINGLE_PORT_RAM_SHAPE[1])
    else:
        memories += [(config.matrix_row.width, config.matrix_depth * config.rows // SERIAL_ROWS)] * SERIAL_ROWS
    rams = sum(rams_of(*memory) for memory in memories) + _ICE40_REST
    return Blocks(multipliers, rams, single)
