"""Derived software has no memory: states are inputs and outputs, and carried by hand they are those of the NPU."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph
from concord.derive.model import derive_package
from concord.host import connect
from support.derived_backends import networks, with_c
from support.expressions import ROOMY
from support.stateful_nets import EXACT, ROUNDED


@with_c
@pytest.mark.parametrize("name", ["window of results", "exchange with lanes to spare", "LSTM", "decoder"])
def test_networks(name, backend, tmp_path):
    package = compile_graph((EXACT | ROUNDED)[name](), ROOMY).package
    networks(package.carried, backend, tmp_path, 3)


@pytest.mark.slow
@with_c
def test_sequences(backend, tmp_path):
    package = compile_graph(EXACT["window with lanes to spare"](), ROOMY).package
    model, x = derive_package(package), np.random.default_rng(1).normal(size=(5, 1, 6))
    with connect("emulator", ROOMY) as device:
        device.load(package.image)
        want = package.run(device, {"x": x})
    past, found = np.zeros((1, 5, 6)), []
    for k in range(5):
        results, _ = backend(model, tmp_path, {"x": x[k : k + 1], "past": past})
        past = np.asarray(results["next"]).reshape(1, 5, 6)
        found.append(np.asarray(results["y"]).reshape(1, 5, 3))
    np.testing.assert_array_equal(np.concatenate(found), want["y"])
