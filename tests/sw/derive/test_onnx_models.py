"""Derived models as ONNX graphs: ONNX Runtime gives what the golden model gives, to the last bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

from concord.derive import evaluate
from concord.derive.backends.onnx_file import to_onnx
from support.derive_models import MODELS, assert_equal, samples, softmax


def run(model, inputs, level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL):
    """Outputs of the ONNX graph of a model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString(), options, ["CPUExecutionProvider"])
    assert [given.name for given in session.get_inputs()] == list(inputs)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name, level):
    model = MODELS[name]()
    for count in (1, 20):
        inputs = samples(model, count, seed=count)
        found = run(model, inputs, getattr(onnxruntime.GraphOptimizationLevel, level))
        assert_equal(found, evaluate.run(model, inputs))


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
def test_the_host_has_its_bits(level):
    model = softmax()
    inputs = {"input:0": np.nan_to_num(samples(model, 5)["input:0"])}
    found = run(model, inputs, getattr(onnxruntime.GraphOptimizationLevel, level))
    assert list(found) == ["shares", "output/0"]  # what the NPU gives is there, too
    assert_equal(found, evaluate.run(model, inputs) | evaluate.run(replace(model, host_partition=None), inputs))


def test_layers_are_functions_with_names():
    model = MODELS["data_movement"]()
    proto = to_onnx(model)
    layers = [function.name for function in proto.functions if function.domain == "layers"]
    assert layers == ["first", "second_layer", "first_2", "outputs"]
    assert [node.domain for node in proto.graph.node] == ["layers"] * len(layers)
    assert {opset.domain: opset.version for opset in proto.opset_import} == {"": 21, "concord": 1, "layers": 1}
