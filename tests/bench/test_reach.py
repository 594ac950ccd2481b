"""The survey of networks that people bring: all of them are valid models, and it notices results that are wrong."""

import json
import sys
from dataclasses import replace

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from concord_bench.reach import outcomes
from concord_bench.reach.__main__ import line, reach
from concord_bench.reach.networks import FAMILIES, NETWORKS
from concord_bench.reach.outcomes import OFF, OTHER, REFUSED, RIGHT, Outcome, cause_of, difference, judge, survey
from concord_bench.reach.page import DATA, PAGE, earlier, render

KNOWN = {network.name: network for network in NETWORKS}


def test_names_are_unique_and_sources_are_given():
    assert len(KNOWN) == len(NETWORKS) >= 70
    assert all(network.source and network.family for network in NETWORKS)
    assert [family.title for family in FAMILIES if not family.networks] == []


@pytest.mark.parametrize("name", KNOWN)
def test_every_network_is_valid_and_runs_in_onnxruntime(name):
    network = KNOWN[name]
    if network.missing:
        pytest.skip(network.missing)
    model = network.build()
    onnx.checker.check_model(model.proto, full_check=True)
    assert model.proto.SerializeToString() == network.build().proto.SerializeToString()
    results = outcomes.reference(model, model.samples(3, seed=5))
    assert list(results) == [item.name for item in model.proto.graph.output]
    numbers = [values for values in results.values() if values.dtype.kind == "f"]
    assert all(np.isfinite(values).all() for values in numbers)
    # What a network gives depends on what it reads.
    assert not numbers or max(np.abs(values - values[0]).max() for values in numbers) > 1e-4


def test_a_network_that_cannot_be_made_says_how_to_get_what_it_needs(tmp_path):
    network = replace(KNOWN["gat"], needs=("onnx", "no_framework"))
    outcome = survey(network, sys.executable, ["tiny"], tmp_path)
    assert outcome.outcome == outcomes.MISSING
    assert outcome.message == network.missing == "needs no_framework: make torch installs it"
    assert not KNOWN["gat"].missing


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dueling_dqn", "har_keras", "gat"])
def test_some_run(name, tmp_path):
    outcome = survey(KNOWN[name], sys.executable, ["ecp5-85f-256"], tmp_path)
    assert outcome.outcome == RIGHT, outcome.message
    assert outcome.compared > 100 and outcome.different == 0 and outcome.error < 0.03
    assert name in line(outcome)


@pytest.mark.slow
def test_one_that_is_too_large_is_refused(tmp_path):
    outcome = survey(KNOWN["mlp_mnist"], sys.executable, ["ecp5-25f"], tmp_path)
    assert (outcome.outcome, outcome.cause) == (REFUSED, "capacity of the chip")
    assert outcome.preset == "" and "matrix memory" in line(outcome)


def test_a_network_that_takes_too_long_fails(tmp_path, monkeypatch):
    monkeypatch.setattr(outcomes, "PATIENCE", 0.01)
    assert survey(KNOWN["dueling_dqn"], sys.executable, ["tiny"], tmp_path).cause == "time"


def test_differences():
    rng = np.random.default_rng(0)
    want = rng.normal(size=(6, 4, 4)).astype(np.float32)
    error, correlation = difference(want * 1.01, want)
    assert error == pytest.approx(0.01, rel=1e-3) and correlation == pytest.approx(1)
    error, correlation = difference(want.transpose(0, 2, 1), want)
    assert error > 0.5 and correlation < 0.7
    assert difference(want[:, :2], want)[0] == np.inf
    assert difference(want * np.nan, want)[0] == np.inf
    labels = np.array([1, 2, 3, 4])
    assert difference(labels.astype(float), labels) == (0, None)
    assert difference(np.array([1, 2, 3, 5]), labels) == (0.25, None)
    # The mean is right, and nothing of what differs.
    error, correlation = difference(100 + 10 * want[::-1], 100 + 10 * want)
    assert correlation < outcomes.LEAST_CORRELATION
    assert difference(100 + 0.1 * want, 100 + want)[1] is None


@pytest.mark.parametrize(
    ("results", "different", "outcome"),
    [({"y": 1.0}, 0, RIGHT), ({"y": 1.0}, 3, OFF), ({"y": 1.2}, 0, OFF), ({}, 0, OFF), ({"y": 1.0, "z": 1}, 0, OFF)],
)
def test_what_is_right(results, different, outcome, tmp_path):
    want = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    file = tmp_path / "y.npz"
    np.savez(file, **{name: factor * want for name, factor in results.items()})
    judged = Outcome("net", "family", "source", "")
    judge(judged, {"flags": [], "compared": 10, "different": different}, {"y": want}, file)
    assert judged.outcome == outcome


def test_the_rtl_must_be_the_same(tmp_path):
    want = {"y": np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)}
    np.savez(tmp_path / "y.npz", **want)
    answer = {"flags": [], "compared": 10, "different": 0}
    for rtl, outcome, message in (
        ({"values": 4, "different": 0}, RIGHT, ""),
        ({"values": 4, "different": 2}, OFF, "2 results or counters of the RTL differ from the emulator"),
        ({"error": "SimulationError: no compiler"}, OFF, "RTL: SimulationError: no compiler"),
    ):
        judged = Outcome("net", "family", "source", "")
        judge(judged, answer | {"rtl": rtl}, want, tmp_path / "y.npz")
        assert (judged.outcome, judged.message, judged.on_rtl) == (outcome, message, rtl.get("values", 0))


