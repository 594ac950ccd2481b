"""Runs in phases: the memories stay, parts of ports are exchanged in between, and all back ends do the same."""

from dataclasses import replace

import numpy as np
import pytest

from concord.host import TrapError, connect
from concord.image import Image, ImageError, Phase, Port, PortRange
from concord.program import Span, verify_phases
from concord.program.assembler import assemble
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY

#: Running sums of three vectors, one per phase; the second and third phase share their instructions but for the first.
PROGRAM = """
    v_rd wide, 0
      v_wr wide, 8
      v_wr narrow, 3
    halt
    inc_addr 1, 1
    v_rd wide, 0
      vv_add 8
      v_wr wide, 8
      v_wr narrow, 4, reg=1
    halt
"""
IMAGE = Image(
    config=TINY,
    program=tuple(assemble(PROGRAM)),
    inputs=(Port("x", RegionId.WIDE, 0, (3, 4)), Port("late", RegionId.WIDE, 1, (2,))),
    outputs=(Port("sums", RegionId.WIDE, 8, (3, 4)), Port("kept", RegionId.NARROW, 3, (3, 4), "float64")),
    phases=(
        Phase(0, (PortRange("x", 0, 1, 0),), (PortRange("sums", 0, 1, 8),)),
        Phase(5, (PortRange("x", 1, 1, 0),), (PortRange("sums", 1, 1, 8),)),
        Phase(
            4,
            (PortRange("x", 2, 1, 0), PortRange("late", 0, 1, 1)),
            (PortRange("sums", 2, 1, 8), PortRange("kept", 0, 3, 3)),
        ),
    ),
)


def samples(count):
    rng = np.random.default_rng(count)
    return {
        "x": rng.integers(-20, 20, (count, 3, 4)).astype(float),
        "late": rng.integers(0, 9, (count, 2)).astype(float),
    }


@pytest.mark.slow
@pytest.mark.parametrize("back_end", ["emulator", "rtl"])
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_run_is_all_of_its_phases(back_end, count):
    x = samples(count)
    with connect(back_end, TINY) as device:
        device.load(IMAGE)
        for _ in range(2):  # what the batch before has left does not matter
            got = device.run(x)
            np.testing.assert_array_equal(got["sums"], np.cumsum(x["x"], axis=1))
            np.testing.assert_array_equal(got["kept"], np.cumsum(x["x"], axis=1))
        if count:
            last = [*np.cumsum(x["x"][-1], axis=0)[2]]
            port = Port("last", RegionId.WIDE, 8, (4,))
            assert port.decode(device.read("wide", 8), TINY).tolist() == last
            late = Port("late", RegionId.WIDE, 1, (2,))
            assert late.decode(device.read("wide", 1), TINY).tolist() == x["late"][-1].tolist()
            counters = device.counters()
            assert (counters["CHAINS"], counters["VECTORS"]) == (3, 3)
            for chains, adds in [(1, False), (2, True), (3, True), (1, False)]:
                device.start(5, adds=adds)
                device.wait()
                assert device.counters()["CHAINS"] == chains


@pytest.mark.slow
def test_cycles_are_those_of_all_phases():
    counts = []
    with connect("rtl", TINY) as device:
        device.load(IMAGE)
        device.run(samples(1))
        whole = device.counters()["CYCLES"]
        for phase in IMAGE.phases:
            device.start(phase.pc)
            device.wait()
            counts.append(device.counters()["CYCLES"])
    assert whole == sum(counts)


