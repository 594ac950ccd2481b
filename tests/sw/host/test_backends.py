"""The same script on all back ends: emulator, compiled RTL, and a serial port with the compiled RTL behind it."""

from contextlib import contextmanager

import numpy as np
import pytest

from concord.host import MismatchError, RunTimeout, TrapError, connect
from concord.host.rtl import RtlTransport, find_library
from concord.image import Image
from concord.program.assembler import assemble
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY, UP5K
from support.host_samples import INPUTS, layer_image
from support.pty_bridge import bridged

pytestmark = pytest.mark.slow

#: A program that takes long enough to be looked at while it runs.
LONG = assemble("loop count=4000\n nop\n nop\n end_loop\n halt")


@pytest.fixture(scope="module")
def library():
    return find_library(TINY)


@contextmanager
def connected(target, library):
    """A device on a back end."""
    # A bridge simulates perhaps a million cycles per second: waits of a real clock would last too long.
    config = TINY.replace(clock_hz=500_000)
    if target == "serial":
        transport = RtlTransport(library)
        with bridged(transport) as port, connect(port, config, baud=230_400) as device:
            yield device
        transport.close()
    else:
        with connect(target, config, library=library) as device:
            yield device


def script(device, image, x):
    """What a user does."""
    device.load(image)
    outputs = device.run(x)
    once = device.run({"x": x[:1]})
    return {
        **outputs,
        "once": once["y"],
        "wide": device.read(RegionId.WIDE, 0, TINY.wide_depth),
        "narrow": device.read("NARROW", 0, 16),
        "matrix": device.read("MATRIX", 0, 64),
        "program": device.read("PROGRAM", 0, TINY.program_depth),
        "flags": device.flags(),
        "counters": device.counters(),
    }


@pytest.mark.parametrize("target", ["rtl", "serial"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_the_same_script_gives_the_same_bits(target, scale, library):
    image = layer_image(TINY, weight_scale=1.0 if scale == 1 else 30)
    x = scale * np.random.default_rng(3).normal(size=(3, INPUTS))
    results = []
    for where in ("emulator", target):
        with connected(where, library) as device:
            results.append(script(device, image, x))
    for name, want in results[0].items():
        np.testing.assert_equal(results[1][name], want, err_msg=name)
    assert bool(results[0]["flags"]) == (scale > 1)


@pytest.mark.parametrize("target", ["emulator", "rtl", "serial"])
def test_traps_are_the_same(target, library):
    with connected(target, library) as device:
        device.load(Image(config=TINY, program=(*assemble("nop\nset_iters inner=3 outer=2"), *assemble("end_loop"))))
        with pytest.raises(TrapError, match=r"trap LOOP_STACK at address 2: 0x0000000000000005 \(end_loop\)"):
            device.run({})
        device.load(Image(config=TINY, program=tuple(assemble("nop\n" * TINY.program_depth))))
        with pytest.raises(TrapError, match="trap PC_RANGE at address 128: behind the end of the program memory"):
            device.run({})
        for pc in (TINY.program_depth, 65535):
            device.start(pc)
            with pytest.raises(TrapError, match=f"trap PC_RANGE at address {pc}: behind the end of the program memory"):
                device.wait()
        device.load(layer_image(TINY))
        assert device.run(np.zeros((1, INPUTS)))["y"].shape == (1, 6)


def test_cycles_are_counted(library):
    with connected("rtl", library) as device:
        device.load(layer_image(TINY))
        device.run(np.zeros((1, INPUTS)))
        counters = device.counters()
        assert 20 < counters["CYCLES"] < 400
        assert counters["HAZARD_STALLS"] > 0


@pytest.mark.parametrize("target", ["rtl", "serial"])
def test_a_run_that_lasts(target, library):
    with connected(target, library) as device:
        device.load(Image(config=TINY, program=tuple(LONG)))
        device.wait_cycles = 100
        device.start()
        device.write("WIDE", 1, [77])  # a live region
        assert device.read("WIDE", 1) == [77]
        with pytest.raises(RuntimeError, match="READ at PROGRAM address 0 refused: BUSY"):
            device.read("PROGRAM", 0)
        with pytest.raises(RunTimeout, match=r"still busy after 0\.0 s"):
            device.wait(timeout=0.0)
        device.wait()
        assert device.read("PROGRAM", 0, len(LONG)) == LONG


def test_the_fingerprint_decides(library):
    with pytest.raises(MismatchError, match=r"it is a tiny; expected / device: .*matrix_depth: 8192 / 256"):
        connect("rtl", UP5K, library=library)
    transport = RtlTransport(library)
    with bridged(transport) as port, connect(port) as device:
        assert device.config == TINY
    transport.close()
