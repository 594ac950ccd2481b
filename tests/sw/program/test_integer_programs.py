"""What others make of programs with integer chains: who refuses them, and what the verifier says of them."""

import random

import numpy as np
import pytest

from concord.derive.model import derive_image
from concord.emulator import Emulator
from concord.emulator.machine import BatchPhase
from concord.emulator.outputs import Outputs
from concord.host.emulated import EmulatedDevice
from concord.image import Image, Port
from concord.image.words import to_bytes
from concord.overflow.intervals import Bounds
from concord.program import Span, trace, verify, verify_phases
from concord.program.assembler import assemble, disassemble
from concord.prove.difference_search import DifferenceSearch
from concord.spec.isa import Trap
from concord.spec.memmap import RegionId
from concord.spec.presets import ECP5_25F
from support.integer_contents import EVERYTHING, TRAIN_SMALL, filled
from support.integer_programs import random_case

N = TRAIN_SMALL.native


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_are_sound(seed):
    words, _ = random_case(random.Random(seed), TRAIN_SMALL)
    loaded = [*EVERYTHING, Span(RegionId.MATRIX, 0, 512)]
    assert verify(words, TRAIN_SMALL, inputs=loaded) == []
    text = disassemble(words)
    assert assemble(text) == words


# Who does not know integer chains ----------------------------------------------------------------

PLAIN = assemble("v_rd narrow, 0\nv_wr wide, 0\nhalt")
WITH = assemble("v_rd narrow, 0\nv_wr wide, 0\nt_set 3, 1\nhalt")


def test_batches_are_refused():
    emulator = Emulator(filled())
    emulator.write(RegionId.PROGRAM, 0, WITH)
    with pytest.raises(
        ValueError, match=r"^programs must have no integer chains to be run in batches, not t_set at pc 2$"
    ):
        emulator.run_batch({0: np.zeros((2, 1, N), np.uint16)}, [])
    with pytest.raises(ValueError, match="to be run in batches, not t_set at pc 2"):
        emulator.run_phases([BatchPhase(0, None, Outputs(TRAIN_SMALL, []))])
    watched = Emulator(filled(), watch=lambda *_: None)
    watched.write(RegionId.PROGRAM, 0, WITH)
    with pytest.raises(ValueError, match="to be watched, not t_set at pc 2"):
        watched.run()


def test_others_refuse_by_name():
    trace(PLAIN, TRAIN_SMALL).refuse_integers("be derived")
    with pytest.raises(ValueError, match=r"^programs must have no integer chains to be derived, not i_run at pc 0$"):
        trace(assemble("i_run 4, peak=1\nhalt"), TRAIN_SMALL).refuse_integers("be derived")


def test_what_knows_chains_alone_refuses_images():
    ports = (Port("x", RegionId.NARROW, 0, (1, N)),), (Port("y", RegionId.WIDE, 0, (1, N)),)
    image = Image(TRAIN_SMALL, tuple(WITH), (), *ports)
    with pytest.raises(ValueError, match="to be derived, not t_set at pc 2"):
        derive_image(image)
    with pytest.raises(ValueError, match="to have their sums bounded, not t_set at pc 2"):
        Bounds(image).run({"x": (-1.0, 1.0)})
    with EmulatedDevice(TRAIN_SMALL) as device:
        device.load(image)
        search = DifferenceSearch(device, device, image, str)
        with pytest.raises(ValueError, match="to be searched for the chain that differs, not t_set at pc 2"):
            search.first({"x": np.zeros((1, N))}, 0)


