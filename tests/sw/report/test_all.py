"""Whatever compiles has a report."""

from html import escape

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph.cost import macs
from concord.report import NetworkFacts, analyse, render
from concord.report.prefixes import without_overlap
from concord.spec.presets import ECP5_85F, UP5K
from support import compiled_nets, product_nets
from support.expressions import ROOMY
from support.quantised_nets import network as quantised
from support.row_tiled_nets import random_net, separable
from support.stateful_nets import ROUNDED, integrator
from support.trained import DATA, needs_data

MODELS = sorted((DATA / "models").glob("*.onnx"))


SMALL = {
    "magnitudes": compiled_nets.magnitudes,
    "perceptron": lambda: compiled_nets.perceptron(9, 7, 5),
    "residual": compiled_nets.residual,
    "gru": compiled_nets.gru,
    "lstm": lambda: compiled_nets.recurrent("LSTM", 5, 3, 3, direction="bidirectional"),
    "attention": compiled_nets.attention,
    "large windows": compiled_nets.large_windows,
    "grouped softmax": compiled_nets.grouped_softmax,
    "separable": separable,
    "quantised": lambda: import_model(quantised()),
    "steps": product_nets.steps,
    "twice": product_nets.twice,
    "decoder": ROUNDED["decoder"],
    "cell": ROUNDED["LSTM"],
    **{f"random {seed}": lambda seed=seed: random_net(seed) for seed in range(6)},
}


def reported(graph, config, count=2):
    """The report of a network, which is complete; no layer uses more multipliers than there are."""
    rng = np.random.default_rng(5)
    compiled = compile_graph(graph, config)
    samples = {name: rng.normal(0, 0.5, (count, *graph.sample_shape(name))) for name in graph.inputs}
    analysis = analyse(compiled, samples)
    assert NetworkFacts.from_json(analysis.to_json()) == analysis
    page = render(analysis)
    assert [layer.name for layer in analysis.layers] == [layer.name for layer in compiled.lowered.layers]
    for layer in analysis.layers:
        assert escape(layer.name) in page
        assert 0 <= (layer.work.utilisation(analysis.macs_per_cycle) or 0) <= 1
    assert analysis.work.macs <= macs(compiled.graph) * compiled.package.arrangement.batch
    return analysis


@pytest.mark.slow
@pytest.mark.parametrize("config", [ROOMY, UP5K], ids=lambda config: config.name)
@pytest.mark.parametrize("name", SMALL)
def test_networks_of_the_tests(name, config):
    reported(SMALL[name](), config)


#: Those that take longest.
LONG = ("vww_mobilenetv1_025", "ic_resnet8")


@needs_data
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.deep if path.stem in LONG else pytest.mark.slow)
        for path in MODELS
    ],
)
def test_real_networks(path):
    reported(import_model(path), ECP5_85F.replace(matrix_depth=2560, writable_matrix=False), 1)


def test_what_overlaps_belongs_to_the_layer_that_has_begun():
    assert without_overlap([30, 10, 25], [5, 20, 20]) == [20, 20, 25]
    assert without_overlap([30, 30, 25], [5, 20, 20]) == [30, 30, 25]
    assert without_overlap([40, 12, 6], [5, 10, 10]) == [38, 10, 10]


def test_states_are_told_apart():
    """The host does not write them; every sample meets those of a sequence in double precision."""
    graph = integrator()
    compiled = compile_graph(graph, ROOMY)
    analysis = analyse(compiled, {"x": np.ones((4, 6))})
    assert {port.name: port.becomes for port in analysis.inputs} == {"x": "", "sum": "next"}
    assert max(output.error.relative for output in analysis.outputs) < 0.02
    page = render(analysis)
    assert "stays on the NPU, next of the run before" in page and page.count("the host writes") == 1
