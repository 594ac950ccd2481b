"""Functions of angles and hyperbolas: the graph against onnxruntime, and the NPU for every number of binary16."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.host.emulated import EmulatedDevice
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F
from support.onnx_models import agrees, model, node

LANES = 256
#: By operator: the function, the ends of the inputs, and the greatest error there, relative to the greatest result.
FUNCTIONS = {
    "Sin": (np.sin, (-400, 400), 0.0025),
    "Cos": (np.cos, (-400, 400), 0.002),
    "Tan": (np.tan, (-1.2, 1.2), 0.004),
    "Asin": (np.arcsin, (-1, 1), 0.02),
    "Acos": (np.arccos, (-1, 1), 0.0101),
    "Atan": (np.arctan, (-65504, 65504), 0.0012),
    "Sinh": (np.sinh, (-9, 9), 0.0025),
    "Cosh": (np.cosh, (-9, 9), 0.0025),
    "Asinh": (np.arcsinh, (-65504, 65504), 0.013),
    "Acosh": (np.arccosh, (1, 65504), 0.013),
    "Atanh": (np.arctanh, (-0.99, 0.99), 0.018),
}


def network(op, shape=(1, LANES)):
    return model([node(op, ["x"], ["y"])], {"x": shape})


@pytest.mark.parametrize("op", FUNCTIONS)
def test_the_graph_has_the_function(op):
    _, (low, high), _ = FUNCTIONS[op]
    x = np.random.default_rng(1).uniform(max(low, -100), min(high, 100), (3, 40))
    agrees(network(op, (1, 40)), {"x": x}, tolerance=1e-3 if op == "Atan" else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("op", FUNCTIONS)
def test_every_number(op):
    """Without samples, on ``ecp5-85f``."""
    function, (low, high), limit = FUNCTIONS[op]
    x = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    x = x[(x >= low) & (x <= high)].astype(np.float64)
    x = np.concatenate([x, np.full(-len(x) % LANES, x[-1])]).reshape(-1, LANES)
    got, want = emulate(compile_graph(import_model(network(op)), ECP5_85F), {"x": x})["y"], function(x)
    assert np.abs(got - want).max() < limit * np.abs(want).max()


@pytest.mark.parametrize("op", ["Sin", "Cos"])
def test_angles_far_away_raise_a_flag(op):
    """More turns than are taken off exactly: results are something between -1 and 1, and a flag says so."""
    compiled = compile_graph(import_model(network(op)), ECP5_85F)
    with EmulatedDevice(ECP5_85F) as device:
        device.load(compiled.image)
        for x, flagged in (
            (np.linspace(-402, 402, LANES), False),
            (402.25, False),
            (-402.5, True),
            (403.0, True),
            (65504.0, True),
        ):
            results = compiled.package.run(device, {"x": np.broadcast_to(x, (1, LANES))})["y"]
            assert np.abs(results).max() <= 1
            assert ({flag.flag for flag in compiled.package.flags(device.flags())} == {"HALF_OVERFLOW"}) == flagged
