"""The example programs: sound, fresh as text, and close to their float references."""

from pathlib import Path

import numpy as np
import pytest

from concord.asm import assemble
from concord.emulator import Memories, ReferenceMachine
from concord.examples import EXAMPLES, conv1x1, conv3x3, depthwise3x3, gru, lstm, maxpool3x3, render, residual, softmax
from concord.host import connect
from concord.sheet import CapacityError
from concord.spec.config import TINY, preset
from concord.spec.formats import Flag
from concord.spec.isa import Trap
from concord.spec.memmap import RegionId

DOCS = Path(__file__).parents[2] / "docs" / "examples"

SMALL = {
    "lstm": lambda: lstm(TINY, hidden=8, inputs=4, steps=3),
    "lstm-square": lambda: lstm(TINY, hidden=4, inputs=4, steps=1),
    "gru": lambda: gru(TINY, hidden=8, inputs=4, steps=3),
    "gru-square": lambda: gru(TINY, hidden=4, inputs=4, steps=1),
    "conv1x1": lambda: conv1x1(TINY, side=3, inputs=8, outputs=8),
    "conv3x3": lambda: conv3x3(TINY, side=3, inputs=4, outputs=4),
    "conv3x3-even": lambda: conv3x3(TINY, side=4, inputs=4, outputs=4),
    "depthwise3x3": lambda: depthwise3x3(TINY, side=3, channels=8),
    "maxpool3x3": lambda: maxpool3x3(TINY, side=3, channels=8),
    "residual": lambda: residual(TINY, side=3, channels=4),
    "softmax": lambda: softmax(TINY),
}


def load(image):
    """Memories with an image in them."""
    memories = Memories(image.config)
    memories.write(RegionId.PROGRAM, 0, list(image.program))
    for part in image.segments:
        memories.write(part.region, part.start, part.words())
    return memories


def reference_run(image, sample):
    """One run on the reference machine: result and memories."""
    config, (given,), (asked,) = image.config, image.inputs, image.outputs
    memories = load(image)
    memories.write(given.region, given.address, given.encode(sample, config))
    assert ReferenceMachine(memories).run().trap is Trap.NONE
    words = memories.read(asked.region, asked.address, asked.vectors(config))
    return asked.decode(words, config), memories


@pytest.mark.parametrize("name", SMALL)
def test_small_examples_are_close_to_float(name):
    example = SMALL[name]()
    x = example.samples(2)
    image = example.image()
    results = np.stack([reference_run(image, sample)[0] for sample in x])
    assert example.error(results, x) < example.tolerance


@pytest.mark.parametrize("name", SMALL)
def test_emulator_agrees_with_the_reference_machine(name):
    example = SMALL[name]()
    x, image = example.samples(2), example.image()
    with connect("emulator", TINY) as device:
        device.load(image)
        results = device.run(x)
    for sample, result in zip(x, results, strict=True):
        assert reference_run(image, sample)[0].tobytes() == result.tobytes()


@pytest.mark.parametrize("name", EXAMPLES)
def test_usual_sizes_are_close_to_float(name):
    config = preset("ecp5-85f")
    example = EXAMPLES[name](config)
    x = example.samples(4)
    with connect("emulator", config) as device:
        device.load(example.image())
        assert example.error(device.run(x), x) < example.tolerance


@pytest.mark.parametrize("name", SMALL)
def test_examples_raise_no_flags(name):
    example = SMALL[name]()
    flags = reference_run(example.image(), example.samples(1)[0])[1].flag_union()
    assert not flags & (1 << Flag.ACC_OVERFLOW | 1 << Flag.HALF_OVERFLOW | 1 << Flag.NONFINITE)


@pytest.mark.parametrize("name", SMALL)
def test_a_wrong_weight_shows(name):
    """The comparison can fail: negated results are out of tolerance."""
    example = SMALL[name]()
    x = example.samples(1)
    result, _ = reference_run(example.image(), x[0])
    assert example.error(-result[None], x) > example.tolerance


@pytest.mark.parametrize("name", EXAMPLES)
def test_usual_sizes_fit_and_are_sound(name):
    image = EXAMPLES[name](preset("ecp5-85f")).image()
    assert len(image.program) <= image.config.program_depth


@pytest.mark.parametrize("name", EXAMPLES)
def test_text_is_fresh_and_assembles(name):
    text = (DOCS / f"{name}.casm").read_text(encoding="utf-8")
    assert text == render(name), "run `python -m concord.examples`"
    assert tuple(assemble(text)) == EXAMPLES[name](preset("ecp5-85f")).image().program


def test_softmax_is_a_distribution():
    example = softmax(preset("ecp5-85f"))
    x = 4 * example.samples(1)
    y, _ = reference_run(example.image(), x[0])
    assert y.sum() == pytest.approx(1, abs=0.03)
    assert y.argmax() == x[0].argmax()


def test_capacity_error_names_memory_and_tenants():
    with pytest.raises(CapacityError, match=r"tiny: matrix memory has 256 words, but 4096 are needed \(wx_i 512"):
        lstm(TINY, hidden=64, inputs=64)


def test_sheet_refuses_a_name_twice():
    sheet = softmax(TINY).sheet
    with pytest.raises(ValueError, match="name must be new, not 'top'"):
        sheet.wide("top", 1)


def test_unsound_program_is_refused():
    sheet = softmax(TINY).sheet
    words = assemble("v_rd wide, 40\nv_wr wide, 41\nhalt\n")
    with pytest.raises(ValueError, match=r"not sound: .*before it is written"):
        sheet.image(words)