def test_a_device_runs_batches_one_by_one():
    """Each sample begins with what the one before has left, as on hardware."""
    text = """
        t_add 1, 2, 2
        i_src narrow, 0, 0
        i_opd wide, 0, 2
        i_dst wide, 0, 2
        i_run 4, add=1, to_vector=1
        v_rd narrow, 0
        v_wr wide, 0
        halt
    """
    ports = (Port("x", RegionId.NARROW, 0, (1, N)),), (Port("y", RegionId.WIDE, 0, (1, N)),)
    image = Image(TRAIN_SMALL, tuple(assemble(text)), (), *ports)
    x = np.array([[[64.0] * N], [[96.0] * N], [[1.0] * N]])
    with EmulatedDevice(TRAIN_SMALL) as device:
        device.load(image)
        assert np.array_equal(device.run({"x": x})["y"], x)
        words = to_bytes(device.read(RegionId.WIDE, 2, 2), 2 * N).reshape(-1).view("<i4")
        assert words.tolist() == [64 + 96 + 64] * N  # mantissas of 64, 96 and 1
        assert device.counters()["CHAINS"] == 2 and device.counters()["VECTORS"] == 2


def test_weights_that_integer_chains_have_written_are_those_of_other_programs():
    emulator = Emulator(filled(narrow={0: [1] * N, 1: range(N)}))
    steps = TRAIN_SMALL.steps
    product = assemble(f"set_quant mode=static exp=-8\nv_rd narrow, 1\nmv_mul {steps}\nv_wr wide, 0\nhalt")
    write = assemble(f"i_src narrow, 0, 0\ni_row first={N}\ni_run 4, to_row=1\nhalt")
    emulator.write(RegionId.PROGRAM, 0, product + write)
    emulator.run()
    assert not emulator.memories.wide[0].any()
    emulator.run(len(product))
    emulator.run()
    assert emulator.memories.wide[0, 0] and not emulator.memories.wide[0, 1:].any()


# The verifier ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, loaded, problem",
    [
        ("i_src narrow, 0, 3\ni_run 4, to_row=1", [], "reads narrow 3 before it is written"),
        ("i_src wide, 0, 3\ni_run 4, to_row=1", [Span(RegionId.WIDE, 3)], "reads wide 4 before it is written"),
        ("i_src product\ni_run 4, to_row=1", [Span(RegionId.NARROW, 0)], "reads matrix 0, 1 before it is written"),
        ("t_mul 1, 2, 3", [Span(RegionId.TENSORS, 2)], "reads tensors 3 before it is written"),
        ("t_scale 1, 2, 3", [Span(RegionId.TENSORS, 2)], "reads factors 3 before it is written"),
        ("t_set 2, 0\nt_add 3, 2, 2", [], ""),
        ("t_upd 1, 2, 8\ni_src wide\ni_opd narrow\ni_run 4, round1=1, update=1",
         [Span(RegionId.WIDE, 0, 2), Span(RegionId.NARROW, 0), Span(RegionId.TENSORS, 1)],
         "reads wide 8 before it is written; reads tensors 2 before it is written"),
        ("v_rd narrow, 0\nm_wr 0\ni_src product\ni_opd narrow, 1\ni_run 4, to_row=1",
         [Span(RegionId.NARROW, 0, 2), Span(RegionId.MATRIX, 0, 9)],
         "multiplies matrix 0, 1, whose exponents are those of an m_wr"),
        ("v_rd narrow, 0\nm_wr 0\ni_src narrow\ni_run 4, to_row=1\ni_src product\ni_run 4, to_row=1",
         [Span(RegionId.NARROW, 0, 2), Span(RegionId.MATRIX, 0, 9)], ""),
        ("i_src narrow\ni_run 4, peak=1, tensor=5", [Span(RegionId.NARROW, 0)], "reads tensors 5 before it is written"),
    ],
)  # fmt: skip
def test_the_verifier_knows_what_was_written(text, loaded, problem):
    problems = verify(assemble(f"{text}\nhalt"), TRAIN_SMALL, inputs=loaded)
    assert "; ".join(found.message for found in problems) == problem


