"""Sticky flags of derived software: those of the emulator, for every sample and layer, on every backend."""

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.model import compile_graph
from concord.derive import evaluate, ir
from concord.derive.backends import numpy_functions
from concord.derive.flags import by_layer, raisable
from concord.derive.model import derive_image, derive_package
from concord.image import Image, Port
from concord.program.assembler import assemble
from concord.spec.formats import BINARY16_MAX, NOISE_BITS, ExponentMode, Flag
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support import compiled_nets
from support.derive_models import FORM, MODELS, Maker, at_limits, flagged, limits, samples
from support.derive_runners import text_of_torch
from support.derived_backends import CONFIGS, emulated_flags, needs_torch, on_onnxruntime, with_c
from support.derived_modules import emulated, image_of_memories, program_rng, random_inputs, same
from support.expressions import ROOMY
from support.program_gen import random_program


def on_golden(model, folder, inputs):
    """The definition."""
    words = {}
    with np.errstate(all="ignore"):
        return evaluate.run(model, inputs, words), by_layer(words)


@pytest.mark.slow
@with_c
@pytest.mark.parametrize("name", MODELS)
def test_operations(name, backend, tmp_path):
    """Operations of every kind have the flags of the golden model, not more and not fewer."""
    model = flagged(MODELS[name]())
    inputs = {key: np.nan_to_num(x, posinf=65504.0, neginf=-65504.0) for key, x in samples(model, 20, seed=3).items()}
    assert backend(model, tmp_path, inputs)[1] == on_golden(model, tmp_path, inputs)[1]


@with_c
def test_no_samples(backend, tmp_path):
    """Files of Python and C refuse that, as the driver does; graphs have no results, and no flags."""
    model = flagged(MODELS["products"]())
    inputs = {key: x[:0] for key, x in samples(model, 1).items()}
    refusal = r"^inputs must have at least one sample, not none$"
    with pytest.raises(ValueError, match=refusal):
        evaluate.run(model, inputs)
    if backend is not on_onnxruntime:
        with pytest.raises(ValueError, match=refusal):
            backend(model, tmp_path, inputs)
        return
    found, flags = backend(model, tmp_path, inputs)
    assert {len(x) for x in found.values()} == {0} and not flags


def test_numbers_in_the_text_of_files_are_those_of_the_formats():
    assert (numpy_functions.LARGEST, numpy_functions.NOISE_PARTS) == (BINARY16_MAX, 1 << NOISE_BITS)


@needs_torch
def test_numbers_in_the_text_of_modules_are_those_of_the_formats():
    texts = text_of_torch()
    assert (texts.LARGEST, texts.NOISE_PARTS) == (BINARY16_MAX, 1 << NOISE_BITS)


@pytest.mark.parametrize(
    ("constant_ends", "greatest", "raised"),
    [
        ((False, True), 8.5, False),  # -8.5 rounds to -8, the first entry
        ((False, True), 8.75, True),
        ((True, False), 7.25, False),
        ((True, False), 7.5, True),  # rounds to 8, behind the last entry
        ((True, True), 60000.0, False),
    ],
)
def test_tables_that_may_be_left(constant_ends, greatest, raised):
    """Where the greatest input is beyond the last entry at an end that is open, not before."""
    m = Maker()
    entries = np.zeros(16, np.uint16)
    m.add(ir.TableLookup, (2,), x=m.input((2,)), entries=entries, low=-8, high=7, scale=0, constant_ends=constant_ends)
    assert raisable(m.nodes[-1], [(greatest, -2)], (0.0, 0)) == ((Flag.TABLE_CLAMPED,) if raised else ())


@pytest.mark.parametrize(("greatest", "raised"), [(FORM.q_max * 4.0, False), (FORM.q_max * 4.0 + 0.25, True)])
def test_static_exponents_that_may_saturate(greatest, raised):
    m = Maker()
    x = m.input((4,))
    m.quantise(x, (4,), mode=ExponentMode.STATIC, exp=2)
    assert raisable(m.nodes[-1], [(greatest, -2)], (0.0, 0)) == ((Flag.SATURATED,) if raised else ())
    m.quantise(x, (4,))
    assert raisable(m.nodes[-1], [(greatest, -2)], (0.0, 0)) == ()


