"""Reductions and running sums, against onnxruntime."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from concord.frontend import import_model
from concord.graph.execute import run
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, unary

REDUCTIONS = ("ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceProd")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("axes", [[1], [2], [-1], [1, 2], [1, 3], [1, 2, 3]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_reductions(name, axes, keepdims):
    agrees(unary(name, shape=(1, 2, 3, 4), axes=axes, keepdims=keepdims))


@pytest.mark.parametrize("name", ["ReduceMin", "ReduceProd", "ReduceLogSumExp"])
def test_axes_that_are_left_out_are_all(name):
    agrees(unary(name, shape=(1, 2, 3), keepdims=0))
    agrees(unary(name, shape=(1, 2, 3)))


@pytest.mark.parametrize("name", REDUCTIONS)
def test_axes_that_are_an_input(name):
    agrees(model_of(getattr(op, name)(given(1, 3, 4), [2]), opset=18))


@pytest.mark.parametrize("name", ["ReduceMin", "ReduceProd", "ReduceLogSumExp", "ReduceMax"])
def test_no_axes_and_nothing_to_do(name):
    nothing = np.zeros(0, np.int64)
    agrees(model_of(getattr(op, name)(given(1, 3, 4), nothing, noop_with_empty_axes=1), opset=18))


def test_logarithm_of_a_sum():
    proto = unary("ReduceLogSum", shape=(1, 3, 4), axes=[2])
    agrees(proto, {"x": np.random.default_rng(1).uniform(0.1, 2, (3, 3, 4))})


def test_exponentials_do_not_overflow():
    proto = unary("ReduceLogSumExp", shape=(1, 3, 4), axes=[2])
    agrees(proto, {"x": np.random.default_rng(1).uniform(400, 500, (3, 3, 4))})


@pytest.mark.parametrize(("shape", "axis"), [((1, 6), 1), ((1, 3, 5), 2), ((1, 3, 5), 1), ((1, 2, 3, 4), -2)])
@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
def test_running_sum(shape, axis, attrs):
    agrees(op.CumSum(given(*shape), axis, **attrs))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [1, 2, -1])
def test_norms_of_one(p, axis):
    agrees(unary("LpNormalization", shape=(1, 3, 4), axis=axis, p=p))


@pytest.mark.parametrize("axis", [1, 2, -2])
@pytest.mark.parametrize("attrs", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
def test_running_products(axis, attrs):
    """Against ONNX's reference: onnxruntime has none."""
    proto = model_of(op.CumProd(given(1, 3, 4), axis, **attrs), opset=26)
    x = np.random.default_rng(1).normal(size=(3, 3, 4))
    want = [ReferenceEvaluator(proto).run(None, {"x": x[k : k + 1].astype("f")})[0] for k in range(3)]
    (got,) = run(import_model(proto), {"x": x}).values()
    np.testing.assert_allclose(got, np.concatenate(want), rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
def test_determinants(rows):
    agrees(op.Det(given(1, 2, rows, rows)), tolerance=1e-4)
