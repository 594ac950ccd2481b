"""Regions and registers that the host reaches over the link.

An address counts words of its region; a word travels as ``Layout.nbytes`` bytes, little endian, unused high bits zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from concord.spec.config import NpuConfig
from concord.spec.dram import PHASE_BITS
from concord.spec.feeder import CODE_PAGE, SCRIPT_DEPTH, SCRIPT_WORD
from concord.spec.fields import Field, Layout
from concord.spec.formats import Flag
from concord.spec.integers import FACTOR_WORD, FACTORS, TENSOR_WORD, TENSORS, UPDATE_COUNTERS
from concord.spec.isa import WORD_BITS
from concord.spec.operations import Op


class RegionId(IntEnum):
    """Region numbers on the link."""

    REGS = 0
    PROGRAM = 1
    MATRIX = 2
    NARROW = 3
    WIDE = 4
    TABLE = 5
    SLOTS = 6
    FLAGS = 7
    CODES = 8
    SCRIPT = 9
    INBOX = 10
    OUTBOX = 11
    TENSORS = 12
    FACTORS = 13
    UPDATES = 14
    DRAM = 15


#: Regions of every core, of the feeder, and of integer chains.
CORE_REGIONS = tuple(region for region in RegionId if region <= RegionId.FLAGS)
FEEDER_REGIONS = (RegionId.CODES, RegionId.SCRIPT, RegionId.INBOX, RegionId.OUTBOX)
INTEGER_REGIONS = (RegionId.TENSORS, RegionId.FACTORS, RegionId.UPDATES)


def core_span(config: NpuConfig) -> int:
    """Greatest number of a region that the core has, plus one."""
    return 1 + max(region for region in regions(config) if region not in FEEDER_REGIONS)


@dataclass(frozen=True)
class Region:
    """One addressable memory.

    Parameters
    ----------
    id : RegionId
        Number on the link.
    word : Layout
        One word.
    depth : int
        Words. Addresses of the outbox have two parts (:data:`concord.spec.feeder.OUTBOX_ADDRESS`), and may be any.
    readable, writable : bool
        What the host may do; of the registers it may write CONTROL only, whatever ``writable`` says.
    live : bool
        Whether it can be read and written while a program runs; otherwise the device answers ``BUSY``.
    doc : str
        One line for the reference page.
    """

    id: RegionId
    word: Layout
    depth: int
    live: bool
    doc: str
    readable: bool = True
    writable: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of one word on the link."""
        return self.word.nbytes


def _scalar(name: str, width: int) -> Layout:
    return Layout((Field(name, width),))


def regions(config: NpuConfig) -> dict[RegionId, Region]:
    """The regions of one configuration."""
    table = (
        Region(
            RegionId.REGS, _scalar("value", 32), len(REGISTERS), True, "Status and control registers.", writable=False
        ),
        Region(RegionId.PROGRAM, _scalar("word", WORD_BITS), config.program_depth, False, "Instruction words."),
        Region(
            RegionId.MATRIX,
            config.matrix_row,
            config.matrix_depth * config.rows,
            False,
            "Weights; address = matrix word * T*N + row.",
        ),
        Region(RegionId.NARROW, config.narrow_word, config.narrow_depth, True, "Narrow vectors."),
        Region(RegionId.WIDE, config.wide_word, config.wide_depth, True, "Wide vectors."),
        Region(RegionId.TABLE, _scalar("value", 16), config.table_depth, False, "Table entries, binary16."),
        Region(RegionId.SLOTS, config.table_slot, config.table_slots, False, "Table descriptors.", readable=False),
        Region(
            RegionId.FLAGS,
            _scalar("flags", len(Flag)),
            config.program_depth,
            False,
            "Sticky flags of the chain whose v_rd has this address.",
        ),
    )
    feeder = _feeder_regions(config) if config.inbox else ()
    integers = _integer_regions() if config.has(Op.I_RUN) else ()
    dram = _dram_regions(config) if config.has(Op.COPY) else ()
    return {region.id: region for region in (*table, *feeder, *integers, *dram)}


def _dram_regions(config: NpuConfig) -> tuple[Region, ...]:
    """Regions of a configuration with an external memory."""
    part = config.sdram
    return (
        Region(RegionId.DRAM, _scalar("column", part.width), part.columns, False, "Columns of the external memory."),
    )


def _integer_regions() -> tuple[Region, ...]:
    """Regions of a configuration with integer chains."""
    tensors, factors = "Exponents and greatest magnitudes of tensors.", "Factors of integer chains."
    counts = f"Counters of updates, which count on: {', '.join(UPDATE_COUNTERS)}."
    return (
        Region(RegionId.TENSORS, TENSOR_WORD, TENSORS, False, tensors),
        Region(RegionId.FACTORS, FACTOR_WORD, FACTORS, False, factors, readable=False),
        Region(RegionId.UPDATES, _scalar("count", 32), len(UPDATE_COUNTERS), False, counts),
    )


def _feeder_regions(config: NpuConfig) -> tuple[Region, ...]:
    """Regions of a configuration with a feeder."""
    numbers, bytes_in = "Binary16 numbers that raw elements of a byte stand for.", "Raw inputs, appended at address 0."
    bytes_out = "Results, as many as are there; an address has two parts."
    return (
        Region(RegionId.CODES, _scalar("value", 16), config.code_pages * CODE_PAGE, False, numbers, readable=False),
        Region(RegionId.SCRIPT, SCRIPT_WORD, SCRIPT_DEPTH, False, "Words of the feeder's script.", readable=False),
        Region(RegionId.INBOX, _scalar("byte", 8), config.inbox, True, bytes_in, readable=False),
        Region(RegionId.OUTBOX, _scalar("byte", 8), config.outbox_depth, True, bytes_out, writable=False),
    )


