"""The configuration: validation, derived numbers and identity."""

import dataclasses
import hashlib
import re

import pytest

from concord.spec import feeder, link
from concord.spec.config import COPY_VERSION, REMOVED, SERIAL_ROWS, SPEC_VERSION, NpuConfig, clog2
from concord.spec.feeder import FeedOp
from concord.spec.fields import Layout
from concord.spec.formats import BLOCK_ROUNDINGS, ExponentMode, Flag
from concord.spec.isa import INSTRUCTIONS, Mem, MvMode, Op, PipelineStage, Trap
from concord.spec.link import TARGET
from concord.spec.memmap import CORE_REGIONS, FEEDER_REGIONS, INTEGER_REGIONS, REGISTERS, Reg, RegionId, regions
from concord.spec.presets import ECP5_85F, PRESETS, TINY, preset, with_mantissas

#: Numbers that words and frames hold.
NUMBERED = (
    Op, Mem, MvMode, Trap, PipelineStage, Flag, ExponentMode, BLOCK_ROUNDINGS, FeedOp, Reg, RegionId, link.Kind,
    link.Status,
)  # fmt: skip
# A different, valid value for every parameter.
CHANGES = {
    "name": "other", "native": 8, "lanes": 4, "mfu_lanes": 1, "engines": 2, "act_mant": 6, "wgt_mant": 4,
    "act_exp_min": -14, "wgt_exp_min": -14, "wgt_exp_max": 1, "acc_width": 40, "acc_register": 50, "max_terms": 32,
    "matrix_depth": 128, "narrow_depth": 32, "wide_depth": 32, "program_depth": 64, "table_depth": 128,
    "table_slots": 3, "stochastic": False, "inflight": 8, "loop_levels": 1, "max_payload": 256, "inbox": 128,
    "request_buffer": 256, "outbox": 64, "code_pages": 4, "window_taps": 2, "code_scaling": True,
    "writable_matrix": True, "clock_hz": 1, "board": "icebreaker",
}  # fmt: skip

FLAGS = {"code_scaling", "writable_matrix"}
WRONG = [
    ("native", 6, "a power of two in 4..64"),
    ("native", 128, "a power of two in 4..64"),
    ("lanes", 3, "a divisor of native=4"),
    ("lanes", 0, "a divisor of native=4"),
    ("engines", 3, "1, 2, 4 or 8"),
    ("mfu_lanes", 4, "a divisor of native=4 and at most 2"),
    ("act_mant", 2, "in 3..12, so that every code is a binary16 number"),
    ("act_mant", 13, "in 3..12, so that every code is a binary16 number"),
    ("wgt_mant", 17, "in 3..16"),
    ("act_exp_min", -21, "in -20..0"),
    ("act_exp_min", 1, "in -20..0"),
    ("wgt_exp_min", 1, "at most wgt_exp_max=0"),
    ("wgt_exp_min", -32, "at least -31"),
    ("wgt_exp_max", 9, "at most 8"),
    ("acc_width", 7, "in 8.."),
    ("acc_width", 200, "in 8.."),
    ("acc_register", 47, "0, which is 62 bits here, or in 48..61"),
    ("acc_register", 62, "0, which is 62 bits here, or in 48..61"),
    ("window_taps", 3, "in 0..2, the lanes"),
    ("window_taps", -1, "in 0..2, the lanes"),
    ("max_terms", 3, "a power of two in 1..4096"),
    ("matrix_depth", 15, "in 16..262144"),
    ("narrow_depth", 1 << 15, "in 16..16384"),
    ("wide_depth", 0, "in 16..16384"),
    ("program_depth", 5000, "in 16..4096"),
    ("table_depth", 100, "a power of two in 16..4096"),
    ("table_slots", 17, "in 1..16"),
    ("inflight", 3, "a power of two in 4..32"),
    ("loop_levels", 0, "in 1..4"),
    ("max_payload", 8, "in 16..4096"),
    ("request_buffer", 64, "0 or a power of two in 128..65536"),
    ("request_buffer", 1 << 17, "0 or a power of two in 128..65536"),
    ("inbox", 64, "0 or a power of two in 128..8192"),
    ("inbox", 200, "0 or a power of two in 128..8192"),
    ("outbox", 16, "0 or a power of two in 32..2048"),
    ("code_pages", 3, "1, 2 or 4"),
    ("code_pages", 8, "1, 2 or 4"),
]


