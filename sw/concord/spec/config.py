"""The configuration of one NPU: everything the generator, the emulator and the packer need to know.

The fingerprint is a hash of the configuration together with the versions of the instruction set, the memory map and the
link protocol. It is built into the hardware and into every image; a mismatch is refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from typing import Any

from concord.spec.boards import board_of_name
from concord.spec.dram import PARTS, SdramPart, SdramTiming
from concord.spec.feeder import CODE_PAGE_BITS, INBOX_BITS, OUTBOX_BITS, OUTBOX_SHARE
from concord.spec.fields import Field, Layout
from concord.spec.formats import (
    ACT_MANT_MAX,
    BINARY16_EXP_MAX,
    BINARY16_EXP_MIN,
    BINARY16_FRAC,
    BINARY16_WIDTH,
    MANT_MAX,
    MANT_MIN,
    BlockFormat,
)
from concord.spec.integers import DIGIT_BITS, SUM_BITS
from concord.spec.isa import DIGITS_MAX, MATRIX_ADDR_BITS, VECTOR_ADDR_BITS
from concord.spec.limits import (
    ACC_WIDTH_MIN,
    INTEGER_MANT,
    INTEGER_PRODUCTS_MAX,
    PROGRAM_DEPTH_MAX,
    SCALED_BITS_MAX,
)
from concord.spec.link import TARGET
from concord.spec.operations import NEEDS, Mem

#: Raised whenever the meaning of a program, an image or a frame changes.
SPEC_VERSION = 5
#: Version of the instructions that only configurations with an external memory have.
COPY_VERSION = 3

#: Matrix rows that an element-serial configuration multiplies at a time.
SERIAL_ROWS = 2

#: The greatest buffer of requests, as a power of two.
REQUEST_BUFFER_BITS = 16

#: Parameters that do not decide what a program means, and are not part of the fingerprint.
FREE = ("name", "clock_hz", "board")
#: Parameters that came later, and the values with which everything means what it did before.
LATER = {
    "acc_register": 0,
    "window_taps": 0,
    "code_scaling": False,
    "writable_matrix": False,
    "integer_chains": False,
    "code_pages": 1,
    "request_buffer": 0,
    "outbox": 0,
    "dram": "",
    "dram_refresh": 0,
}
#: Parameters that there were, and what to do without them.
REMOVED = {
    "integer_loss": "the host computes the loss of training",
    "integer_tables": "networks with tanh, sigmoid or softsign are trained on the host",
}


def clog2(n: int) -> int:
    """Bits needed to count ``n`` things: the least k with 2**k >= n."""
    return (n - 1).bit_length()


@dataclass(frozen=True, kw_only=True)
class NpuConfig:
    """Parameters of the generator.

    Parameters
    ----------
    name : str
        Name of the preset; not part of the fingerprint.
    native : int
        N, the native dimension: elements of a native vector and rows of a native tile. A power of two, 4 to 64.
    lanes : int
        L, multiply-accumulates per matrix row and cycle. Divides N.
    engines : int
        T, tile engines: native tiles worked on in parallel, all fed with the same vector.
    mfu_lanes : int
        P, lanes of the multifunction units. Divides N, at most N / 2.
    act_mant, wgt_mant : int
        Mantissa widths of activations (vectors), 3 to 12 bits, and of weights (matrices), 3 to 16 bits.
    act_exp_min : int
        Least exponent of an activation block, at most 0. The greatest follows from binary16.
    wgt_exp_min, wgt_exp_max : int
        Range of the exponent of a weight block.
    acc_width : int
        W, bits of an accumulator on the grid, sign included; the final value saturates to it.
    acc_register : int
        R, bits of the register that adds up, sign included, at least W: a term or a sum that does not fit ends the sum,
        which then counts as beyond that end (:func:`concord.golden.accumulate.accumulate`). 0: as many bits as no sum
        of ``max_terms`` terms can exceed; an element-serial configuration has no other.
    max_terms : int
        Greatest number of native dot products that one accumulator adds up (columns times window).
    matrix_depth, narrow_depth, wide_depth : int
        Words of the matrix memory (T*N rows of L weights each), of the narrow and of the wide vector memory (N
        elements each).
    program_depth : int
        Instruction words.
    table_depth, table_slots : int
        Entries of the table memory (binary16 each) and number of tables it can be divided into.
    stochastic : bool
        Whether the converters offer stochastic rounding.
    serial : bool
        One element after the other goes all the way from read to write, but two are multiplied at a time: for small
        devices. The same results with 2 * L multiply-accumulates per cycle, without overlap, hazards or queues. Needs
        ``engines`` 1, ``mfu_lanes`` 1 and ``stochastic`` False; ``inflight`` then means nothing.
    window_taps : int
        Elements that every row of tile engine 0 keeps for sliding depthwise products: the taps of the largest window.
        0: there are no such products. At most ``lanes``; needs ``serial`` False and ``acc_register`` 0, as terms are
        added up in the order of their exponents.
    code_scaling : bool
        Whether accumulators can be made codes by factors of 16 bits (``vv_scale``): networks on codes. Needs ``serial``
        False and ``acc_width + act_exp_min`` in 2..35.
    writable_matrix : bool
        Whether programs write vectors into the matrix memory (``m_wr``): products of two tensors. Needs ``serial``
        False, ``wgt_mant`` as ``act_mant``, ``wgt_exp_min`` within the exponents that activations can have, and
        ``mfu_lanes`` at most ``lanes``.
    integer_chains : bool
        Whether there are integer chains (:mod:`concord.spec.integers`), for training on the NPU. Needs ``serial``
        to be off, one engine, ``native`` of at least 8,
        mantissas of 8 bits, at most 128 products per cycle, no ``acc_register`` and sums of at least 48 bits.
    inflight : int
        Vectors of one chain pipe that may be between issue and write, per destination memory. A power of two.
    loop_levels : int
        Nesting depth of instruction loops.
    max_payload : int
        Greatest payload of a link frame in bytes.
    request_buffer : int
        Bytes of requests that wait in the device while it answers another one, so that the host may send them before
        it has the reply; 0: the host waits for every reply. A power of two, at least ``max_payload``.
    inbox : int
        Bytes of raw inputs that wait to be laid out by the feeder (:mod:`concord.spec.feeder`); 0: there is none. A
        power of two, at least ``max_payload``.
    outbox : int
        Bytes of results that wait for the host, if there is an inbox; 0: a quarter of the inbox. A power of two. The
        fewer they are, the longer the device waits where replies are held back.
    code_pages : int
        Pages of the feeder's code book, of 256 numbers each: 1, 2 or 4. With several pages every channel of an image
        can have numbers of its own.
    dram : str
        Name of the external memory (:data:`concord.spec.dram.PARTS`), from which programs copy weights; empty: there is
        none. Needs ``serial`` False, and ``lanes`` of at least the mantissas in a column.
    dram_refresh : int
        Cycles from one refresh of the external memory to the next one, right for the slowest clock that the NPU has; 0
        without one.
    clock_hz : int
        Clock that rates are given for; not part of the fingerprint.
    board : str
        Name of the board that rates are given for, whose serial port and adapter it has; empty: none. Not part of the
        fingerprint.
    """

    name: str
    native: int
    lanes: int
    mfu_lanes: int
    engines: int = 1
    act_mant: int = 8
    wgt_mant: int = 8
    act_exp_min: int = -15
    wgt_exp_min: int = -15
    wgt_exp_max: int = 0
    acc_width: int = 48
    acc_register: int = 0
    max_terms: int = 1024
    matrix_depth: int
    narrow_depth: int
    wide_depth: int
    program_depth: int
    table_depth: int
    table_slots: int = 8
    stochastic: bool = True
    serial: bool = False
    window_taps: int = 0
    code_scaling: bool = False
    writable_matrix: bool = False
    integer_chains: bool = False
    inflight: int = 16
    loop_levels: int = 2
    max_payload: int = 1024
    request_buffer: int = 0
    inbox: int = 0
    outbox: int = 0
    code_pages: int = 1
    dram: str = ""
    dram_refresh: int = 0
    clock_hz: int = 50_000_000
    board: str = ""

    def __post_init__(self) -> None:
        check(self)

    # Formats -----------------------------------------------------------------------------------

    @cached_property
    def act(self) -> BlockFormat:
        """Format of activations: one block per native vector."""
        return BlockFormat(self.act_mant, self.native, self.act_exp_min, BINARY16_EXP_MAX - (self.act_mant - 2))

    @cached_property
    def wgt(self) -> BlockFormat:
        """Format of weights: one block per row of a native tile."""
        return BlockFormat(self.wgt_mant, self.native, self.wgt_exp_min, self.wgt_exp_max)

    @property
    def acc_frac(self) -> int:
        """F: the least bit of the grid weighs 2**-F; no product of two codes has a bit below it."""
        return -(self.act_exp_min + self.wgt_exp_min)

    @property
    def dot_bits(self) -> int:
        """Bits of the exact native dot product of mantissas, sign included."""
        return self.act.dot_bits(self.wgt, self.native)

    @property
    def lane_dot_bits(self) -> int:
        """Bits of the dot product over the L lanes of one step, sign included."""
        return self.act.dot_bits(self.wgt, self.lanes)

    @property
    def max_shift(self) -> int:
        """Greatest left shift of a dot product onto the grid."""
        return self.act.exp_max + self.wgt_exp_max + self.acc_frac

    @property
    def full_bits(self) -> int:
        """Bits that no sum of ``max_terms`` terms can exceed."""
        return self.dot_bits + self.max_shift + clog2(self.max_terms)

    @property
    def scaled_bits(self) -> int:
        """Bits of an accumulator as ``vv_scale`` reads it, sign included: its units are ``2**wgt_exp_min``."""
        return self.acc_width + self.act_exp_min

    @property
    def register_bits(self) -> int:
        """Bits of the register that adds up: R, or wide enough for every sum."""
        return self.acc_register or self.full_bits

    @property
    def acc_bits(self) -> int:
        """Bits of a sum as it leaves the register: with R bits one more, which tells sums that did not fit."""
        return self.acc_register + 1 if self.acc_register else self.full_bits

    # Derived shapes ----------------------------------------------------------------------------

    @property
    def beats(self) -> int:
        """Cycles a native vector takes through the multifunction units: N / P."""
        return self.native // self.mfu_lanes

    @property
    def steps(self) -> int:
        """Cycles a native tile takes in a tile engine: N / L."""
        return self.native // self.lanes

    @property
    def rows(self) -> int:
        """Matrix rows worked on in parallel: T * N."""
        return self.engines * self.native

    @property
    def matrix_rows(self) -> int:
        """Rows of all tiles of the matrix memory: a row of a tile has N weights."""
        return self.matrix_depth // self.steps * self.rows

    @property
    def matrix_wraps(self) -> bool:
        """True if a product can go on with the first word of the matrix memory after the last one."""
        return self.matrix_depth == 1 << MATRIX_ADDR_BITS

    @property
    def matrix_row_bits(self) -> int:
        """Bits of the number of a row, counted tile by tile."""
        return clog2(self.matrix_depth // self.steps) + clog2(self.rows)

    @property
    def macs(self) -> int:
        """Multiply-accumulates per cycle: T * N * L, or 2 * L in an element-serial configuration."""
        return (SERIAL_ROWS if self.serial else self.rows) * self.lanes

    @property
    def act_exp_width(self) -> int:
        """Bits of the stored exponent of an activation block."""
        return 8

    @property
    def wgt_exp_width(self) -> int:
        """Bits of the stored exponent of a weight block (minus ``wgt_exp_min``, unsigned)."""
        return max(1, clog2(self.wgt_exp_max - self.wgt_exp_min + 1))

    @property
    def outbox_depth(self) -> int:
        """Bytes of results that wait for the host."""
        return self.outbox or self.inbox // OUTBOX_SHARE

    def has(self, op: int) -> bool:
        """True if programs may have an operation (:data:`concord.spec.operations.NEEDS`)."""
        return op not in NEEDS or bool(getattr(self, NEEDS[op]))

    def without(self, *ops: int) -> NpuConfig:
        """A copy without operations, and without all that come with the same parameters."""
        off = {NEEDS[op]: LATER[NEEDS[op]] for op in ops}
        return self.replace(**off, **({"dram_refresh": 0} if "dram" in off else {}))

    # Memory words ------------------------------------------------------------------------------

    @cached_property
    def narrow_word(self) -> Layout:
        """Word of the narrow vector memory."""
        return self.act.layout(self.act_exp_width)

    @property
    def mantissa_bytes(self) -> int:
        """Bytes of a mantissa of an activation that travels by itself."""
        return -(-self.act_mant // 8)

    @cached_property
    def wide_word(self) -> Layout:
        """Word of the wide vector memory: N binary16 patterns."""
        return Layout((Field("elem", BINARY16_WIDTH, False, self.native, "binary16 bit patterns"),))

    @cached_property
    def matrix_row(self) -> Layout:
        """One row of a word of the matrix memory: L mantissas and the exponent of the row's block."""
        return Layout(
            (
                Field("mant", self.wgt_mant, True, self.lanes, "mantissas of L consecutive columns"),
                Field("exp", self.wgt_exp_width, False, doc="shared exponent minus wgt_exp_min"),
            )
        )

    # External memory ---------------------------------------------------------------------------

    @cached_property
    def sdram(self) -> SdramPart:
        """The external memory; ``KeyError`` if there is none."""
        return PARTS[self.dram]

    @cached_property
    def sdram_timing(self) -> SdramTiming:
        """Times of the external memory: cycles of its fastest clock, and refreshes as the configuration has them."""
        return replace(self.sdram.timing(self.sdram.cas_hz, self.sdram.cas_hz), refresh=self.dram_refresh)

    @property
    def column_mantissas(self) -> int:
        """Mantissas of weights in a column of the external memory."""
        return 2 if self.wgt_mant <= 8 else 1

    @property
    def row_columns(self) -> int:
        """Columns of the external memory that a row of a tile takes: its exponent, and its mantissas."""
        return 1 + self.native // self.column_mantissas

    def vector_columns(self, mem: Mem) -> int:
        """Columns of the external memory that a vector takes."""
        word = self.wide_word if mem is Mem.WIDE else self.narrow_word
        return -(-word.width // self.sdram.width)

    @property
    def table_addr_bits(self) -> int:
        """Bits of an address in the table memory."""
        return clog2(self.table_depth)

    @cached_property
    def table_slot(self) -> Layout:
        """Descriptor of one table: ``entry = memory[base + clamp(rne(x * 2**scale), low, high) - low]``.

        ``offset`` is ``base - low``, so that the hardware adds once. A code that is clamped at an end that is not
        constant raises ``TABLE_CLAMPED``.
        """
        bits = self.table_addr_bits + 1
        return Layout(
            (
                Field("low", bits, True, doc="least code"),
                Field("high", bits, True, doc="greatest code"),
                Field("offset", bits + 1, True, doc="address of code 0: base - low"),
                Field("scale", 6, True, doc="log2 of codes per unit of the input"),
                Field("settled_low", 1, doc="the entry of low stands for all lower codes, too"),
                Field("settled_high", 1, doc="the entry of high stands for all higher codes, too"),
            )
        )

    # Identity ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """All parameters as plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> NpuConfig:
        """Inverse of :meth:`to_dict`; ``ValueError`` names unknown or missing parameters.

        Without a board it is the first one that has the preset that the configuration is named after. Parameters of
        :data:`REMOVED` may be there if they are off.
        """
        for name in REMOVED:
            if values.get(name):
                raise RemovedParameterError(name)
        values = {name: value for name, value in values.items() if name not in REMOVED}
        known = {field.name for field in fields(cls)}
        if unknown := sorted(set(values) - known):
            raise ValueError(f"parameters must be among {sorted(known)}, not {unknown}")
        return cls(**{"board": board_of_name(str(values.get("name"))), **values})

    def replace(self, **changes: Any) -> NpuConfig:
        """A copy with some parameters changed."""
        return replace(self, **changes)

    @cached_property
    def fingerprint(self) -> int:
        """64-bit hash of everything that decides what a program means on this hardware."""
        relevant = {k: v for k, v in self.to_dict().items() if k not in FREE and (k not in LATER or v != LATER[k])}
        versions = {"spec": SPEC_VERSION} | ({"copy": COPY_VERSION} if self.dram else {})
        text = json.dumps({**versions, **relevant}, sort_keys=True)
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def difference(self, other: NpuConfig) -> str:
        """Readable list of the parameters in which two configurations differ, as far as the fingerprint covers them."""
        ours, theirs = self.to_dict(), other.to_dict()
        names = [k for k in ours if ours[k] != theirs[k] and k not in FREE]
        return ", ".join(f"{k}: {ours[k]!r} / {theirs[k]!r}" for k in names)


class RemovedParameterError(ValueError):
    """A parameter of :data:`REMOVED` where a configuration has it."""

    def __init__(self, name: str):
        super().__init__(f"{name} must be left out: it was removed, and {REMOVED[name]}")


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
        if field.name in ("board", "dram") and not isinstance(value, str):
            raise TypeError(f"{field.name} must be a text, not {value!r}")
    _check_shape(config)
    _check_numbers(config)
    _check_depths(config)
    _check_dram(config)


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
    rule = f"in 0..{config.lanes}, the lanes"
    _require(config, "window_taps", rule, 0 <= config.window_taps <= config.lanes)
    if config.window_taps:
        _require(config, "acc_register", "0 with window_taps", not config.acc_register)
    if config.code_scaling:
        least, most = 2 - config.act_exp_min, SCALED_BITS_MAX - config.act_exp_min
        _require(config, "acc_width", f"in {least}..{most} with code_scaling", least <= config.acc_width <= most)
    if config.serial:
        _require(config, "writable_matrix", "False in an element-serial configuration", not config.writable_matrix)
        _require(config, "code_scaling", "False in an element-serial configuration", not config.code_scaling)
        _require(config, "window_taps", "0 in an element-serial configuration", not config.window_taps)
        for name, value in (("engines", 1), ("mfu_lanes", 1), ("stochastic", False)):
            _require(config, name, f"{value} in an element-serial configuration", getattr(config, name) == value)
    if config.integer_chains:
        _check_integer_chains(config)
    if config.writable_matrix:
        _require(
            config, "wgt_mant", f"act_mant={config.act_mant} with writable_matrix", config.wgt_mant == config.act_mant
        )
        most = config.lanes
        _require(config, "mfu_lanes", f"at most lanes={most} with writable_matrix", config.mfu_lanes <= most)


def _check_integer_chains(config: NpuConfig) -> None:
    needed = {
        "serial": False,
        "engines": 1,
        "act_mant": INTEGER_MANT,
        "wgt_mant": INTEGER_MANT,
        "acc_register": 0,
    }
    for name, value in needed.items():
        _require(config, name, f"{value} with integer_chains", getattr(config, name) == value)
    _require(config, "native", "at least 8 with integer_chains", config.native >= 8)
    bits = config.wgt_exp_width  # they lie beside the lanes
    _require(config, "lanes", f"at least {bits}, the bits of an exponent, with integer_chains", config.lanes >= bits)
    least = DIGIT_BITS * (DIGITS_MAX - 1) - config.act.exp_max - config.acc_frac
    _require(config, "wgt_exp_max", f"at least {least} with integer_chains", config.wgt_exp_max >= least)
    _require(
        config,
        "max_terms",
        f"such that sums have at least {SUM_BITS} bits with integer_chains",
        config.full_bits >= SUM_BITS,
    )
    products = config.rows * config.lanes
    _require(
        config,
        "lanes",
        f"such that {products} products and the units take at most the multipliers of a device",
        products <= INTEGER_PRODUCTS_MAX,
    )


def _check_numbers(config: NpuConfig) -> None:
    act, wgt = f"in {MANT_MIN}..{ACT_MANT_MAX}, so that every code is a binary16 number", f"in {MANT_MIN}..{MANT_MAX}"
    _require(config, "act_mant", act, MANT_MIN <= config.act_mant <= ACT_MANT_MAX)
    _require(config, "wgt_mant", wgt, MANT_MIN <= config.wgt_mant <= MANT_MAX)
    # Blocks of subnormal numbers all clamp, so converters never normalise one.
    low = BINARY16_EXP_MIN - (config.act_mant - 2)
    high = min(0, config.act.exp_max - 1)  # 0 is that of a quantiser at the start of a run
    _require(config, "act_exp_min", f"in {low}..{high}", low <= config.act_exp_min <= high)
    _require(
        config, "wgt_exp_min", f"at most wgt_exp_max={config.wgt_exp_max}", config.wgt_exp_min <= config.wgt_exp_max
    )
    _require(config, "wgt_exp_min", "at least -31", config.wgt_exp_min >= -31)
    _require(config, "wgt_exp_max", "at most 8", config.wgt_exp_max <= 8)
    if config.writable_matrix:
        most = config.act.exp_max
        rule = f"in {low}..{most} with writable_matrix"
        _require(config, "wgt_exp_min", rule, low <= config.wgt_exp_min <= most)
    _require(
        config,
        "acc_width",
        f"in {ACC_WIDTH_MIN}..{config.full_bits}",
        ACC_WIDTH_MIN <= config.acc_width <= config.full_bits,
    )
    if config.acc_register:
        _require(config, "acc_register", "0 in an element-serial configuration", not config.serial)
        least, most = max(config.acc_width, config.lane_dot_bits), config.full_bits - 1
        rule = f"0, which is {most + 1} bits here, or in {least}..{most}"
        _require(config, "acc_register", rule, least <= config.acc_register <= most)
    if config.serial:
        # Sums of two binary16 numbers are on the same grid as products.
        most = -BINARY16_FRAC - config.act_exp_min
        _require(
            config, "wgt_exp_min", f"at most {most} in an element-serial configuration", config.wgt_exp_min <= most
        )
        least = config.acc_frac + BINARY16_EXP_MAX + 3
        _require(config, "acc_width", f"at least {least} in an element-serial configuration", config.acc_width >= least)
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
    for name, most in (("request_buffer", REQUEST_BUFFER_BITS), ("inbox", INBOX_BITS)):
        sizes = {0} | {1 << k for k in range(7, most + 1) if config.max_payload <= 1 << k}
        rule = f"0 or a power of two in {config.max_payload}..{1 << most}"
        _require(config, name, rule, getattr(config, name) in sizes)
    sizes = {0} | {1 << k for k in range(5, OUTBOX_BITS + 1)}
    _require(config, "outbox", f"0 or a power of two in 32..{1 << OUTBOX_BITS}", config.outbox in sizes)
    _require(config, "code_pages", "1, 2 or 4", config.code_pages in {1 << k for k in range(CODE_PAGE_BITS + 1)})


def _check_dram(config: NpuConfig) -> None:
    if not config.dram:
        _require(config, "dram_refresh", "0 without dram", config.dram_refresh == 0)
        return
    _require(config, "dram", f"empty or one of {', '.join(PARTS)}", config.dram in PARTS)
    _require(config, "dram", "empty in an element-serial configuration", not config.serial)
    _require(config, "lanes", f"at least {config.column_mantissas} with dram", config.lanes >= config.column_mantissas)
    least, most = config.sdram.refresh_cycles
    _require(config, "dram_refresh", f"in {least}..{most} with dram", least <= config.dram_refresh <= most)
