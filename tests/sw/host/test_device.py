"""What every device does, tried on the emulator."""

from dataclasses import replace

import numpy as np
import pytest

from concord.golden import binary16
from concord.host import DeviceError, TrapError, connect
from concord.host.errors import BadRegionError
from concord.host.tensors import check_batch
from concord.image import Image, ImageError, Port, pack_vectors
from concord.program.assembler import assemble
from concord.spec.formats import Flag
from concord.spec.isa import OPCODE_BITS, Op, Trap
from concord.spec.memmap import MAGIC, Reg, RegionId
from concord.spec.presets import TINY, UP5K
from support.host_samples import INPUTS, LAYER, OUTPUTS, layer_image, layer_reference

PORT = Port("x", RegionId.WIDE, 0, (2, 3))
SCALAR = Port("s", RegionId.WIDE, 9, ())


@pytest.fixture
def device():
    with connect("emulator", TINY) as device:
        yield device


def samples(count, seed=2):
    return np.random.default_rng(seed).normal(size=(count, INPUTS))


# Batches ------------------------------------------------------------------------------------------


def test_batches_by_name_and_alone():
    batch, size = check_batch([PORT], np.ones((4, 2, 3), np.float32))
    assert size == 4
    assert batch["x"].dtype == np.float32
    batch, size = check_batch([PORT, SCALAR], {"s": [1, 2], "x": np.zeros((2, 2, 3), bool)})
    assert size == 2
    assert {values.dtype for values in batch.values()} == {np.dtype(np.float64)}
    assert check_batch([], {}) == ({}, 1)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (np.zeros((2, 3)), r"x must have shape \[batch, 2, 3\], not \[2, 3\]"),
        (np.zeros((4, 3, 2)), r"x must have shape \[batch, 2, 3\], not \[4, 3, 2\]"),
        (1.0, r"x must have shape \[batch, 2, 3\], not \[\]"),
        ({"y": np.zeros((4, 2, 3))}, r"inputs must have the names \['x'\], not \['y'\]"),
        ({}, r"inputs must have the names \['x'\], not \[\]"),
        (np.full((1, 2, 3), np.nan), r"x must hold finite numbers .* not nan at \[0, 0, 0\] \(6 such values\)"),
        ([[[0, 0, 0], [0, -np.inf, 0]]], r"not -inf at \[0, 1, 1\] \(1 such values\)"),
        ([[[0, 0, 0], [65520, 0, 0]]], r"within ±65504 \(binary16\), not 65520.0 at \[0, 1, 0\]"),
    ],
)
def test_batches_that_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        check_batch([PORT], inputs)


def test_more_batches_that_are_refused():
    with pytest.raises(ValueError, match=r"must be a mapping with the names \['x', 's'\], not one array"):
        check_batch([PORT, SCALAR], np.zeros((2, 2, 3)))
    with pytest.raises(ValueError, match=r"same number of samples, not {'x': 2, 's': 3}"):
        check_batch([PORT, SCALAR], {"x": np.zeros((2, 2, 3)), "s": [1, 2, 3]})
    with pytest.raises(TypeError, match="x must be an array of real numbers, not of complex128"):
        check_batch([PORT], np.zeros((1, 2, 3), complex))
    with pytest.raises(TypeError, match="real numbers, not of <U1"):
        check_batch([PORT], [["a"]])


@pytest.mark.parametrize("sign", [1, -1])
def test_the_greatest_input_is_the_one_that_rounds_to_a_number(sign):
    """Half an ulp beyond 65504 is an infinity."""
    least = 65520.0
    batch, _ = check_batch([SCALAR], {"s": [sign * np.nextafter(least, 0)]})
    assert np.isfinite(binary16.decode(binary16.encode(batch["s"]))).all()
    assert np.isinf(binary16.decode(binary16.encode(sign * least)))
    with pytest.raises(ValueError, match="must hold finite numbers"):
        check_batch([SCALAR], {"s": [sign * least]})


def test_values_round_to_nearest_even():
    values = [[[65519.99, -65519.99, 2049], [2051, 2**-25, 2**-24 * 1.5]]]
    batch, _ = check_batch([PORT], values)
    words = PORT.encode(batch["x"][0], TINY)
    got = PORT.decode(words, TINY)
    assert got.tolist() == [[65504, -65504, 2048], [2052, 0, 2**-23]]


