"""Calibration without a search, and the counts of one with a search."""

import numpy as np
import pytest

import concord
from concord.compiler.calibration.calibration import ALL, Follow
from concord.compiler.calibration.formats import QUICK
from concord.compiler.calibration.formats import choose_formats as compared
from concord.compiler.calibration.mantissas import Budget, choose_mantissas
from concord.networks.calibrated import calibration_of, choose_formats, observe
from concord.spec.presets import TINY
from support.commands import run
from support.compiled_nets import perceptron
from support.expressions import network, tensor
from support.onnx_models import model, node


def rooted():
    """A product with a bias, a square root whose table depends on what it reads, and a product."""
    rng = np.random.default_rng(3)
    one = tensor(1, 6).dense(rng.uniform(0, 1, (6, 6)), np.full(6, 0.5), name="one")
    y = one.function("sqrt").dense(rng.normal(0, 0.4, (3, 6)), np.ones(3))
    return network(y), {"x": rng.uniform(0.5, 1, (30, 6))}


@pytest.fixture(scope="module")
def search():
    """A search, and what it has shown."""
    graph, x = rooted()
    seen = []
    return choose_formats(graph, TINY, x, show=lambda *what: seen.append(what)), seen


@pytest.mark.slow
def test_quick_compares_nothing(search):
    graph, x = rooted()
    ran = []

    def observed(compiled, given):
        ran.append(len(given["x"]))
        return observe(compiled, given)

    evidence = compared(calibration_of(graph, x, observed), TINY, quick=True)
    assert ran == [30], "one run of all samples"
    (chosen,) = evidence.candidates
    assert chosen.label == "dynamic exponents, weights to the nearest" and chosen.follow == ALL & ~Follow.WEIGHTS
    formats = chosen.compiled.package.formats
    assert "one.out" in formats.ranges and "one" in formats.means and not formats.weights and not formats.exponents
    assert QUICK in evidence.notes and "Quick: nothing was compared" in evidence.table().caption
    searched = {one.label: one for one in search[0].candidates}
    same = searched.get(chosen.label) or searched["dynamic exponents"]
    assert same.error == chosen.error and same.compiled.image == chosen.compiled.image


def test_functions_that_one_table_does_not_hold_get_several():
    """One table has the same step for powers of very different sizes."""
    x = np.exp2(np.random.default_rng(3).uniform(-16, 7, (40, 8)))
    graph = network(tensor(1, 8).function("sqrt", name="root"))
    seen = []
    evidence = choose_formats(graph, TINY, {"x": x}, quick=True, show=lambda *what: seen.append(what))
    (chosen,) = evidence.candidates
    tables = len(chosen.compiled.package.formats.table_segments["root"])
    assert tables > 1 and chosen.label.endswith(f"root by {tables} tables")
    assert [number for _, number, _ in seen] == [1, 2]
    assert chosen.compiled.flag_diagnostics == ()


def test_flags_of_a_quick_calibration_have_another_advice():
    graph, x = rooted()

    def clamped(compiled, given):
        outputs, _ = observe(compiled, given)
        tight = calibration_of(graph, {"x": 0.1 * x["x"][:2]}).measure("", TINY, compiled.package.formats)
        return outputs, observe(tight.compiled, x)[1]

    (flag,) = compared(calibration_of(graph, x, clamped), TINY, quick=True).chosen.compiled.flag_diagnostics
    assert flag.flag == "TABLE_CLAMPED" and flag.advice == "compile without --quick, which tries other formats"


def test_a_search_counts_its_candidates(search):
    evidence, seen = search
    names, numbers, totals = zip(*seen, strict=True)
    assert numbers == tuple(range(1, len(seen) + 1)) and totals[-1] == len(seen)
    assert all(number <= total for _, number, total in seen) and list(totals) == sorted(totals)
    assert totals[0] > 2, "from the beginning more than what has begun is expected"
    half = "made with half of the samples"
    assert {one.label for one in evidence.candidates} <= set(names)
    assert sum(half in name for name in names) == 2 * len(evidence.held) > 0
    quick = []
    graph, x = rooted()
    choose_formats(graph, TINY, x, quick=True, show=lambda *what: quick.append(what))
    assert quick == [("dynamic exponents, weights to the nearest", 1, 1)]


@pytest.mark.slow
def test_a_search_for_mantissas_counts_its_candidates():
    graph, x = perceptron(9, 6, 3), {"x": np.random.default_rng(1).normal(0, 1, (20, 9))}
    (name,) = graph.inputs
    seen = []
    calibration = calibration_of(graph, {name: x["x"]}, show=lambda *what: seen.append(what))
    choose_mantissas(calibration, TINY, Budget("error", 20))
    assert [number for _, number, _ in seen] == list(range(1, len(seen) + 1))
    assert all(number <= total for _, number, total in seen)
    assert any("weights of" in label for label, _, _ in seen)


def test_the_same_samples_choose_the_same(search):
    first, again = search[0], choose_formats(*rooted()[:1], TINY, rooted()[1])
    assert [(one.label, one.error, one.flags) for one in first.candidates] == [
        (one.label, one.error, one.flags) for one in again.candidates
    ]
    assert first.held == again.held and first.chosen.compiled.image == again.chosen.compiled.image


@pytest.fixture
def net(tmp_path):
    w = np.random.default_rng(2).normal(0, 1, (4, 3)).astype(np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"], name="fc")], {"x": (1, 4)}, constants={"w": w})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(3).normal(0, 1, (12, 4)))
    return tmp_path


def test_the_command(net):
    code, output = run("compile", net / "net.onnx", "--preset", "tiny", "--calibrate", net / "x.npz", "--quick")
    assert code == 0 and "Quick: nothing was compared" in output and "static exponents" not in output.split("Quick:")[0]
    assert "candidate 1 of" not in output, "where there is no terminal nothing is counted"
    code, output = run("compile", net / "net.onnx", "--preset", "tiny", "--calibrate", net / "x.npz")
    assert code == 0 and "Quick:" not in output and "candidate 1 of" not in output


@pytest.mark.parametrize("options", [[], ["--mantissa", "auto", "--calibrate", "x.npz"]])
def test_what_quick_does_not_go_with(net, options):
    options = [str(net / word) if word == "x.npz" else word for word in options]
    code, output = run("compile", net / "net.onnx", "--preset", "tiny", "--quick", *options)
    assert code == 1 and "--quick must be given with --calibrate, and without --mantissa auto" in " ".join(
        output.split()
    )
    assert not (net / "net").exists()


def test_from_python(net):
    samples = np.load(net / "x.npz")["x"]
    found = concord.compile(net / "net.onnx", preset="tiny", calibrate=samples, quick=True)
    assert found.compilation.formats.notes[-1] == QUICK and len(found.compilation.formats.candidates) == 1
    with pytest.raises(ValueError, match="--quick must be given with --calibrate"):
        concord.compile(net / "net.onnx", preset="tiny", quick=True)
