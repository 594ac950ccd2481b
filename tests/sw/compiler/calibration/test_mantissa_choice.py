"""Widths of mantissas chosen by a budget."""

import numpy as np
import pytest

from concord.api.options import budget_of
from concord.compiler.calibration.calibration import before_sigmoids, classifies
from concord.compiler.calibration.mantissas import Budget, choose_mantissas
from concord.compiler.memory.footprint import weight_bits
from concord.compiler.model import compile_graph
from concord.graph import execute
from concord.networks.calibrated import calibration_of, emulate
from concord.networks.folder import load_package
from concord.networks.samples import labels_of
from concord.spec.presets import PRESETS, TINY
from support.commands import run, two_products
from support.compiled_nets import perceptron, recurrent, residual
from support.expressions import network, tensor


def calibration(graph, count=48, **more):
    rng = np.random.default_rng(8)
    inputs = {name: rng.normal(0, 1, (count, *graph.sample_shape(name))) for name in graph.inputs}
    return calibration_of(graph, inputs, **more)


@pytest.fixture(scope="module")
def measured():
    return calibration(residual())


@pytest.mark.slow
@pytest.mark.parametrize("free", [False, True])
@pytest.mark.parametrize("points", [2, 5, 40])
def test_the_least_memory_within_the_budget(measured, points, free):
    budget = Budget("error", points)
    choice = choose_mantissas(measured, TINY, budget, free=free)
    assert choice.met and 100 * choice.chosen.error <= points
    inside = [candidate for candidate in choice.candidates if choice.fits(candidate)]
    assert choice.chosen.bits == min(candidate.bits for candidate in inside) < inside[-1].bits
    assert all(choice.fits(candidate) for candidate in choice.candidates) == (points == 40)
    # What the table says is what comes of the network that is chosen, in front of its sigmoid.
    short, _ = before_sigmoids(measured.graph)
    package = choice.chosen.compiled.package
    (result,) = emulate(compile_graph(short, package.config, package.formats), measured.inputs).values()
    (want,) = execute.run(short, measured.inputs).values()
    assert np.linalg.norm(result - want) / np.linalg.norm(want) == pytest.approx(choice.chosen.error)
    assert free or choice.chosen.compiled.image.config == TINY


@pytest.mark.deep
def test_larger_budgets_need_less_memory(measured):
    bits = [choose_mantissas(measured, TINY, Budget("error", p), free=True).chosen.bits for p in (2, 4, 8, 16, 32)]
    assert bits == sorted(bits, reverse=True) and len(set(bits)) > 2


@pytest.mark.slow
def test_a_choice_is_the_same_every_time(measured):
    first, second = (choose_mantissas(measured, TINY, Budget("error", 5)) for _ in range(2))
    assert [c.label for c in first.candidates] == [c.label for c in second.candidates]
    assert first.chosen.compiled.package.formats == second.chosen.compiled.package.formats


@pytest.mark.slow
def test_bits_are_taken_where_they_cost_little():
    """Of two products one of whose results hardly counts, that one gets the narrower weights."""
    rng = np.random.default_rng(3)
    x = tensor(1, 8)
    loud, quiet = (x.dense(rng.normal(0, scale, (8, 8)), name=name) for name, scale in (("loud", 1.0), ("quiet", 0.02)))
    graph = network(loud + quiet)
    choice = choose_mantissas(calibration(graph), TINY, Budget("error", 3))
    widths = {"loud": 8, "quiet": 8} | choice.chosen.compiled.package.formats.mantissas
    assert choice.met and widths["quiet"] == 3 < widths["loud"]


@pytest.mark.slow
def test_widths_that_are_given_stay(measured):
    choice = choose_mantissas(measured, TINY, Budget("error", 20), fixed={"first": 7}, free=True)
    formats = choice.chosen.compiled.package.formats
    assert formats.mantissas["first"] == 7 and choice.chosen.compiled.image.config.wgt_mant >= 7
    assert min(formats.mantissas.values()) < 7


@pytest.mark.slow
def test_a_budget_that_nothing_keeps(measured):
    choice = choose_mantissas(measured, TINY, Budget("error", 0.01), free=True)
    assert not choice.met and len(choice.candidates) == 1 and choice.chosen.compiled.image.config == TINY


@pytest.mark.slow
def test_labels_decide_if_there_are_any():
    """Labels that are those of double precision for some samples: the rest is wrong, whatever is computed."""
    graph = residual()
    labels = calibration(graph).best.copy()
    labels[:12] = (labels[:12] + 1) % 5
    measured = calibration(graph, labels=labels)
    assert measured.accuracy(measured.best) == 0.75
    choice = choose_mantissas(measured, TINY, Budget("accuracy", 4))
    assert choice.met and choice.chosen.accuracy >= 0.75 - 0.04
    assert Budget("agreement", 0).loss(measured, choice.chosen) == 100 * (1 - choice.chosen.agreement)