# Running ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 40])
def test_run(device, count):
    image = layer_image(TINY)
    device.load(image)
    x = samples(count)
    outputs = device.run(x)
    assert outputs["y"].dtype == np.float32
    assert outputs["y"].shape == outputs["z"].shape == (count, OUTPUTS)
    np.testing.assert_allclose(outputs["y"], layer_reference(image, x), atol=0.03)
    np.testing.assert_allclose(outputs["z"], outputs["y"], atol=0.03)
    singles = [device.run({"x": x[n : n + 1]}) for n in range(count)]
    for name in outputs:
        np.testing.assert_array_equal(outputs[name], np.concatenate([single[name] for single in singles]))


def test_one_output_comes_as_an_array(device):
    image = layer_image(TINY)
    device.load(Image(**vars(image) | {"outputs": image.outputs[:1]}))
    x = samples(3)
    assert device.run(x).shape == (3, OUTPUTS)
    assert set(device.run({"x": x})) == {"y"}


def test_an_empty_batch(device):
    device.load(layer_image(TINY))
    assert device.run(samples(0))["y"].shape == (0, OUTPUTS)


def test_memories_after_a_batch_are_those_of_its_last_run(device):
    device.load(layer_image(TINY))
    x = samples(5)
    outputs = device.run(x)
    port = device.image.port("y")
    words = device.read("WIDE", port.address, port.vectors(TINY))
    np.testing.assert_array_equal(port.decode(words, TINY), outputs["y"][-1])
    assert device.read("WIDE", 0, 2) == pack_vectors(x[-1], TINY)


def test_memories_after_a_batch_do_not_follow_its_array(device):
    device.load(layer_image(TINY))
    x = samples(5).astype(np.float32)
    last = x[-1].copy()
    device.run(x)
    x[:] = 0
    assert device.read("WIDE", 0, 2) == pack_vectors(last, TINY)


def test_cleared_flags_stay_cleared_when_memories_are_read(device):
    device.load(layer_image(TINY, weight_scale=100))
    device.run(1e4 * samples(3))
    assert device.flags()
    device.clear_flags()
    device.read("WIDE", 0, 2)
    assert not device.flags()


@pytest.mark.parametrize("count", [1, 5])
def test_types_of_numbers_do_not_matter(device, count):
    device.load(layer_image(TINY))
    x = samples(count).astype(np.float32)
    singles, doubles = device.run(x), device.run(x.astype(np.float64))
    across = device.run(np.asfortranarray(x))
    for name in singles:
        np.testing.assert_array_equal(singles[name], doubles[name])
        np.testing.assert_array_equal(singles[name], across[name])


def test_counters(device):
    device.load(layer_image(TINY))
    device.run(samples(3))
    want = {"DENSE_STEPS": 8, "DEPTHWISE_STEPS": 0, "CHAINS": 2, "VECTORS": 4}
    counters = device.counters()
    assert counters == want | {"CYCLES": counters["CYCLES"], "HAZARD_STALLS": counters["HAZARD_STALLS"]}
    assert counters["CYCLES"] == device.read(RegionId.REGS, Reg.CYCLES)[0] > 20


def test_flags(device):
    image = layer_image(TINY, weight_scale=30)
    product = next(n for n, line in enumerate(LAYER.split("\n")[1:]) if "v_rd narrow" in line)
    device.load(image)
    assert device.flags() == {}
    device.run(samples(4) * 1e4)
    assert device.flags() == {product: (Flag.ACC_OVERFLOW, Flag.HALF_OVERFLOW, Flag.NONFINITE)}
    assert device.read("REGS", Reg.FLAGS_ANY) == [0b0111]
    device.clear_flags()
    assert device.flags() == {}


def test_a_trap_names_the_word(device):
    free = max({*range(1 << OPCODE_BITS)} - {*map(int, Op)})
    program = [*assemble("set_shape rows=2"), free, *assemble("halt")]
    device.load(Image(config=TINY, program=tuple(program)))
    with pytest.raises(TrapError, match=rf"trap BAD_OPCODE at address 1: {free:#018x} \(operation code") as caught:
        device.run({})
    assert (caught.value.trap, caught.value.pc, caught.value.word) == (Trap.BAD_OPCODE, 1, free)
    status = device.read("REGS", Reg.STATUS)
    assert status == [0b100]
    device.load(layer_image(TINY))
    device.run(samples(1))
    assert device.read("REGS", Reg.STATUS) == [0b010]


