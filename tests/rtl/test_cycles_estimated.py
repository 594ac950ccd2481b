"""Cycles that are estimated from a program, against the counter of the Verilated core."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.examples import softmax
from concord.host import connect
from concord.program.cycles import cycles
from concord.spec.presets import TINY, UP5K
from support.compiled_nets import gru, perceptron, recurrent, residual
from support.row_tiled_nets import separable

pytestmark = pytest.mark.slow


def images(config):
    networks = residual(), gru(), perceptron(8, 8, 4), perceptron(32, 16, 16, 4), recurrent("LSTM", 5, 3, 6)
    yield from (compile_graph(graph, config).image for graph in networks)
    yield softmax(config).image()
    yield compile_graph(separable(24), config).image  # in phases on the tiny one


@pytest.mark.parametrize(("config", "percent"), [(TINY, 2), (UP5K, 2)], ids=["tiny", "up5k"])
def test_within_a_few_percent(config, percent):
    with connect("rtl", config) as device:
        for image in images(config):
            device.load(image)
            device.run({port.name: np.ones((1, *port.shape)) for port in image.inputs})
            estimate = sum(cycles(image.program, config, phase.pc) for phase in image.schedule())
            assert estimate == pytest.approx(device.counters()["CYCLES"], rel=percent / 100)
