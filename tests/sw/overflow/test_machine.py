"""What the accumulators hold: the fast count against Python integers, and bounds that hold."""

import numpy as np
import pytest

from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.model import compile_graph
from concord.graph.ir import Node
from concord.overflow import analyse_machine
from concord.sums.histogram import SumStage
from support.compiled_nets import attention, perceptron, recurrent, residual
from support.expressions import ROOMY, graph_of, network, tensor
from support.overflow_reference import counted

WIDER = ROOMY.replace(lanes=4, engines=2, narrow_depth=1024, wide_depth=1024)

SERIAL = ROOMY.replace(lanes=4, mfu_lanes=1, serial=True, stochastic=False)


def convolution(stride, pad, group, dilation=1, seed=0):
    """One convolution of an image."""
    rng = np.random.default_rng(seed)
    channels = 4 if group == 1 else group
    weight = rng.normal(0, 1, (5 if group == 1 else group, channels // group, 3, 3))
    return network(tensor(1, channels, 6, 5).conv(weight, rng.normal(0, 1, len(weight)), stride, pad, dilation, group))


NETS = {
    "perceptron": lambda: perceptron(9, 6, 3),
    "residual": residual,
    "strided": lambda: convolution(2, 1, 1),
    "dilated": lambda: convolution(1, 2, 1, dilation=2),
    "depthwise": lambda: convolution(1, 1, 6),
    "depthwise strided": lambda: convolution(2, 0, 4),
    "attention": attention,
    "LSTM": lambda: recurrent("LSTM", 5, 3, 3),
    "GRU": lambda: recurrent("GRU", 4, 3, 2),
    "RNN": lambda: recurrent("RNN", 3, 2, 3),
}


def samples(graph, count=2, size=1.0, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, size, (count, *graph.sample_shape(name))) for name in graph.inputs}


def together(analysis):
    """Histograms of all layers by stage."""
    return {
        stage: np.sum([np.pad(s.counts, (0, 256 - len(s.counts))) for x in analysis.layers for s in x.stages
                       if s.name == stage.value], axis=0)
        for stage in SumStage
    }  # fmt: skip


def same(analysis, want):
    got = together(analysis)
    return {stage for stage in SumStage if np.array_equal(got[stage], want[stage].counts[:256])}


#: All networks on one configuration, some of them on others.
CASES = [(net, ROOMY) for net in NETS] + [
    (net, config) for config in (WIDER, SERIAL) for net in ("perceptron", "strided", "depthwise", "LSTM")
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("net", "config"), CASES, ids=[f"{net}, {c.lanes} lanes{', serial' * c.serial}" for net, c in CASES]
)
def test_every_value_is_counted(net, config):
    graph = NETS[net]()
    package = compile_graph(graph, config).package
    inputs = samples(graph)
    analysis = analyse_machine(package, inputs)
    assert same(analysis, counted(package, inputs)) == set(SumStage)
    for layer in analysis.layers:
        for stage in layer.stages:
            assert stage.observed <= stage.bound <= config.acc_bits
            curve = [stage.beyond(width) for width in range(70)]
            assert curve == sorted(curve, reverse=True) and curve[0] == stage.total
            assert not stage.total or (stage.beyond(stage.observed) == 0 < stage.beyond(stage.observed - 1))


@pytest.mark.slow
def test_static_exponents_and_biased_inputs():
    graph = residual()
    exponents = dict.fromkeys((name for name in graph.shapes if name not in graph.inputs), -4)
    package = compile_graph(graph, ROOMY, Formats(exponents=exponents)).package
    inputs = {name: np.abs(values) for name, values in samples(graph, size=20.0).items()}
    analysis = analyse_machine(package, inputs)
    assert same(analysis, counted(package, inputs)) == set(SumStage)
    assert all(stage.observed <= stage.bound for layer in analysis.layers for stage in layer.stages)


def test_sums_beyond_float64_are_exact():
    """A power of two less one unit of the grid needs one bit less than the power."""
    weight = np.array([[64.0] * 8 + [-(2.0**-15), 0, 0, 0], [-64.0] * 8 + [2.0**-15, 0, 0, 0], [1.0] * 12])
    graph = graph_of([Node("Dense", "fc", ("x",), ("y",), {"weight": weight, "bias": np.zeros(3)})], x=(1, 12))
    package = compile_graph(graph, ROOMY).package
    inputs = samples(graph, count=3)  # beside others that are small
    inputs["x"][1] = [32768.0] * 8 + [2.0**-15, 0, 0, 0]
    analysis = analyse_machine(package, inputs)
    want = counted(package, inputs)
    assert want[SumStage.OUTPUT].bits == 55 and want[SumStage.SUM].bits == 56
    assert same(analysis, want) == set(SumStage)
    assert all(stage.observed <= stage.bound for layer in analysis.layers for stage in layer.stages)


def test_wide_weights_are_multiplied_out():
    config = ROOMY.replace(wgt_mant=14, act_mant=11)
    graph = perceptron(7, 5, 2)
    package = compile_graph(graph, config).package
    inputs = samples(graph)
    assert same(analyse_machine(package, inputs), counted(package, inputs)) == set(SumStage)


def test_another_order_is_noticed():
    graph = NETS["strided"]()
    package = compile_graph(graph, ROOMY).package
    inputs = samples(graph)
    analysis = analyse_machine(package, inputs)
    backward = counted(package, inputs, order=lambda steps: steps[::-1])
    assert same(analysis, backward) == set(SumStage) - {SumStage.SUM}
    shorter = counted(package, inputs, order=lambda steps: steps[:-1])
    assert not same(analysis, shorter)


@pytest.mark.slow
def test_bounds_hold_for_every_input_in_the_range():
    graph = NETS["residual"]()
    package = compile_graph(graph, ROOMY).package
    low, high = -3.0, 5.0
    few = {"x": np.clip(samples(graph, seed=8)["x"], low, high)}
    bounds = analyse_machine(package, few, ranges={"x": (low, high)})
    for seed in range(6):
        corners = np.random.default_rng(seed).choice([low, 0.0, high], (40, *graph.sample_shape("x")))
        found = analyse_machine(package, {"x": corners})
        for layer, bound in zip(found.layers, bounds.layers, strict=True):
            assert layer.name == bound.name
            assert all(a.observed <= b.bound for a, b in zip(layer.stages, bound.stages, strict=True))


@pytest.mark.parametrize("count", [1, 2, 3, 9, 11, 13])
def test_lanes_without_a_sample_are_not_counted(count):
    graph = perceptron(5, 4)
    package = compile_graph(graph, ROOMY).package
    inputs = samples(graph, count)
    assert same(analyse_machine(package, inputs), counted(package, inputs)) == set(SumStage)


def test_samples_that_fill_no_run_are_left_out():
    graph = perceptron(5, 4)
    package = compile_graph(graph, ROOMY, batch=4).package
    inputs = samples(graph, 11)
    analysis = analyse_machine(package, inputs)
    assert analysis.samples == 8 and same(analysis, counted(package, {"x": inputs["x"][:8]})) == set(SumStage)
    with pytest.raises(ValueError, match="inputs must have at least the 4 samples of a run, not 3"):
        analyse_machine(package, samples(graph, 3))


def test_the_bound_of_one_product_is_reached():
    """Whole numbers, so that nothing is rounded: the norm of the weights times the range of the input."""
    weight = np.array([[3.0, -2.0, 5.0, 1.0], [1.0, 1.0, -1.0, 0.0]])
    graph = graph_of([Node("Dense", "fc", ("x",), ("y",), {"weight": weight, "bias": np.zeros(2)})], x=(1, 4))
    config = ROOMY
    package = compile_graph(graph, config).package
    worst = 64.0 * np.sign(weight[0])
    analysis = analyse_machine(package, {"x": worst[None]}, ranges={"x": (-64.0, 64.0)})
    (layer,) = analysis.layers
    norm = 64 * 11 << config.acc_frac
    assert layer.needed("output") == norm.bit_length() + 1
    assert layer.bound("output") - layer.needed("output") <= 1  # the exponent of another input may be one higher


def test_the_width_that_is_kept_is_the_default():
    graph = perceptron(4, 3)
    package = compile_graph(graph, ROOMY).package
    analysis = analyse_machine(package, samples(graph), threshold=2, name="net")
    assert (analysis.width, analysis.output_width, analysis.threshold, analysis.name) == (48, 48, 2, "net")
    assert not analysis.overflowing
    assert analyse_machine(package, samples(graph), width=20).overflowing


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, r"width must be an integer in 1\.\.64, not 0"),
        ({"output_width": 65}, r"output_width must be an integer in 1\.\.64, not 65"),
        ({"threshold": -1}, "threshold must be at least 0, not -1"),
        ({"ranges": {"x": (0.0, 0.1)}}, "range of x must hold the samples"),
        ({"ranges": {"z": (0.0, 0.1)}}, "range must be of an input, x, not z"),
    ],
)
def test_what_is_not_possible(options, message):
    graph = perceptron(4, 3)
    package = compile_graph(graph, ROOMY).package
    with pytest.raises(ValueError, match=message):
        analyse_machine(
            package, {"x": np.array([[1.0, -2.0, 0.5, 0.0]] * 2)} if graph.inputs == ["x"] else {}, **options
        )


def test_a_network_without_a_product_is_refused():
    package = compile_graph(graph_of([Node("Relu", "relu", ("x",), ("y",))], x=(1, 3)), ROOMY).package
    with pytest.raises(ValueError, match="network test must have a product, and has none"):
        analyse_machine(package, {"x": np.ones((2, 3))}, name="test")
