"""Trained networks with formats chosen from samples: static exponents, weights rounded by GPTQ; real samples."""

from functools import cache

import numpy as np
import pytest

from concord.derive import ir
from concord.derive.flags import every as every_node
from concord.derive.model import derive_package
from concord.networks.calibrated import choose_formats
from concord.spec.formats import ExponentMode
from concord.spec.presets import ECP5_85F
from concord_bench.tasks import TASKS, calibration, load
from support.derived_backends import emulated_flags, with_c
from support.derived_modules import emulated, same
from support.trained import DATA, needs_data

pytestmark = needs_data

#: Networks with the number of bits that the weights of all layers have.
NETS = {"digits_cnn": 4, "digits_lstm64": 6}


@cache
def compiled(name):
    """The best one with static exponents, its model with flags, and samples."""
    task = next(task for task in TASKS if task.model == name)
    graph, x, _ = load(task, DATA)
    layers = [node.name for node in graph.nodes if "weight" in node.attrs]
    data = {key: values[:64] for key, values in calibration(task, graph, DATA).items()}
    evidence = choose_formats(graph, ECP5_85F, data, mantissas=dict.fromkeys(layers, NETS[name]))
    static = next(one for one in evidence.candidates if one.compiled is not None and "static" in one.label)
    package = static.compiled.package
    (given,) = graph.inputs
    return package, derive_package(package, flags=True), {given: np.concatenate([x[:3], 3.0 * x[:2]])}


@pytest.mark.slow
@with_c
@pytest.mark.parametrize("name", NETS)
def test_same_bits_and_flags(name, backend, tmp_path):
    package, model, x = compiled(name)
    ports = package.arrangement.pack(x)
    outputs, found = backend(model, tmp_path, x)
    want = package.finish(x, emulated(package.image, ports))
    same({key: outputs[key] for key in want}, want)
    assert found == emulated_flags(package.image, ports)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETS)
def test_weights_are_not_the_nearest(name):
    assert compiled(name)[0].formats.weights


def test_samples_beyond_the_calibration_saturate():
    package, model, x = compiled("digits_cnn")
    quantised = [node for node in every_node(model.body) if isinstance(node, ir.Quantise) and node.pcs]
    assert ExponentMode.STATIC in {node.mode for node in quantised}
    raised = emulated_flags(package.image, package.arrangement.pack(x))
    saturated = [names["SATURATED"] for names in raised.values() if "SATURATED" in names]
    assert saturated and min(map(min, saturated)) >= 3