@pytest.mark.parametrize("name, value, rule", WRONG)
def test_wrong_values_are_named(name, value, rule):
    with pytest.raises(ValueError, match=f"^{name} must be {re.escape(rule)}.*, not {value}$"):
        TINY.replace(**{name: value})


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("wgt_mant", 9, "act_mant=8 with writable_matrix"),
        ("mfu_lanes", 2, "at most lanes=1 with writable_matrix"),
        ("wgt_exp_min", -21, r"in -20\.\.9 with writable_matrix"),
    ],
)
def test_what_rows_that_programs_write_need(name, value, rule):
    config = TINY.replace(writable_matrix=True, **({"lanes": 1, "mfu_lanes": 1} if name == "mfu_lanes" else {}))
    with pytest.raises(ValueError, match=f"{name} must be {rule}, not {value}"):
        config.replace(**{name: value})


SERIAL_WRONG = [
    ("code_scaling", True, "False in an element-serial configuration"),
    ("writable_matrix", True, "False in an element-serial configuration"),
    ("engines", 2, "1 in an element-serial configuration"),
    ("mfu_lanes", 2, "1 in an element-serial configuration"),
    ("stochastic", True, "False in an element-serial configuration"),
    ("wgt_exp_min", -12, "at most -13 in an element-serial configuration"),
    ("acc_width", 41, "at least 42 in an element-serial configuration"),
    ("acc_register", 44, "0 in an element-serial configuration"),
]


@pytest.mark.parametrize("name, value, rule", SERIAL_WRONG)
def test_wrong_values_of_a_serial_configuration_are_named(name, value, rule):
    with pytest.raises(ValueError, match=f"^{name} must be {re.escape(rule)}, not {value}$"):
        PRESETS["up5k"].replace(**{name: value})


def test_every_row_of_the_matrix_memory_has_a_link_address():
    wide = TINY.replace(native=64, engines=8, matrix_depth=1 << 15, max_payload=256)
    assert regions(wide)[RegionId.MATRIX].depth == 1 << 24
    with pytest.raises(ValueError, match=r"^matrix_depth must be at most 32768 with 512 rows .* 24 bits, not 32769$"):
        wide.replace(matrix_depth=(1 << 15) + 1)


@pytest.mark.parametrize("value", [4.0, "4", True, None])
def test_integers_are_integers(value):
    with pytest.raises(TypeError, match=f"lanes must be an integer, not {value!r}"):
        TINY.replace(lanes=value)


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TINY.native = 8


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_derived_numbers_of_the_presets(config):
    n = config.native
    assert config.beats * config.mfu_lanes == n and config.steps * config.lanes == n
    assert config.macs == config.lanes * (SERIAL_ROWS if config.serial else config.engines * n)
    assert config.acc_frac == -(config.act_exp_min + config.wgt_exp_min)
    # The hardware accumulator holds the greatest sum there can be; one bit less would not.
    greatest = n * config.act.q_max * config.wgt.q_max
    assert greatest < 1 << config.dot_bits - 1 and greatest >= 1 << config.dot_bits - 2
    assert (greatest << config.max_shift) * config.max_terms < 1 << config.acc_bits - 1
    assert config.lanes * config.act.q_max * config.wgt.q_max < 1 << config.lane_dot_bits - 1
    assert config.max_shift == (config.act.exp_max - config.act_exp_min) + (config.wgt_exp_max - config.wgt_exp_min)
    assert config.wgt.exp_max - config.wgt.exp_min < 1 << config.wgt_exp_width
    assert config.narrow_word.width == n * config.act_mant + 8 and config.wide_word.width == 16 * n


