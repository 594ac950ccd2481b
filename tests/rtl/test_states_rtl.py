"""States in the memories of the RTL: runs that follow each other, over the link and with a feeder in front."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.host import connect
from concord.spec.presets import TINY
from support.rtl_configs import FED, WRITABLE
from support.stateful_nets import EXACT, ROUNDED

pytestmark = pytest.mark.slow
CASES = [
    (TINY, "window of results"), (TINY, "window, newest first"), (TINY, "exchange with lanes to spare"), (TINY, "GRU"),
    (FED, "window of results"), (FED, "integrator"), (FED, "delay line"), (WRITABLE, "decoder"),
]  # fmt: skip


@pytest.mark.parametrize("config, name", CASES, ids=[f"{name}, {config.name}" for config, name in CASES])
def test_sequences(config, name):
    """In one call, in several, and once more from the beginning."""
    graph = (EXACT | ROUNDED)[name]()
    compiled, rng = compile_graph(graph, config), np.random.default_rng(0)
    shapes = {name: (9, *graph.sample_shape(name)) for name in graph.inputs if name not in graph.states}
    inputs = {name: rng.integers(-4, 5, shape) / 2 for name, shape in shapes.items()}
    results = {}
    for back_end in ("emulator", "rtl"):
        with connect(back_end, config) as device:
            device.load(compiled.image)
            whole = compiled.run(device, inputs)
            device.reset_states()
            cuts = (slice(4), slice(4, 5), slice(5, 9))
            parts = [compiled.run(device, {name: x[cut] for name, x in inputs.items()}) for cut in cuts]
            if config.inbox and back_end == "rtl":
                assert device.input_route.startswith("raw")
        for name, values in whole.items():
            np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), values)
        results[back_end] = whole
    for name, values in results["emulator"].items():
        np.testing.assert_array_equal(results["rtl"][name], values)
