"""Derived NumPy files, and what they are compared with."""

import random

import numpy as np

from concord.derive.backends.python_file import write_numpy
from concord.derive.modules import module_of
from concord.host import connect
from concord.image import LOADABLE, Image, MemorySegment, Port
from concord.spec.memmap import RegionId


def load_derived(model, folder, write=write_numpy):
    """The derived file as a module."""
    file = folder / "model.py"
    write(model, file)
    return module_of(file)


def emulated(image, inputs):
    """Outputs of the emulator, every sample from the memories of the image."""
    with connect("emulator", image.config) as device:
        device.load(image)
        with np.errstate(all="ignore"):  # NaNs that signal
            return device.run(inputs)


def same(found, want):
    """Whether all numbers are the same, signs of zeros too; a NaN is a NaN."""
    assert set(found) == set(want)
    for name, values in want.items():
        a, b = np.asarray(found[name], np.float64), np.asarray(values, np.float64)
        assert a.shape == b.shape, name
        number = ~np.isnan(b)
        assert np.array_equal(np.isnan(a), np.isnan(b)), name
        assert np.array_equal(a[number], b[number]), name
        assert np.array_equal(np.signbit(a[number]), np.signbit(b[number])), name


def image_of_memories(words, memories, inputs=6):
    """An image with the contents of memories: some vectors are inputs, everything is an output."""
    config = memories.config
    segments = []
    for region in [region for region in LOADABLE if region is not RegionId.DRAM]:
        depth = memories.region(region).depth
        segments.append(MemorySegment.from_words(region, 0, memories.read(region, 0, depth), config))
    n = config.native
    wide, narrow = (RegionId.WIDE, RegionId.NARROW)
    return Image(
        config,
        tuple(int(word) for word in words),
        tuple(segments),
        (Port("x", wide, 2, (inputs, n)), Port("blocks", narrow, 3, (inputs, n - 1))),
        (
            Port("wide", wide, 0, (config.wide_depth, n)),
            Port("narrow", narrow, 0, (config.narrow_depth, n)),
        ),
    )


def random_inputs(image, samples, seed):
    """Numbers of all sizes."""
    rng = np.random.default_rng(seed)
    found = {}
    for port in image.inputs:
        values = rng.normal(size=(samples, *port.shape)) * np.exp2(rng.integers(-12, 12, (samples, *port.shape)))
        found[port.name] = np.where(
            rng.random(values.shape) < 0.1, rng.choice([0.0, -0.0, 65504.0], values.shape), values
        )
    return found


def program_rng(seed):
    """The generator that random programs are made with."""
    return random.Random(seed)