@pytest.mark.parametrize("workers", [1, 2])
def test_lanes_begin_every_sample_with_the_contents_of_the_memories(workers):
    """A word that one phase reads and a later one overwrites is there again for the next chunk of the batch."""
    from concord.emulator.machine import Emulator
    from concord.host.emulated import EmulatedDevice

    text = "v_rd wide, 0\nvv_add 5\nv_wr wide, 6\nhalt\nv_rd wide, 0\nv_wr wide, 5\nhalt"
    port, part = Port("x", RegionId.WIDE, 0, (4,)), PortRange("x", 0, 1, 0)
    image = Image(
        TINY, tuple(assemble(text)), inputs=(port,), outputs=(Port("y", RegionId.WIDE, 6, (4,)),),
        phases=(Phase(0, (part,)), Phase(4, (), (PortRange("y", 0, 1, 6),))),
    )  # fmt: skip
    x = np.arange(28.0).reshape(7, 4)
    with EmulatedDevice(TINY) as device:
        device._emulator = Emulator(TINY, lanes=2, workers=workers)
        device.load(image)
        device.write("wide", 5, Port("c", RegionId.WIDE, 5, (4,)).encode(np.full(4, 100.0), TINY))
        np.testing.assert_array_equal(device.run(x), x + 100)
        np.testing.assert_array_equal(device.run(x), x + x[-1])  # from what the last sample has left


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_a_trap_ends_the_run(late, count):
    first, second, third = IMAGE.phases
    if late:  # nothing is written before the trap
        given = (*first.inputs, *second.inputs, *third.inputs)
        first, second, third = replace(first, inputs=()), replace(second, inputs=()), replace(third, inputs=given)
    with connect("emulator", TINY) as device:
        device.load(replace(IMAGE, phases=(first, replace(second, pc=120), third)))
        with pytest.raises(TrapError, match="BAD_OPCODE"):
            device.run(samples(count))
        assert device.counters()["CHAINS"] == 1


def test_files_hold_the_phases(tmp_path):
    IMAGE.save(tmp_path / "image")
    assert Image.load(tmp_path / "image") == IMAGE
    assert IMAGE.schedule() == IMAGE.phases
    assert replace(IMAGE, phases=()).schedule(3) == (
        Phase(
            3,
            (PortRange("x", 0, 3, 0), PortRange("late", 0, 1, 1)),
            (PortRange("sums", 0, 3, 8), PortRange("kept", 0, 3, 3)),
        ),
    )
    with pytest.raises(ValueError, match="pc must be 0 for an image in phases, not 4"):
        IMAGE.schedule(4)


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        (Phase(128), r"phases must begin in 0\.\.127, not at 128"),
        (Phase(0, (PortRange("sums", 0, 1, 0),)), r"parts that are written must be of \['late', 'x'\], not of 'sums'"),
        (Phase(0, (), (PortRange("x", 0, 1, 0),)), r"parts that are read must be of \['kept', 'sums'\], not of 'x'"),
        (Phase(0, (PortRange("x", 0, 1, 64),)), r"x must lie in 0\.\.63, not 64\.\.64"),
        (Phase(0, (PortRange("x", 2, 2, 0),)), r"a part of x must lie in 0\.\.2, not 2\.\.3"),
    ],
)
def test_phases_that_are_refused(phase, message):
    with pytest.raises(ImageError, match=message):
        replace(IMAGE, phases=(*IMAGE.phases, phase)).check()


def test_no_vector_of_a_port_may_be_left_out():
    with pytest.raises(ImageError, match="every vector of x must be written in some phase, but 2 is not"):
        replace(IMAGE, phases=(*IMAGE.phases[:2], replace(IMAGE.phases[2], inputs=()))).check()
    with pytest.raises(ImageError, match="every vector of sums must be read in some phase, but 0 is not"):
        replace(IMAGE, phases=(replace(IMAGE.phases[0], outputs=()), *IMAGE.phases[1:])).check()


def test_the_verifier_follows_the_phases():
    def spans(parts, ports):
        regions = {port.name: port.region for port in ports}
        return [Span(regions[part.port], part.address, part.count) for part in parts]

    phases = [(p.pc, spans(p.inputs, IMAGE.inputs), spans(p.outputs, IMAGE.outputs)) for p in IMAGE.phases]
    assert verify_phases(IMAGE.program, TINY, phases) == []
    (problem,) = verify_phases(IMAGE.program, TINY, phases[1:2])
    assert str(problem).endswith("vv_add reads wide 8 before it is written")
    (problem,) = verify_phases(IMAGE.program, TINY, [phases[0], phases[2]])
    assert str(problem).endswith("never writes the output narrow 4")
