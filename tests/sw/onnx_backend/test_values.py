"""Types and shapes of results are those that the file has."""

import re

import numpy as np
import pytest
from onnx import TensorProto, helper

from concord.onnx_backend.values import as_written, dims_of, named

RESULTS = np.array([[0.4, 1.6], [-1.5, 2.5], [3.0, 7.2]])


def output(kind, shape):
    return helper.make_tensor_value_info("y", kind, shape)


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ([6], (6,)),
        ([1, 3, 2], (1, 3, 2)),
        ([7], (3, 2)),  # not as many
        (["n", 2], (3, 2)),
        ([None, 6], (3, 2)),
        ([6, "n"], (3, 2)),  # as many without the open axis
        (None, (3, 2)),
    ],
)
def test_a_fixed_shape_is_that_of_the_results(shape, found):
    value = as_written(output(TensorProto.FLOAT, shape), RESULTS)
    assert value.shape == found and value.dtype == np.float32
    assert np.array_equal(value.ravel(), RESULTS.ravel().astype(np.float32))


def test_one_number_without_axes():
    assert as_written(output(TensorProto.FLOAT, []), np.ones((1, 1))).shape == ()
    assert as_written(output(TensorProto.FLOAT, None), np.ones((1, 1))).shape == (1, 1)


@pytest.mark.parametrize("kind", [TensorProto.INT64, TensorProto.UINT8, TensorProto.DOUBLE, TensorProto.FLOAT16, 0])
def test_whole_numbers_are_the_nearest(kind):
    value = as_written(output(kind, [3, 2]), np.abs(RESULTS))
    dtype = np.dtype(np.float32) if kind == 0 else helper.tensor_dtype_to_np_dtype(kind)
    whole = dtype.kind in "iu"
    want = [[0, 2], [2, 2], [3, 7]] if whole else np.abs(RESULTS)
    assert value.dtype == dtype and np.array_equal(value, np.asarray(want).astype(dtype))


def test_open_axes_have_names_or_none():
    assert dims_of(output(TensorProto.FLOAT, ["n", None, 3])) == ["n", None, 3]


def test_values_by_name():
    assert named(["a"], 7) == named(["a"], [7]) == named(["a"], {"a": 7}) == {"a": 7}
    assert named(["a", "b"], (1, 2)) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    ("values", "told"),
    [({"a": 1}, "['a']"), ([1], "1"), ([1, 2, 3], "3"), (7, "int"), ({"a": 1, "c": 3}, "['a', 'c']")],
)
def test_values_that_do_not_fit_are_told(values, told):
    text = f"inputs must be ['a', 'b'], by name or in this order, not {told}"
    with pytest.raises(ValueError, match=f"^{re.escape(text)}$"):
        named(["a", "b"], values)
