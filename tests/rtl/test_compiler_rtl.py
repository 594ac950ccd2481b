"""Compiled networks on the Verilated core: every output bit as on the emulator."""

import numpy as np
import pytest

from compiled_nets import gru, residual
from concord.compiler.model import compile_graph
from concord.graph.execute import run
from concord.host import connect
from concord.spec.presets import TINY


@pytest.mark.slow
@pytest.mark.parametrize("make", [residual, gru])
def test_emulator_and_rtl_agree(make):
    graph = make()
    compiled = compile_graph(graph, TINY)
    rng = np.random.default_rng(5)
    x = {name: rng.normal(0, 1, (3, *graph.sample_shape(name))) for name in graph.inputs}
    results = []
    for back_end in ("emulator", "rtl"):
        with connect(back_end, TINY) as device:
            device.load(compiled.image)
            results.append(compiled.run(device, x))
    for name, want in run(graph, x).items():
        np.testing.assert_array_equal(results[0][name], results[1][name])
        assert np.abs(results[0][name] - want).max() < 0.1 * np.abs(want).max()