def test_the_verifier_marks_what_chains_write():
    text = f"""
        i_src narrow, 0, 0
        i_dst wide, 0, 4
        i_run 4, to_vector=1
        set_shape rows={N}
        i_src narrow, 0, 0
        i_col 0, row=1
        i_run 4, to_column=1
        set_shape rows=1
        i_src product, 0, 0
        i_run 4, to_vector=1
        halt
    """
    outputs = [Span(RegionId.WIDE, 4, 2)]
    assert verify(assemble(text), TRAIN_SMALL, inputs=[Span(RegionId.NARROW, 0)], outputs=outputs) == []
    shorter = text.replace(f"rows={N}", f"rows={N - 1}")
    problems = verify(assemble(shorter), TRAIN_SMALL, inputs=[Span(RegionId.NARROW, 0)])
    assert [found.message for found in problems] == ["reads matrix 1 before it is written"]


@pytest.mark.parametrize(
    "text, constant, problem",
    [
        ("i_dst narrow, 0, 7\ni_run 4, to_vector=1", Span(RegionId.NARROW, 7), "overwrites the constant narrow 7"),
        ("i_dst wide, 0, 6\ni_run 4, to_vector=1", Span(RegionId.WIDE, 7), "overwrites the constant wide 7"),
        ("i_col 8\ni_run 4, to_column=1", Span(RegionId.MATRIX, 2), "overwrites the constant matrix 2"),
        ("i_row 8\ni_run 4, to_row=1", Span(RegionId.MATRIX, 3), "overwrites the constant matrix 3"),
        ("t_set 9, 0", Span(RegionId.TENSORS, 9), "overwrites the constant tensors 9"),
    ],
)
def test_the_verifier_keeps_constants(text, constant, problem):
    inputs = [Span(RegionId.NARROW, 0)]
    problems = verify(assemble(f"{text}\nhalt"), TRAIN_SMALL, inputs=inputs, constants=[constant])
    assert [found.message for found in problems] == [problem]


def test_every_phase_begins_without_an_update():
    """The distance of accumulators is 0 in a run without t_upd, whatever the run before had."""
    first = assemble("t_upd 1, 2, 8\nhalt")
    second = assemble("i_src wide\ni_opd narrow, 0, 4\ni_run 4, round1=1, update=1\nhalt")
    inputs = [Span(RegionId.WIDE, 0, 2), Span(RegionId.NARROW, 4), Span(RegionId.TENSORS, 0, 3)]
    problems = verify_phases(first + second, TRAIN_SMALL, [(0, inputs, []), (len(first), [], [])])
    assert [found.message for found in problems] == ["reads wide 4 before it is written"]


# Configurations without them ---------------------------------------------------------------------


@pytest.mark.parametrize("word", [0x32, 0x37, 0x3A, 0x3F, 0x38 | 3 << 6, 0x0D | 1 << 60])
def test_what_a_configuration_does_not_have_is_no_operation_whatever_its_fields(word):
    assert trace([word], ECP5_25F).trap is Trap.BAD_OPCODE


def test_words_of_others_do_not_wait_where_they_are_none():
    for word in (0x30, 0x3F):
        before = [*assemble("v_rd wide, 0\nv_wr wide, 1"), word]
        assert [event.waits for event in trace(before, ECP5_25F).events] == [False, False]


def test_the_verifier_follows_updates_in_loops():
    body = """
        t_fit 10, 2, 32, 1
        t_upd 1, 10, 100
        i_src wide, addr=0
        i_opd narrow, addr=20
        i_run 5, round1=1, update=1
        t_upd 3, 10, 480
        i_src wide, addr=2
        i_opd narrow, addr=30
        i_run 5, round1=1, update=1
    """
    spans = [
        Span(RegionId.TENSORS, 1, 3), Span(RegionId.WIDE, 0, 4), Span(RegionId.WIDE, 120), Span(RegionId.WIDE, 510),
        Span(RegionId.NARROW, 20), Span(RegionId.NARROW, 30),
    ]  # fmt: skip
    for turns in (1, 2):
        assert verify(assemble(f"loop {turns}\n{body}\nend_loop\nhalt"), TRAIN_SMALL, inputs=spans) == []
