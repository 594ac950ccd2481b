"""The backend interface of ONNX, and ONNX's own runner of tests with it."""

import unittest
import warnings

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import concord
from concord import onnx_backend
from concord.frontend import UnsupportedModel
from support.onnx_models import model, node

RNG = np.random.default_rng(6)


def test_the_module_is_a_backend():
    assert issubclass(onnx_backend.ConcordBackend, onnx.backend.base.Backend)
    assert onnx_backend.supports_device("CPU") and onnx_backend.supports_device("CPU:0")
    assert not onnx_backend.supports_device("CUDA")
    proto = model([node("Relu", ["x"], ["y"])], {"x": (2, 3)})
    x = RNG.normal(size=(2, 3)).astype(np.float32)
    (y,) = onnx_backend.run_model(proto, [x])
    assert y.dtype == np.float32 and y.shape == (2, 3) and np.allclose(y, np.maximum(x, 0), atol=0.01)
    with pytest.raises(ValueError, match="device must be CPU, not 'CUDA'"):
        onnx_backend.prepare(proto, "CUDA")
    with pytest.raises(onnx_backend.NotForBackend, match="must be valid ONNX"):
        onnx_backend.prepare(model([node("Relu", ["z"], ["y"])], {"x": (2, 3)}))


def test_inputs_that_must_be_constant_are():
    """Axes and weights: other values of theirs, and other shapes, are another network."""
    proto = model([node("MatMul", ["x", "w"], ["h"]), node("ReduceMean", ["h", "axes"], ["y"], keepdims=0)],
                  {"x": (None, None), "w": (4, 5), "axes": (1,)}, opset=18)  # fmt: skip
    proto.graph.input[2].type.tensor_type.elem_type = TensorProto.INT64
    prepared = onnx_backend.prepare(proto)
    for rows, axis in ((3, 0), (3, 1), (2, 1)):
        x, w = RNG.normal(size=(rows, 4)), RNG.normal(size=(4, 5))
        y = prepared.run({"x": x, "w": w, "axes": np.array([axis])})["y"]
        want = (x @ w).mean(axis=axis)
        assert y.shape == want.shape and np.abs(y - want).max() < 0.05 * np.abs(x @ w).max()


def test_a_model_is_compiled_once(monkeypatch):
    from concord.onnx_backend import backend

    calls, compile_graph = [], backend.compile_graph
    monkeypatch.setattr(backend, "compile_graph", lambda *given: calls.append(given) or compile_graph(*given))
    prepared = onnx_backend.prepare(model([node("Relu", ["x"], ["y"])], {"x": ("n", 3)}))
    for count in (2, 2, 4, 4):
        prepared.run([np.ones((count, 3), np.float32)])
    assert len(calls) == 2


def test_a_node_alone():
    x = RNG.normal(size=(1, 4)).astype(np.float32)
    outputs = onnx_backend.run_node(helper.make_node("Clip", ["x", "", "top"], ["y"]), [x, np.float32(0.5)])
    assert np.allclose(outputs["y"], np.minimum(x, 0.5), atol=0.01) and outputs[0] is outputs.y
    half = onnx_backend.run_node(
        helper.make_node("Relu", ["x"], ["y"]),
        x.astype(np.float16),
        outputs_info=[(np.float16, (1, 4))],
        opset_version=14,
    )
    assert half.y.dtype == np.float16


def test_what_cannot_run_is_skipped_and_an_error_that_says_why():
    proto = model([node("NonZero", ["x"], ["y"])], {"x": (2, 3)})
    proto.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert not onnx_backend.is_compatible(proto)
    with pytest.raises(onnx_backend.NotForBackend, match="NonZero") as caught:
        onnx_backend.run_model(proto, [np.ones((2, 3), np.float32)])
    assert isinstance(caught.value, unittest.SkipTest) and isinstance(caught.value, UnsupportedModel)
    assert onnx_backend.is_compatible(model([node("Relu", ["x"], ["y"])], {"x": (2, 3)}))
    integers = model([node("Add", ["x", "x"], ["y"])], {"x": (2,)})
    integers.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    with pytest.raises(onnx_backend.NotForBackend):
        onnx_backend.run_model(integers, [np.ones(2, np.int64)])
    with pytest.raises(ValueError, match=r"inputs must be \['x'\], by name or in this order, not \['z'\]"):
        onnx_backend.run_model(integers, {"z": np.ones(2)})
    with pytest.raises(ValueError, match="input 'x' must have 2 axes, not 1"):
        onnx_backend.run_model(model([node("Relu", ["x"], ["y"])], {"x": (2, 3)}), [np.ones(2, np.float32)])


@pytest.mark.slow
def test_the_runner_of_onnx():
    """Operators of which it is exact to the tolerance of ONNX pass, others are skipped with a reason."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test import BackendTest

        runner = BackendTest(onnx_backend, __name__)
        runner.include("^test_(relu|transpose_all_permutations_0|nonzero_example|reshape_reordered_all_dims)_cpu$")
        loader, result = unittest.defaultTestLoader, unittest.TestResult()
        for case in runner.test_cases.values():
            loader.loadTestsFromTestCase(case).run(result)
    assert not result.errors and not result.failures
    passed = result.testsRun - len(result.skipped)
    assert passed == 3
    assert [reason for test, reason in result.skipped if "nonzero" in str(test)] != []


def test_it_is_imported_when_it_is_used():
    assert "onnx_backend" not in concord.__all__
