"""The example programs: sound, fresh as text, and close to their float references."""

from pathlib import Path

import pytest

from concord.examples import EXAMPLES, lstm, render, softmax
from concord.host import connect
from concord.program.allocator import CapacityError
from concord.program.assembler import assemble
from concord.spec.formats import Flag
from concord.spec.presets import TINY, preset
from support.reference_runs import run_reference
from support.small_examples import SMALL

DOCS = Path(__file__).parents[3] / "docs" / "examples"


@pytest.mark.parametrize("name", SMALL)
def test_small_examples_are_close_to_float(name):
    example = SMALL[name]()
    x = example.samples(2)
    image = example.image()
    results, _ = run_reference(image, x)
    assert example.error(results["y"], x) < example.tolerance


@pytest.mark.parametrize("name", SMALL)
def test_emulator_agrees_with_the_reference_machine(name):
    example = SMALL[name]()
    x, image = example.samples(2), example.image()
    with connect("emulator", TINY) as device:
        device.load(image)
        results = device.run(x)
    assert run_reference(image, x)[0]["y"].tobytes() == results.tobytes()


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
    flags = run_reference(example.image(), example.samples(1))[1].flag_union()
    assert not flags & ~(1 << Flag.SATURATED)


@pytest.mark.parametrize("name", SMALL)
def test_a_wrong_weight_shows(name):
    """The comparison can fail: negated results are out of tolerance."""
    example = SMALL[name]()
    x = example.samples(1)
    results, _ = run_reference(example.image(), x)
    assert example.error(-results["y"], x) > example.tolerance


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
    (y,) = run_reference(example.image(), x)[0]["y"]
    assert y.sum() == pytest.approx(1, abs=0.03)
    assert y.argmax() == x[0].argmax()


def test_capacity_error_names_memory_and_allocations():
    with pytest.raises(CapacityError, match=r"tiny: matrix memory has 256 words, but 4096 are needed \(wx_i 512"):
        lstm(TINY, hidden=64, inputs=64)


def test_sheet_refuses_a_name_twice():
    allocator = softmax(TINY).allocator
    with pytest.raises(ValueError, match="name must be new, not 'top'"):
        allocator.wide("top", 1)


def test_unsound_program_is_refused():
    allocator = softmax(TINY).allocator
    words = assemble("v_rd wide, 40\nv_wr wide, 41\nhalt\n")
    with pytest.raises(ValueError, match=r"not sound: .*before it is written"):
        allocator.image(words)
