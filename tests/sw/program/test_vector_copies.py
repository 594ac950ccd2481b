"""Copies of vectors between the external and the vector memories."""

import random

import numpy as np
import pytest

from concord.derive.flow import constant, pattern, symbolic_run
from concord.emulator import Emulator, ReferenceMachine
from concord.image import Image, Memories, MemorySegment, Port
from concord.image.packing import from_vector_columns, to_vector_columns
from concord.overflow.intervals import Bounds
from concord.program import Span, trace, verify
from concord.program.assembler import assemble
from concord.program.chains import VectorCopy
from concord.program.vector_copies import ExternalVectors, write_vectors
from concord.program.verify import verify_phases
from concord.spec import isa
from concord.spec.isa import Mem, Op, Trap
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import TINY
from concord.spec.rules import ProgramRule
from support.program_gen import random_memories, random_program
from support.reference_runs import assert_machines_agree
from support.rtl_configs import COPYING, COPYING_ENGINES, COPYING_LANES

CONFIGS = [COPYING, COPYING_ENGINES, COPYING_LANES]
REGIONS = {Mem.NARROW: RegionId.NARROW, Mem.WIDE: RegionId.WIDE}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_emulator_and_reference_agree(config):
    out = into = 0
    for seed in range(12):
        words, memories = random_program(config, random.Random(seed), 12)
        copies = trace(words, config).vector_copies
        out, into = out + sum(copy.out for copy in copies), into + sum(not copy.out for copy in copies)
        assert_machines_agree(memories)
    assert out > 8 and into > 8


@pytest.mark.parametrize("mem", list(Mem))
@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.name)
def test_columns_are_the_words_of_the_link(config, mem):
    """The words of the host, 16 bits a column; bits above a word are zero."""
    memories = random_memories(config, random.Random(4))
    before = memories.copy()
    write_vectors(VectorCopy(0, 128, mem, 3, 5, True), memories)
    size, bits = config.vector_columns(mem), regions(config)[REGIONS[mem]].word.width
    assert 16 * (size - 1) < bits <= 16 * size
    for k, word in enumerate(before.read(REGIONS[mem], 3, 5)):
        columns = memories.dram[128 + k * size :][:size].tolist()
        assert columns == [word >> 16 * n & 0xFFFF for n in range(size)]
    write_vectors(VectorCopy(0, 128, mem, 20, 5, False), memories)
    assert memories.read(REGIONS[mem], 20, 5) == before.read(REGIONS[mem], 3, 5)
    fields = [array[3:8] for array in before.vectors(mem)]
    back = from_vector_columns(config, mem, to_vector_columns(config, mem, *fields))
    assert all((one == other).all() for one, other in zip(back, fields, strict=True))


def test_an_address_register_counts_units():
    words = assemble("set_addr 2, 262132\nv_copy 2, 20, 7, 9, wide, 1\nv_copy 0, 20, 7, 9, narrow, 0\nhalt")
    own, plain = trace(words, COPYING).vector_copies
    assert (own.column, own.mem, own.address, own.count, own.out) == (128, Mem.WIDE, 7, 9, True)
    assert (plain.column, plain.mem, plain.out) == (320, Mem.NARROW, False)


def test_where_there_is_no_such_copy():
    words = [isa.encode(Op.V_COPY, count=1)]
    assert trace(words, TINY).trap is Trap.BAD_OPCODE
    assert trace(words, COPYING.without(Op.COPY)).trap is Trap.BAD_OPCODE
    with pytest.raises(ValueError, match="a chain must end"):
        assemble("v_rd wide, 0\nv_copy 0, 0, 0, 1, wide, 1")
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        assemble("v_copy 0, 0, 0, 0, wide, 1")


# What the verifier knows --------------------------------------------------------------------------------------------


def _messages(text, known, config=COPYING):
    return [(problem.message, problem.rule) for problem in verify(assemble(text), config, inputs=known)]


def test_what_is_read_has_a_value():
    out, into = "v_copy 0, 8, 4, 3, narrow, 1", "v_copy 0, 8, 8, 3, narrow, 0"
    source, columns = Span(RegionId.NARROW, 4, 3), Span(RegionId.DRAM, 128, 3 * COPYING.vector_columns(Mem.NARROW))
    assert _messages(f"{out}\n{into}\nhalt", [source]) == []
    assert _messages(f"{into}\nhalt", [columns]) == []
    ((message, _),) = _messages(f"{into}\nhalt", [Span(RegionId.DRAM, 128, columns.count - 1)])
    assert message == f"reads dram {128 + columns.count - 1} before it is written"
    ((message, _),) = _messages(f"{out}\nhalt", [Span(RegionId.NARROW, 4, 2)])
    assert message == "reads narrow 6 before it is written"
    problems = verify(assemble(f"{into}\nhalt"), COPYING, constants=[Span(RegionId.NARROW, 9)], inputs=[columns])
    assert [problem.message for problem in problems] == ["overwrites the constant narrow 9"]