@pytest.mark.slow
def test_the_rtl_has_the_results_of_the_emulator(tmp_path):
    outcome = survey(KNOWN["linear_regression"], sys.executable, ["tiny"], tmp_path, rtl=True)
    assert outcome.outcome == RIGHT and outcome.on_rtl > 9 and outcome.different_on_rtl == 0, outcome.message


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        ("net cannot be compiled:\n  Resize '/r': mode must be nearest; Conv", "up-sampling"),
        ("does not fit into tiny: matrix memory has 4 words, but 9 are needed (weight.a 9)", "capacity of the chip"),
        ("does not fit into tiny: matrix memory has 4 words, but 9 are needed (weight.a/copy of b 9)", "layout"),
        ("net cannot be compiled:\n  ai.onnx.ml.Scaler 's': operator is not supported", "ai.onnx.ml"),
        ("net cannot be compiled:\n  ArgMax 'a': operator is not supported", "labels as results"),
        ("net cannot be compiled:\n  input 'x' must be a tensor of floats, not UINT8", "integers and other types"),
        ("net cannot be compiled:\n  Sin 's': operator is not supported", "operator"),
        ("net cannot be compiled for tiny:\n  Mul 'm': must have the same lanes\n  Conv 'c'", "layout"),
        ("numbers must be finite on the samples, as they are:\n  error", "range of numbers"),
        ("something else", OTHER),
        ("", OTHER),
    ],
)
def test_causes(message, cause):
    assert cause_of(message) == cause


def test_unknown_names_are_refused():
    result = CliRunner().invoke(reach, ["--only", "no_such_network"])
    assert result.exit_code and "networks must be among" in result.output


def test_the_page_is_that_of_the_figures():
    now, before = (earlier(file) for file in DATA)
    assert [item.name for item in now] == list(KNOWN) == [item.name for item in before]
    assert PAGE.read_text() == render(now, before, DATA[1].stem.partition("-")[2])


def test_a_page_counts(tmp_path):
    items = [
        Outcome("a", "first", "here", RIGHT, preset="tiny", errors={"y": 0.01}, compared=5),
        Outcome("b", "first", "there", REFUSED, "layout", "net cannot be compiled:\n  b | c <d>\n  and e"),
        Outcome("c", "second", "there", OFF, errors={"y": 0.5}, compared=4, different=1),
    ]
    page = render(items, [items[0], items[1], items[1]], "old")
    assert "| | old | now |" in page and "| runs | 1 | 1 |" in page and "| refused: layout | 2 | 1 |" in page
    assert "9 values of derived models were compared with the emulator, 1 differ" in page
    assert "| `b` | layout | `b \\| c <d>` |" in page and "and e" not in page
    assert "### Second" in page and "| `c` | there | runs, off | 50.00 % |" in page
    file = tmp_path / "x.json"
    file.write_text(json.dumps([item.as_json() for item in items]))
    assert earlier(file) == items


def test_a_page_says_what_runs_in_part_and_on_rtl(tmp_path):
    text = "the NPU computes 9 of 10 multiply-accumulates (90 %), and the host the rest: tiny refuses the whole (x)"
    part = Outcome("a", "first", "here", RIGHT, preset="tiny", errors={"y": 0.01}, share=text, on_rtl=3, seconds=7.0)
    items = [
        Outcome("a", "first", "here", REFUSED, "layout", "net cannot be compiled:\n  b", in_part=part),
        Outcome("b", "first", "here", RIGHT, on_rtl=4, different_on_rtl=1, seconds=2.0),
        Outcome("c", "first", "here", RIGHT, seconds=3.0),
        Outcome("d", "first", "here", RIGHT, seconds=4.04),
    ]
    page = render(items)
    assert "| `a` | runs | 90 % | 1.00 % |" in page
    assert "A sample of 2 networks ran on the compiled RTL (`--rtl`): of 7 results and counters 1 differ" in page
    assert "compile in 3.0 s or less, and the slowest, `d`, in 4 s" in page
    assert text in line(part)
    assert not {"## What the host makes up for", "`--rtl`"} & {*render(items[2:]).split()}
    file = tmp_path / "x.json"
    file.write_text(json.dumps([item.as_json() for item in items]))
    items[3].seconds = 4.0
    assert earlier(file) == items


@pytest.mark.slow
def test_one_that_is_refused_is_compiled_in_part(tmp_path):
    """Here the largest preset has too few words for two products, not for one."""
    outcome = survey(KNOWN["mlp_mnist"], sys.executable, ["ecp5-85f-256"], tmp_path, any_part=True)
    assert outcome.outcome == REFUSED and outcome.in_part is not None and outcome.in_part.outcome == RIGHT
    assert outcome.in_part.share.startswith("the NPU computes 262,144 of 668,672") and not outcome.in_part.different