def test_a_trap_in_a_batch(device):
    image = layer_image(TINY)
    device.load(Image(**vars(image) | {"program": (*image.program[:-1], *assemble("end_loop"))}))
    with pytest.raises(TrapError, match=r"trap LOOP_STACK at address \d+: 0x\w+ \(end_loop\)"):
        device.run(samples(4))


def test_a_trap_behind_the_end(device):
    device.load(Image(config=TINY, program=tuple(assemble("nop\n" * TINY.program_depth))))
    with pytest.raises(TrapError, match="trap PC_RANGE at address 128: behind the end of the program memory"):
        device.run({})


# Refusals -----------------------------------------------------------------------------------------


def test_an_image_for_another_configuration(device):
    with pytest.raises(ImageError, match=r"another configuration: fingerprint .*matrix_depth: 8192 / 256"):
        device.load(layer_image(UP5K))
    with pytest.raises(DeviceError, match="an image must be loaded first"):
        device.run(samples(1))


def test_memory_access(device):
    assert device.fingerprint == TINY.fingerprint
    device.write("program", 3, [1, 2, 3])
    assert device.read(RegionId.PROGRAM, 4, 2) == [2, 3]
    assert device.read(RegionId.REGS, Reg.MAGIC, 1) == [MAGIC]
    device.write(RegionId.SLOTS, 0, [5 << 9])  # low 0, high 5
    with pytest.raises(BadRegionError, match="SLOTS cannot be read"):
        device.read("SLOTS", 0)
    with pytest.raises(BadRegionError, match="REGS cannot be written"):
        device.write("REGS", Reg.CONTROL, [1])
    with pytest.raises(ValueError, match=r"region must be one of .*'WIDE'.*, not 'NOWHERE'"):
        device.read("NOWHERE", 0)
    with pytest.raises(ValueError, match=r"words of WIDE must lie in 0\.\.63, not 60\.\.64"):
        device.read("WIDE", 60, 5)
    with pytest.raises(ValueError, match=r"words of WIDE must lie in 0\.\.63, not -1\.\.0"):
        device.write("WIDE", -1, [0, 0])
    width = TINY.narrow_word.width
    with pytest.raises(ValueError, match=f"words of NARROW must have {width} bits, not {1 << width}"):
        device.write("NARROW", 0, [1 << width])
    with pytest.raises(ValueError, match=r"pc must be in 0\.\.65535, not 65536"):
        device.start(65536)


def test_a_closed_device():
    device = connect("emulator", TINY)
    device.close()
    with pytest.raises(DeviceError, match="was closed"):
        device.read("WIDE", 0)


def test_connect_needs_to_know_what_to_build():
    for target in ("emulator", "rtl"):
        with pytest.raises(ValueError, match=f"config must be given for '{target}'"):
            connect(target)


def test_narrow_inputs_and_scalars(device):
    text = """
        v_rd narrow, 0
          vv_mul 5
          v_wr wide, 6
        halt
    """
    ports = (Port("x", RegionId.NARROW, 0, (3,)), Port("s", RegionId.WIDE, 5, ()))
    image = Image(config=TINY, program=tuple(assemble(text)), inputs=ports, outputs=(Port("y", RegionId.WIDE, 6, ()),))
    device.load(image)
    x, s = np.array([[1.0, 2, 3], [-0.5, 8, 4]]), np.array([3.0, 5.0])
    np.testing.assert_array_equal(device.run({"x": x, "s": s})["y"], [3.0, -2.5])


def test_another_image_after_a_batch(device):
    device.load(layer_image(TINY))
    device.run(samples(3))
    other = layer_image(device.config, weight_scale=2.0)
    port = Port("w", RegionId.WIDE, 0, (2, 3))
    device.load(replace(other, inputs=(port,)))
    outputs = device.run(np.ones((3, 2, 3)))
    assert np.array_equal(outputs["y"][0], outputs["y"][2])


@pytest.mark.parametrize("flag", Flag)
def test_every_flag_alone(flag, device):
    device.write("flags", 3, [1 << flag])
    assert device.flags() == {3: (flag,)}


def test_the_last_word_of_a_memory(device):
    for name in ("wide", "program", "flags"):
        last = device.regions[RegionId[name.upper()]].depth - 1
        device.write(name, last, [1])
        assert device.read(name, last - 1, 2) == [0, 1]
        with pytest.raises(ValueError, match=f"must lie in 0..{last}, not {last}..{last + 1}"):
            device.read(name, last, 2)
