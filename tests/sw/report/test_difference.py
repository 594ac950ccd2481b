"""The first layer that a device computes otherwise is named."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import connect
from concord.report import analyse, render
from concord.report.difference import first_difference
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.compiled_nets import gru, residual
from support.row_tiled_nets import separable


class Faulty:
    """The emulator with other weights in one layer."""

    def __init__(self, device, compiled, layer):
        self.device, self.addr = device, compiled.allocations[layer.weights[0]].addr * TINY.rows

    def __getattr__(self, name):
        return getattr(self.device, name)

    def load(self, image):
        self.device.load(image)
        (word,) = self.device.read(RegionId.MATRIX, self.addr)
        self.device.write(RegionId.MATRIX, self.addr, [word ^ 0x6060])  # both mantissas, by far


def example(make):
    graph = make()
    return compile_graph(graph, TINY), {"x": np.random.default_rng(3).normal(0, 1, (3, *graph.sample_shape("x")))}


@pytest.mark.parametrize("make", [residual, gru], ids=["residual", "gru"])
def test_the_first_layer_with_other_results_is_named(make):
    compiled, x = example(make)
    with connect("emulator", TINY) as device:
        assert first_difference(compiled, x, device) == ""
        layers = [layer for layer in compiled.lowered.layers if layer.weights]
        found = [first_difference(compiled, x, Faulty(device, compiled, layer)) for layer in layers]
        assert found and found == [layer.name for layer in layers]


@pytest.mark.slow
def test_layers_in_row_tiles_are_named_together():
    compiled, x = example(lambda: separable(24))
    layers = {layer.name: layer for layer in compiled.lowered.layers}
    with connect("emulator", TINY) as device:
        assert first_difference(compiled, x, device) == ""
        for name, found in (
            ("deep", "first to down"),
            ("point", "first to down"),
            ("mean", "mean"),
            ("dense", "dense"),
        ):
            assert first_difference(compiled, x, Faulty(device, compiled, layers[name])) == found


@pytest.mark.slow
def test_the_report_says_where():
    compiled, x = example(residual)
    layer = next(layer for layer in compiled.lowered.layers[1:] if layer.weights)
    with connect("emulator", TINY) as device:
        analysis = analyse(compiled, x, Faulty(device, compiled, layer))
    assert analysis.same_on_rtl is False and analysis.differs_behind == layer.name
    assert f"first behind {layer.name}" in render(analysis)