@with_c
def test_both_sides_of_every_limit(backend, tmp_path):
    model = flagged(limits())
    inputs = at_limits(model)
    found = backend(model, tmp_path, inputs)[1]
    assert found == on_golden(model, tmp_path, inputs)[1]
    count = len(next(iter(inputs.values())))
    assert all(0 < len(samples) < count for names in found.values() for samples in names.values())
    assert {name for names in found.values() for name in names} == {flag.name for flag in Flag}


def test_a_limit_that_is_off_by_one_is_noticed(tmp_path):
    """What the inputs of the limits are for: each flag depends on the exact number."""
    model = flagged(limits())
    inputs = at_limits(model)
    x = inputs["input:0"]
    want = on_golden(model, tmp_path, inputs)[1]
    exact = x[:, 0] + x[:, 1] * 2.0**-8
    over = np.flatnonzero((exact >= 2048) | (exact < -2048)).tolist()
    assert want["accumulator"]["ACC_OVERFLOW"] == over
    assert over != np.flatnonzero((exact > 2048) | (exact < -2048)).tolist()
    assert over != np.flatnonzero((exact >= 2048) | (exact <= -2048)).tolist()
    codes = np.abs(x) / 16
    assert want["static NEAREST_EVEN"]["SATURATED"] == np.flatnonzero((codes >= 127.5).any(axis=1)).tolist()
    assert (codes == 127.5).any() and (codes == 127.4375).any()


@pytest.mark.slow
@with_c
@pytest.mark.parametrize("config", CONFIGS)
def test_random_programs(config, backend, tmp_path):
    """What nobody reads, and what is constant, raises flags, too."""
    words, memories = random_program(CONFIGS[config], program_rng(f"{config} 1"), 8)
    image = image_of_memories(words, memories)
    model = derive_image(image, flags=True)
    inputs = random_inputs(image, 2, 1)
    outputs, found = backend(model, tmp_path, inputs)
    same(outputs, emulated(image, inputs))
    assert found == emulated_flags(image, inputs)
    if config == "tiny":
        assert {name for names in found.values() for name in names} == {flag.name for flag in Flag}


@pytest.mark.parametrize("seed", range(4))
def test_the_golden_model_has_the_flags_of_programs(seed, tmp_path):
    words, memories = random_program(TINY, program_rng(f"golden {seed}"), 8)
    image = image_of_memories(words, memories)
    inputs = random_inputs(image, 2, seed)
    assert on_golden(derive_image(image, flags=True), tmp_path, inputs)[1] == emulated_flags(image, inputs)


DEAD = """
v_rd wide, 0
vv_mul 1
v_wr wide, 2
v_rd wide, 1
vv_mul 1
v_wr wide, 2
v_rd wide, 0
v_wr wide, 2
halt
"""


@with_c
def test_what_is_overwritten_and_what_is_constant(backend, tmp_path):
    """The first product is never read, the second one depends on no input."""
    from concord.image import MemorySegment, pack_vectors

    wide = RegionId.WIDE
    segment = MemorySegment.from_words(wide, 1, pack_vectors(np.array([2.0, 60000.0, 0.5, 1.0]), TINY), TINY)
    image = Image(TINY, tuple(assemble(DEAD)), (segment,), (Port("x", wide, 0, (3,)),), (Port("y", wide, 2, (3,)),))
    model = derive_image(image, flags=True)
    assert list(model.flags.always.values()) == [1 << Flag.HALF_OVERFLOW]
    inputs = {"x": np.array([[1.0, 1.0, 1.0], [40000.0, 0.0, 0.0], [1.0, 2.0, 1.0]])}
    outputs, found = backend(model, tmp_path, inputs)
    np.testing.assert_array_equal(outputs["y"], inputs["x"])
    assert found == emulated_flags(image, inputs)
    assert [names["HALF_OVERFLOW"] for names in found.values()] == [[1, 2], [0, 1, 2]]