@pytest.mark.parametrize("config", PRESETS.values(), ids=PRESETS)
def test_regions_follow_the_configuration(config):
    table = regions(config)
    core = {
        *CORE_REGIONS,
        *(INTEGER_REGIONS if config.integer_chains else ()),
        *([RegionId.DRAM] if config.dram else ()),
    }
    assert set(table) == {*core, *(FEEDER_REGIONS if config.inbox else ())}
    assert set(regions(config.replace(inbox=4096))) == {*core, *FEEDER_REGIONS}
    assert table[RegionId.MATRIX].depth == config.matrix_depth * config.engines * config.native
    assert table[RegionId.SLOTS].depth == config.table_slots
    assert all(region.depth <= 1 << TARGET["addr"].width for region in table.values())


def test_a_table_slot_reaches_every_table_that_fits():
    slot, depth = TINY.table_slot, TINY.table_depth
    for low, high, base in ((-depth, -1, 0), (0, depth - 1, 0), (-1, 0, depth - 2), (-depth, -depth, depth - 1)):
        fields = {"low": low, "high": high, "offset": base - low, "scale": -32, "settled_low": 1, "settled_high": 0}
        assert slot.unpack(slot.pack(**fields)) == fields


def test_every_parameter_is_covered_here():
    later = {"serial", "integer_chains", "dram", "dram_refresh"}
    assert set(CHANGES) | later == {field.name for field in dataclasses.fields(NpuConfig)}
    assert {name for name, _, _ in WRONG} | {"name", "stochastic", *FLAGS, "clock_hz", "board"} == set(CHANGES)


@pytest.mark.parametrize("name", CHANGES)
def test_the_fingerprint_covers_what_matters(name):
    other = TINY.replace(**{name: CHANGES[name]})
    assert (other.fingerprint == TINY.fingerprint) == (name in ("name", "clock_hz", "board"))
    assert 0 <= other.fingerprint < 1 << 64


def test_the_fingerprint_covers_serial():
    serial = PRESETS["up5k"]
    assert serial.replace(serial=False).fingerprint != serial.fingerprint


def test_integer_chains_have_regions_and_a_fingerprint_of_their_own():
    chains = PRESETS["ecp5-85f"]
    config = chains.replace(integer_chains=False)
    assert chains.fingerprint != config.fingerprint
    assert set(regions(chains)) == {*CORE_REGIONS, *FEEDER_REGIONS, *INTEGER_REGIONS, RegionId.DRAM} == set(RegionId)


@pytest.mark.parametrize(
    "name, value, rule",
    [
        ("engines", 2, "1 with integer_chains"),
        ("acc_register", 60, "0 with integer_chains"),
        ("wgt_exp_max", -12, "at least -11 with integer_chains"),
        ("lanes", 16, "such that 256 products and the units take at most the multipliers of a device"),
    ],
)
def test_what_integer_chains_need(name, value, rule):
    config = PRESETS["ecp5-85f"]
    with pytest.raises(ValueError, match=f"^{name} must be {rule}, not {value}$"):
        config.replace(**{name: value})
    with pytest.raises(ValueError, match=r"^native must be at least 8 with integer_chains, not 4$"):
        TINY.replace(integer_chains=True)


def test_fingerprints_are_stable():
    """Changes with the parameters of the preset and with SPEC_VERSION, and with nothing else."""
    assert f"{TINY.fingerprint:016x}" == "6b587262762192cf"


def test_difference_is_readable():
    assert TINY.difference(TINY.replace(lanes=4, name="x")) == "lanes: 2 / 4"
    assert TINY.difference(TINY) == ""
    assert "native: 4 / 16" in TINY.difference(ECP5_85F)