class Reg(IntEnum):
    """Addresses in the register region. 64-bit values come low word first."""

    MAGIC = 0
    VERSION = 1
    FINGERPRINT = 2
    FINGERPRINT_HIGH = 3
    CONTROL = 4
    STATUS = 5
    TRAP = 6
    CYCLES = 7
    CYCLES_HIGH = 8
    DENSE_STEPS = 9
    DEPTHWISE_STEPS = 10
    CHAINS = 11
    VECTORS = 12
    HAZARD_STALLS = 13
    FLAGS_ANY = 14
    LINK_ERRORS = 15


@dataclass(frozen=True)
class Register:
    """One 32-bit register: its fields, and whether the host may write it."""

    reg: Reg
    layout: Layout
    writable: bool
    doc: str


#: "CNCD" in ASCII, little endian.
MAGIC = int.from_bytes(b"CNCD", "little")

_VALUE = Layout((Field("value", 32),))

REGISTERS: tuple[Register, ...] = (
    Register(Reg.MAGIC, _VALUE, False, "Constant 'CNCD'."),
    Register(Reg.VERSION, _VALUE, False, "SPEC_VERSION of the hardware."),
    Register(Reg.FINGERPRINT, _VALUE, False, "Fingerprint of the configuration, low half."),
    Register(Reg.FINGERPRINT_HIGH, _VALUE, False, "Fingerprint, high half."),
    Register(
        Reg.CONTROL,
        Layout(
            (
                Field("start", 1, doc="start a run; ignored while one is running"),
                Field("clear_flags", 1, doc="clear the sticky flag memory (done within program_depth cycles)"),
                Field("adds", 1, doc="counters go on from the run before, else they begin again"),
                Field("keep_dram", 1, doc="note that the external memory holds what it should, until that changes"),
                Field("reserved", 12),
                Field("pc", 16, doc="first instruction"),
            )
        ),
        True,
        "Writing starts a run or clears the flags; reads as zero.",
    ),
    Register(
        Reg.STATUS,
        Layout(
            (
                Field("busy", 1, doc="a run or a flag clear is going on"),
                Field("done", 1, doc="the last run reached halt"),
                Field("trapped", 1, doc="the last run trapped"),
                Field("reserved", 5),
                Field("dram_searching", 1, doc="the clock phase of the external memory is being searched"),
                Field("dram_works", 1, doc="the search has come to its end, and the external memory works"),
                Field("dram_late", 1, doc="its data come at the later of two cycles"),
                Field("dram_phase", PHASE_BITS, doc="the phase that was chosen, in steps"),
                Field("dram_width", PHASE_BITS, doc="neighbouring phases that work"),
                Field("dram_kept", 1, doc="since ``keep_dram`` nothing was written to the external memory"),
                Field("reserved_high", 20 - 2 * PHASE_BITS),
            )
        ),
        False,
        "State of the core.",
    ),
    Register(
        Reg.TRAP,
        Layout((Field("code", 8, doc="Trap code"), Field("reserved", 8), Field("pc", 16, doc="address of the word"))),
        False,
        "Why and where the last run trapped.",
    ),
    Register(Reg.CYCLES, _VALUE, False, "Clock cycles of the last run, and of those it adds to, low half."),
    Register(Reg.CYCLES_HIGH, _VALUE, False, "Clock cycles of the last run, high half."),
    Register(Reg.DENSE_STEPS, _VALUE, False, "Tile steps (T*N*L multiply-accumulates each) of the last run."),
    Register(Reg.DEPTHWISE_STEPS, _VALUE, False, "Depthwise taps (N elements each) that the last run has read."),
    Register(Reg.CHAINS, _VALUE, False, "Chains dispatched in the last run."),
    Register(Reg.VECTORS, _VALUE, False, "Native vectors that left the pipe in the last run."),
    Register(Reg.HAZARD_STALLS, _VALUE, False, "Cycles in which a read waited for an earlier write in the last run."),
    Register(Reg.FLAGS_ANY, _VALUE, False, "Union of all sticky flags since they were cleared."),
    Register(Reg.LINK_ERRORS, _VALUE, False, "Frames answered with an error since reset."),
)


def status_layout(config: NpuConfig) -> Layout:
    """Fields of STATUS of one configuration: those of an external memory are reserved where there is none."""
    layout = REGISTERS[Reg.STATUS].layout
    if config.has(Op.COPY):
        return layout
    names = [field.name for field in layout.fields]
    kept = layout.fields[: names.index("reserved")]
    return Layout((*kept, Field("reserved", layout.width - sum(field.width for field in kept))))


def control_layout(config: NpuConfig) -> Layout:
    """Fields of CONTROL of one configuration: that of an external memory is reserved where there is none."""
    layout = REGISTERS[Reg.CONTROL].layout
    if config.has(Op.COPY):
        return layout
    start, clear, adds, keep, reserved, pc = layout.fields
    return Layout((start, clear, adds, Field("reserved", keep.width + reserved.width), pc))


assert [register.reg for register in REGISTERS] == list(Reg)
assert all(register.layout.width == 32 for register in REGISTERS)