NETS = {
    "residual": lambda: compile_graph(compiled_nets.residual(), ROOMY),
    "LSTM": lambda: compile_graph(compiled_nets.recurrent("LSTM", 5, 3, 6), ROOMY),
    "RNN": lambda: compile_graph(compiled_nets.recurrent("RNN", 5, 3, 6), ROOMY),
    "attention": lambda: compile_graph(compiled_nets.attention(), ROOMY),
    "batch": lambda: compile_graph(compiled_nets.perceptron(6, 9, 3), ROOMY, batch=4),
}


@pytest.mark.slow
@with_c
@pytest.mark.parametrize("name", NETS)
def test_networks(name, backend, tmp_path):
    """By layer, as ``concord run`` shows them, with inputs of ordinary and of enormous size."""
    package = NETS[name]().package
    rng, arrangement = np.random.default_rng(5), package.arrangement
    scale = 10.0 ** np.array([0, 2, 4, 4.5, 6, 0])
    x = {
        key: np.clip(np.stack([size * rng.normal(size=arrangement.shapes[key]) for size in scale]), -65504, 65504)
        for key in arrangement.inputs
    }
    _, found = backend(derive_package(package, flags=True), tmp_path, x)
    want = emulated_flags(package.image, arrangement.pack(x), arrangement.batch)
    want = {layer: {name: [k for k in mine if k < 6] for name, mine in names.items()} for layer, names in want.items()}
    assert found == want
    assert want or name in ("LSTM", "RNN")


def test_a_run_without_flags_gives_outputs_only(tmp_path):
    from concord.derive.backends.python_file import write_numpy
    from support.derived_modules import load_derived

    package = compile_graph(compiled_nets.perceptron(6, 9, 3), TINY).package
    module = load_derived(derive_package(package, flags=True), tmp_path, write_numpy)
    x = np.ones((3, 6))
    (output,) = module.run({"x": x})
    np.testing.assert_array_equal(module.run({"x": x})[output], module.run({"x": x}, flags=True)[0][output])
    assert list(module.run({"x": 3e4 * x}, flags=True)[1].values())


def test_the_command(tmp_path):
    package = compile_graph(compiled_nets.perceptron(6, 9, 3), TINY).package
    package.image.save(tmp_path / "npu.image")

    def derived(name, *options):
        place = tmp_path / name
        found = CliRunner().invoke(main, ["derive", str(tmp_path / "npu.image"), "-o", str(place), *options])
        assert found.exit_code == 0, found.output
        return place.read_bytes()

    assert b"ACC_OVERFLOW" in derived("model.py") and b"LAYERS" in derived("model_torch.py")
    assert b"LAYERS" not in derived("model.py", "--no-flags") and b"LAYERS" not in derived("t_torch.py", "--no-flags")
    assert b"ACC_OVERFLOW" in derived("model.onnx", "--flags") and b"ACC_OVERFLOW" not in derived("model.onnx")


@with_c
@pytest.mark.parametrize("kind", [ir.MatMul, ir.Depthwise])
def test_a_sum_that_just_leaves_the_accumulator(kind, backend, tmp_path):
    """No sum is greater than the power of two behind the greatest number: that one alone is limited, and flagged."""
    m = Maker()
    shape, weight = ((1,), [[1.0]]) if kind is ir.MatMul else ((1, 1), [[1.0]])
    m.layer = "sum"
    y = m.product(kind, m.input(shape), weight, (1,), exponent=0, width=8, frac=4, unit=-4, bound=8.0)
    model = flagged(m.model(y))
    x = np.array([8.0, 7.9375, -8.0, 0.0]).reshape(4, *shape)
    found, raised = backend(model, tmp_path, {"input:0": x})
    assert found["output/0"].ravel().tolist() == [7.9375, 7.9375, -8.0, 0.0]
    assert raised == {"sum": {"ACC_OVERFLOW": [0]}}
