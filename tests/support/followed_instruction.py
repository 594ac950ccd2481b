"""Runs ``v_abs``, the instruction of docs/howto/instruction.md, in sources in which the page has been followed.

``test_howto.py`` calls it in a process of its own: ``python -m support.followed_instruction emulator FOLDER``, or
``rtl``, ``rtl_serial``, or one of the back ends.
"""

import sys
from pathlib import Path

import numpy as np

from concord.cycles import count
from concord.derive.model import derive_image
from concord.emulator import Emulator, ReferenceMachine
from concord.emulator.fused import installed
from concord.host import connect
from concord.host.rtl import find_library
from concord.image import Memories
from concord.overflow.intervals import Bounds
from concord.program import Span
from concord.program.assembler import assemble
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY, UP5K
from support import derived_backends
from support.derived_modules import image_of_memories, same
from support.device_runs import compare, load

#: Of numbers 2 to 5 to 16 to 19, and from there to 20 to 23.
PROGRAM = """
set_shape rows=4
v_rd wide, 2, row=1
v_abs
v_wr wide, 16, row=1
v_rd wide, 16, row=1
vv_sub 2, row=1
v_abs unit=1
v_wr wide, 20, row=1
halt
"""
WORDS = assemble(PROGRAM)


def program(config):
    """Memories with the program, and numbers of all kinds."""
    memories, n = Memories(config), config.native
    memories.program[: len(WORDS)] = WORDS
    bits = np.random.default_rng(3).integers(0, 1 << 16, (4, n)).astype(np.uint16)
    bits[0, :4] = 0x8000, 0x0000, 0xFC00, 0xFE01
    memories.wide[2:6] = bits
    return memories


def expected(bits):
    """The magnitude by hand."""
    return np.where(bits & 0x7FFF > 0x7C00, 0x7E00, bits & 0x7FFF)


def emulator(folder):
    """Definition, both engines of the emulator, bounds."""
    memories = program(TINY)
    want = memories.copy()
    ReferenceMachine(want).run()
    assert np.array_equal(want.wide[16:20], expected(memories.wide[2:6]))
    assert (want.wide[20:24] >> 15 == 0).all()
    every = np.arange(1 << 16, dtype=np.uint16).reshape(-1, 4, 4)
    for compiled in (False, True) if installed() else (False,):
        result = Emulator(memories, compiled=compiled).run_batch({2: every}, [Span(RegionId.WIDE, 16, 4)])
        assert np.array_equal(result.outputs[0], expected(every))
    image = image_of_memories(WORDS, memories)
    bounds = Bounds(image)
    bounds.run({port.name: (-3.0, 2.0) for port in image.inputs})
    low, high = bounds._store.ends[Mem.WIDE]
    assert (low[16:20].min(), high[16:20].max()) == (0.0, 3.0)


def derived(folder, run):
    """A back end against the emulator."""
    image = image_of_memories(WORDS, program(TINY))
    rng = np.random.default_rng(4)
    inputs = {port.name: rng.normal(0, 100, (5, *port.shape)).astype(np.float16) for port in image.inputs}
    with connect("emulator", TINY) as device:
        device.load(image)
        want = device.run(inputs)
    outputs, _ = run(derive_image(image, False), folder, inputs)
    same(outputs, want)


def on_rtl(config):
    """An NPU with its cycles."""
    memories = program(config)
    with connect("rtl", config, library=find_library(config)) as device:
        load(device, memories)
        device.start(0)
        device.wait()
        run = compare(device, memories)
    assert count(WORDS, config).cycles == run.cycles


def main(part, folder):
    """One part of it."""
    if part == "emulator":
        emulator(Path(folder))
    elif part in (npus := {"rtl": TINY, "rtl_serial": UP5K}):
        on_rtl(npus[part])
    else:
        derived(Path(folder), getattr(derived_backends, part))


if __name__ == "__main__":
    main(*sys.argv[1:])
