"""Derived models as ONNX graphs: ONNX Runtime gives what the golden model gives, to the last bit."""

from __future__ import annotations

import onnxruntime
import pytest

from concord.derive import evaluate
from concord.derive.backends.onnx_file import to_onnx
from derive_models import MODELS, assert_equal, samples


def run(model, inputs, level=onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL):
    """Outputs of the ONNX graph of a model."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level
    session = onnxruntime.InferenceSession(to_onnx(model).SerializeToString(), options, ["CPUExecutionProvider"])
    assert [given.name for given in session.get_inputs()] == list(inputs)
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, inputs), strict=True))


@pytest.mark.parametrize("level", ["ORT_DISABLE_ALL", "ORT_ENABLE_ALL"])
@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name, level):
    model = MODELS[name]()
    for count in (1, 20):
        inputs = samples(model, count, seed=count)
        found = run(model, inputs, getattr(onnxruntime.GraphOptimizationLevel, level))
        assert_equal(found, evaluate.run(model, inputs))