@pytest.mark.parametrize(("name", "reason"), REMOVED.items())
def test_parameters_that_were_removed_are_named_with_what_to_do(name, reason):
    config = PRESETS["ecp5-85f"]
    assert NpuConfig.from_dict(config.to_dict() | {name: False}) == config, "as folders from before have it"
    with pytest.raises(ValueError, match=f"^{name} must be left out: it was removed, and {reason}$"):
        NpuConfig.from_dict(config.to_dict() | {name: True})


def test_dictionaries_come_back():
    for config in PRESETS.values():
        assert NpuConfig.from_dict(config.to_dict()) == config
    with pytest.raises(ValueError, match=r"parameters must be among .*, not \['color'\]"):
        NpuConfig.from_dict(TINY.to_dict() | {"color": 1})
    with pytest.raises(TypeError, match="native"):
        NpuConfig.from_dict({k: v for k, v in TINY.to_dict().items() if k != "native"})


def test_presets_by_name():
    assert preset("tiny") is TINY
    with pytest.raises(ValueError, match=r"^preset must be one of tiny, .*, ecp5-85f-256, not 'huge'$"):
        preset("huge")


def test_clog2():
    assert [clog2(n) for n in (1, 2, 3, 4, 5, 8, 9)] == [0, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize("config", PRESETS.values(), ids=lambda config: config.name)
def test_other_mantissas(config):
    prints = {config.fingerprint}
    for mant in (*range(3, 8), *range(9, 13)):
        other = with_mantissas(config, mant)
        assert (other.act_mant, other.wgt_mant, other.name) == (mant, mant, f"{config.name}-m{mant}")
        # Weights of the same magnitudes, and sums as large.
        assert other.wgt.exp_max + mant == config.wgt.exp_max + config.wgt_mant
        assert other.wgt_exp_min + mant <= config.wgt_exp_min + config.wgt_mant
        assert other.acc_width - other.acc_frac == config.acc_width - config.acc_frac
        assert (other.native, other.lanes, other.matrix_depth) == (config.native, config.lanes, config.matrix_depth)
        prints.add(other.fingerprint)
    assert len(prints) == 10
    if config.act_mant == config.wgt_mant:
        assert with_mantissas(config, config.act_mant) is config


@pytest.mark.parametrize("mant", [2, 13])
def test_mantissas_that_no_npu_has(mant):
    with pytest.raises(ValueError, match=rf"act_mant must be in 3\.\.12, .* not {mant}"):
        with_mantissas(TINY, mant)


def digest_of_the_definitions():
    """A hash of what programs, images and frames mean; texts for people are left out."""

    def bits(layout):
        return [(field.name, field.width, field.signed, field.count) for field in layout.fields]

    formats = [(one.op.name, bits(one.fields), list(map(int, one.stages)), one.least, one.most) for one in INSTRUCTIONS]
    memories = [(one.id.name, bits(one.word), one.readable, one.writable, one.live) for one in regions(TINY).values()]
    registers = [(one.reg.name, bits(one.layout), one.writable) for one in REGISTERS]
    named = sorted((vars(link) | vars(feeder)).items())
    frames = [(name, bits(one)) for name, one in named if isinstance(one, Layout)]
    numbers = [(type(one).__name__, one.name, int(one)) for kind in NUMBERED for one in kind]
    return hashlib.sha256(repr((formats, memories, registers, frames, numbers)).encode()).hexdigest()[:16]


def test_other_definitions_have_another_version():
    """The fingerprint covers the version, so that bitstreams and images of other definitions are refused.

    Whoever changes an instruction, a region, a register or a frame raises SPEC_VERSION, and puts the new pair here. A
    change that only configurations with a new parameter know has that parameter in the fingerprint instead; one of
    ``copy`` raises COPY_VERSION.
    """
    assert (SPEC_VERSION, COPY_VERSION, digest_of_the_definitions()) == (5, 3, "3be5c86896087127")