@pytest.mark.parametrize(
    "copy, message",
    [
        ("v_copy 0, 0, 60, 5, wide, 1", "meets wide 64, beyond its 64 words"),
        ("v_copy 0, 1048572, 0, 64, wide, 1", f"meets column {(1 << 24) + 191} of the external memory"),
    ],
)
def test_copies_stay_in_their_memories(copy, message):
    assert COPYING.sdram.columns == 1 << 24
    ((found, rule),) = _messages(f"{copy}\nhalt", [Span(RegionId.WIDE, 0, 64)])
    assert message in found and rule is ProgramRule.VECTORS_INSIDE
    memories = Memories(COPYING)
    memories.program[:2] = assemble(f"{copy}\nhalt")
    for machine in (Emulator(memories.copy()), ReferenceMachine(memories.copy())):
        with pytest.raises(ValueError, match="beyond its"):
            machine.run()


@pytest.mark.parametrize(
    "other, meets",
    [
        ("v_copy 0, 12, 0, 8, wide, 1", False),
        ("v_copy 0, 12, 4, 1, narrow, 0", True),
        ("v_copy 0, 4, 0, 22, narrow, 1", True),
        ("v_copy 0, 4, 0, 21, narrow, 1", False),
        ("v_copy 0, 6, 0, 11, narrow, 1", True),
        ("v_copy 0, 6, 0, 10, narrow, 1", False),
        ("v_copy 0, 16, 0, 21, narrow, 1", False),
        ("copy 0, 3, 0, 4", True),
        ("copy 0, 4, 0, 4", False),
    ],
)
def test_vectors_have_columns_of_their_own(other, meets):
    """Wide vectors of four columns are in columns 128 to 255; narrow ones have three. Those of 256 meet no other."""
    words = assemble(f"v_copy 0, 32, 0, 4, wide, 1\nv_copy 0, 8, 0, 32, wide, 1\n{other}\nhalt")
    known = [Span(RegionId.WIDE, 0, 64), Span(RegionId.NARROW, 0, 64), Span(RegionId.DRAM, 0, 4096)]
    expected = _overlapping(trace(words, COPYING))
    assert {problem.pc for problem in verify(words, COPYING, inputs=known)} == expected
    assert bool(expected) is meets
    if not meets:
        return
    memories = Memories(COPYING)
    memories.program[: len(words)] = words
    for machine in (Emulator(memories.copy()), ReferenceMachine(memories.copy())):
        with pytest.raises(ValueError, match=r"where (another|a) v_copy has"):
            machine.run()


def _overlapping(run):
    """Addresses of copies that meet a column in another way than one before does, column by column."""
    met = {}
    for copy in run.items:
        if isinstance(copy, VectorCopy):
            size = COPYING.vector_columns(copy.mem)
            for k in range(copy.columns(COPYING)):
                met.setdefault(copy.column + k, set()).add((copy.pc, copy.mem, copy.column + k // size * size))
    bad = {pc for ways in met.values() if len({way[1:] for way in ways}) > 1 for pc, *_ in sorted(ways)[1:]}
    for copy in run.copies:
        if any(column in met for column in range(copy.column, copy.column + copy.columns(COPYING))):
            bad.add(copy.pc)
    return bad


def test_phases_meet_the_same_vectors():
    words = assemble("v_copy 0, 8, 0, 8, wide, 1\nhalt\nv_copy 0, 8, 0, 8, narrow, 0\nhalt")
    known = [Span(RegionId.WIDE, 0, 8)]
    problems = verify_phases(words, COPYING, [(0, known, []), (2, [], [])])
    assert {problem.rule for problem in problems} == {ProgramRule.VECTORS_APART}
    memories = Memories(COPYING)
    memories.program[:4] = words
    emulator = Emulator(memories)
    emulator.run(0)
    with pytest.raises(ValueError, match="another v_copy"):
        emulator.run(2)


# Batches, derived models and bounds ---------------------------------------------------------------------------------

#: The input goes to the external memory; what comes back is added to its negation, and to what was loaded there.
ROUND_TRIP = """
    set_shape rows=4
    v_rd wide, 0, row=1
    v_wr wide, 8, row=1
    v_wr narrow, 8, row=1
    v_copy 0, 16, 8, 4, wide, 1
    v_copy 0, 32, 8, 4, narrow, 1
    v_rd wide, 20, row=1
    v_wr wide, 8, row=1
    v_wr narrow, 8, row=1
    v_copy 0, 16, 30, 4, wide, 0
    v_copy 0, 32, 30, 4, narrow, 0
    v_copy 0, 48, 40, 4, wide, 0
    v_rd narrow, 30, row=1
    vv_sub 30, row=1
    vv_add 40, row=1
    v_wr wide, 50, row=1
    halt
"""


def _round_trip(config):
    """The program, with four wide vectors in the external memory."""
    memories = random_memories(config, random.Random(2))
    memories.program[:] = 0
    words = assemble(ROUND_TRIP)
    memories.program[: len(words)] = words
    memories.wide[:] = np.random.default_rng(5).normal(size=memories.wide.shape).astype(np.float16).view(np.uint16)
    columns = memories.wide[60:64].ravel()
    memories.dram[64 * 12 : 64 * 12 + columns.size] = columns
    return memories


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.deep)])
def test_every_sample_of_a_batch_has_vectors_of_its_own(compiled):
    memories = _round_trip(COPYING)
    x = np.random.default_rng(3).normal(size=(9, 4, COPYING.native)).astype(np.float16)
    batch = Emulator(memories.copy(), lanes=4, compiled=compiled).run_batch({0: x}, [Span(RegionId.WIDE, 50, 4)])
    for sample, found in zip(x, batch.outputs[0], strict=True):
        alone = memories.copy()
        alone.wide[:4] = sample.view(np.uint16)
        ReferenceMachine(alone).run()
        assert (alone.wide[50:54] == found).all()


