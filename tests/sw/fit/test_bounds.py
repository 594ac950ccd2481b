"""No program takes fewer cycles than the bound says."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.cycles import count
from concord.fit.bounds import is_depthwise, least_cycles
from concord.graph.ir import Node
from concord.networks.window_steps import measured_steps
from concord.spec.presets import ECP5_85F, ECP5_85F_256, UP5K
from support.compiled_nets import perceptron
from support.expressions import graph_of

CONFIGS = (
    ECP5_85F,
    ECP5_85F_256.replace(window_taps=0, mfu_lanes=2),
    ECP5_85F_256.replace(mfu_lanes=8),
    UP5K.replace(wide_depth=2048, narrow_depth=2048),
)


def convolution(channels, group, size=12):
    rng = np.random.default_rng(0)
    weight = rng.normal(0, 0.3, (channels, channels // group, 3, 3))
    attrs = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": group}
    node = Node("Conv", "conv", ("x",), ("y",), {"weight": weight, "bias": np.zeros(channels), **attrs})
    return graph_of([node], x=(1, channels, size, size))


@pytest.mark.parametrize("config", CONFIGS, ids=["lanes8", "lanes16", "windows", "serial"])
@pytest.mark.parametrize(
    ("graph", "near"),
    [(convolution(16, 1), 0.7), (convolution(16, 16), 0.45), (perceptron(256, 128, 64), 0.25)],
    ids=["dense", "depthwise", "perceptron"],
)
def test_cycles_are_not_below_the_bound(graph, near, config):
    """And not far above, in networks with enough to do."""
    compiled = compile_graph(graph, config)
    zeros = {name: np.zeros((1, *graph.sample_shape(name))) for name in graph.inputs}  # one exponent: the fewest steps
    steps = measured_steps(compiled, zeros) or [None]
    cycles = count(compiled.image.program, config, 0, steps[0]).cycles
    bound = least_cycles(graph, config)
    assert bound <= cycles and (config.serial or bound >= near * cycles)


def test_depthwise():
    whole, separate = convolution(16, 1), convolution(16, 16)
    assert not is_depthwise(whole.nodes[0]) and is_depthwise(separate.nodes[0])
    assert least_cycles(separate, ECP5_85F) == 9 * 144
    assert least_cycles(separate, ECP5_85F_256.replace(mfu_lanes=8)) == 2 * 144
