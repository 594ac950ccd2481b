"""Cycles of every layer, measured on the Verilated core."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import connect
from concord.report import analyse, render
from concord.report.difference import first_difference
from concord.spec.presets import TINY
from support.compiled_nets import gru, residual
from support.row_tiled_nets import separable


@pytest.mark.slow
@pytest.mark.parametrize("make", [residual, gru, lambda: separable(24)], ids=["residual", "gru", "row tiles"])
def test_cycles_of_the_layers_add_up(make):
    graph = make()
    compiled = compile_graph(graph, TINY)
    x = {"x": np.random.default_rng(3).normal(0, 1, (4, *graph.sample_shape("x")))}
    with connect("rtl", TINY) as device:
        analysis = analyse(compiled, x, device)
        device.load(compiled.image)
        compiled.run(device, {"x": x["x"][:1]})
        total = device.counters()["CYCLES"]
        assert first_difference(compiled, x, device) == ""
    assert analysis.same_on_rtl is True and analysis.work.cycles == total
    for layer in analysis.layers:
        assert layer.work.least_cycles < layer.work.cycles < total + 1
    page = render(analysis)
    assert f"{total:,}" in page and "RTL = emulator" in page