@pytest.mark.slow
def test_memory_is_that_of_weights_and_narrow_vectors(measured):
    whole = choose_mantissas(measured, TINY, Budget("error", 1.5)).candidates[-1]
    allocations = whole.compiled.allocations
    narrow = allocations["tensors.narrow"].count * TINY.narrow_word.width
    weights = sum(weight_bits(layer, allocations, TINY, 8) for layer in whole.compiled.lowered.layers)
    matrix = sum(item.count for name, item in allocations.items() if name.startswith("weight."))
    assert weights == matrix * TINY.rows * TINY.matrix_row.width and whole.bits == weights + narrow


def test_classifiers_are_told_from_others():
    assert classifies(residual()) and classifies(perceptron(7, 9, 3))
    assert not classifies(perceptron(7, 9, 7)) and not classifies(perceptron(7, 9, 1))
    assert not classifies(recurrent("GRU", 5, 3, 3))


@pytest.mark.parametrize(
    ("text", "labelled", "want"),
    [
        (None, True, Budget("accuracy", 0.5)),
        (None, False, Budget("agreement", 0.5)),
        ("2", True, Budget("accuracy", 2)),
        ("1.5%", True, Budget("error", 1.5)),
    ],
)
def test_budgets(text, labelled, want):
    assert budget_of(text, perceptron(7, 9, 3), labelled) == want


def test_budgets_that_do_not_suit():
    other = perceptron(7, 9, 7)
    assert budget_of(None, other, False) == Budget("error", 5) and budget_of("1", other, True).measure == "accuracy"
    with pytest.raises(ValueError, match="must be a relative error such as 5%, as the result is no class, not '1'"):
        budget_of("1", other, False)
    for text in ("x", "-1", "nan"):
        with pytest.raises(ValueError, match=f"budget must be points such as 0.5, .* not '{text}'"):
            budget_of(text, other, False)


def test_labels_are_told_from_other_arrays():
    graph = perceptron(7, 9, 3)
    assert labels_of({"y": np.array([1, 2], np.uint8)}, graph.inputs, 2).tolist() == [1, 2]
    for arrays in ({}, {"y": np.zeros(2)}, {"y": np.zeros(3, int)}, {"y": np.zeros((2, 3), int)}):
        assert labels_of(arrays, graph.inputs, 2) is None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A network with samples and labels."""
    return two_products(tmp_path_factory.mktemp("model"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "config", "said"),
    [
        (("--board", "ulx3s-25f"), "ecp5-25f", "agreement, at most 0.5 points lost"),
        (("--preset", "tiny", "--budget", "12%"), None, "error, at most 12 %"),
        (("--preset", "tiny", "--mantissa", "7", "--budget", "3"), "tiny-m7", "agreement, at most 3 points lost"),
    ],
)
def test_from_the_command_line(folder, tmp_path, options, config, said):
    arguments = ("--calibrate", folder / "x.npz", "--mantissa", "auto", "-o", tmp_path / "net", *options)
    code, output = run("compile", folder / "net.onnx", *arguments)
    assert code == 0 and "Mantissas on 256 samples" in output and "…" not in output, output
    assert said in " ".join(output.split())
    package = load_package(tmp_path / "net")
    if config is None:
        assert package.config.name in [f"tiny-m{mant}" for mant in (4, 5, 6)]
    else:
        assert package.config.name == config and package.formats.mantissas.keys() <= {"first", "second"}
        assert package.formats.mantissas
        assert all(f"{layer}={width}" in output for layer, width in package.formats.mantissas.items())
        assert config not in PRESETS or package.config == PRESETS[config]


@pytest.mark.slow
def test_labels_from_the_command_line(folder, tmp_path):
    arguments = ("--preset", "tiny", "--calibrate", folder / "xy.npz", "--mantissa", "auto", "-o", tmp_path / "net")
    output = run("compile", folder / "net.onnx", *arguments)[1]
    assert "accuracy, at most 0.5 points lost" in " ".join(output.split())
    code, output = run("compile", folder / "net.onnx", *arguments, "--budget", "0%")
    assert code == 0 and "nothing keeps the budget" in output


@pytest.mark.parametrize("options", [("--mantissa", "auto"), ("--budget", "1")])
def test_what_auto_needs(folder, options):
    code, output = run("compile", folder / "net.onnx", *options)
    assert code == 1 and "--mantissa auto needs --calibrate, and --budget both of them" in output