#: Two blocks of an input go to the external memory and come back, before a product with both.
PRODUCT = """
    set_shape rows=2
    v_rd wide, 0, row=1
    v_wr narrow, 8, row=1
    v_copy 0, 32, 8, 2, narrow, 1
    v_copy 0, 32, 30, 2, narrow, 0
    set_shape cols=2
    v_rd narrow, 30
    mv_mul 0
    v_wr wide, 50
    halt
"""


def test_sums_of_blocks_that_come_back_are_exact():
    """What decides a tie is too small for a float32 number."""
    memories = Memories(COPYING)
    words, native = assemble(PRODUCT), COPYING.native
    memories.program[: len(words)] = words
    memories.matrix_mant[: 2 * COPYING.steps : COPYING.steps, :, 0] = 63  # of the first element in both tiles
    memories.matrix_exp[:] = -4
    x = np.zeros((8, 2, native), np.float16)
    x[:, 0], x[:, 1] = 65 * 2.0**5, -(2.0**-14) * np.arange(8)[:, None]
    found = Emulator(memories.copy()).run_batch({0: x}, [Span(RegionId.WIDE, 50, 1)]).outputs[0]
    assert (found.view(np.float16)[:, 0] == np.array([8192, *7 * [8188]])[:, None]).all()
    for sample, values in zip(x, found, strict=True):
        alone = memories.copy()
        alone.wide[:2] = sample.view(np.uint16)
        ReferenceMachine(alone).run()
        assert (alone.wide[50:51] == values).all()


def _image(config):
    memories = _round_trip(config)
    segments = [
        MemorySegment.from_words(RegionId.WIDE, 20, memories.read(RegionId.WIDE, 20, 4), config),
        MemorySegment.from_words(RegionId.DRAM, 64 * 12, memories.read(RegionId.DRAM, 64 * 12, 4 * 4), config),
    ]
    ports = [Port("x", RegionId.WIDE, 0, (4, config.native))], [Port("y", RegionId.WIDE, 50, (4, config.native))]
    words = assemble(ROUND_TRIP)
    return Image(config, words, segments, inputs=tuple(ports[0]), outputs=tuple(ports[1])), memories


def test_derived_models_and_bounds_follow_vectors():
    image, memories = _image(COPYING)
    size = 4 * COPYING.native
    x = np.random.default_rng(8).normal(size=(4, COPYING.native)).astype(np.float16)
    bits = constant(x.view(np.uint16))
    flow = symbolic_run(image, {"x": bits}, {"x": size})
    last = flow.instances[-1]
    loaded = pattern(flow.elements[last.mfu_ops[-1].operand.ravel()])
    assert (loaded == memories.wide[60:64]).all(), "what is added last is what was loaded"
    assert (last.source.ravel() == flow.instances[0].narrow.ravel()).all(), "what was written comes back in order"
    extremes = Bounds(image)
    extremes.run({"x": (-1.0, 1.0)})
    low, high = (end[50:54] for end in extremes._store.ends[Mem.WIDE])
    added = memories.wide[60:64].view(np.float16).astype(float)
    assert (low < added - 1.9).all() and (high > added + 1.9).all(), "what the difference of two unknown values can be"
    assert (high - low).max() < 4.1


def test_vectors_are_counted_once():
    words = assemble("loop 3\nv_copy 0, 8, 0, 8, wide, 1\nv_copy 0, 8, 4, 3, wide, 0\nend_loop\nhalt")
    external = ExternalVectors(COPYING, [trace(words, COPYING)])
    assert external.firsts[Mem.WIDE].tolist() == [128 + 4 * k for k in range(8)]
    assert not external.firsts[Mem.NARROW].size
    assert external.slots(external.copies[1]).tolist() == [0, 1, 2]
