"""Operators of TensorFlow Lite that become several operations on codes, against the reference kernels."""

import numpy as np
import pytest

from concord import integer
from support.frameworks import missing, needs

if missing("tflite"):
    pytest.skip(missing("tflite"), allow_module_level=True)

from support.tflite_draws import lowered_operators
from support.tflite_models import Net, compared_codes

pytestmark = needs("tflite")

SCHEME = {"scale": 0.05, "zero": 3}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_all_codes_are_those_of_the_reference_kernels(seed, dtype):
    count, different = compared_codes(*lowered_operators(seed, dtype))
    assert count > 2500 and different == 0


def test_a_rounding_of_shares_counts():
    """Halves of an image that grows by two are rounded away from zero."""
    net = Net()
    x = net.tensor((1, 1, 2, 1), np.int8, **SCHEME)
    sizes = net.constant(np.int32([1, 4]))
    y = net.op("RESIZE_BILINEAR", [x, sizes], net.tensor((1, 1, 4, 1), np.int8, **SCHEME), "ResizeBilinearOptions")
    codes = np.int8([[[[-3], [0]]], [[[4], [3]]]])
    (made,) = integer.load(net.bytes([x], [y])).run({"tensor0": codes}).values()
    assert made.ravel().tolist() == [-3, -2, 0, 0, 4, 4, 3, 3]


@pytest.mark.parametrize(
    "name, constants, made, options, reason",
    [
        ("MAXIMUM", [np.int8([1, 2, 3, 4])], (1, 2, 3, 4), {}, "a constant operand must be one code for all elements"),
        ("REDUCE_MAX", [np.int32([0])], (2, 3, 4), {"options": "ReducerOptions"}, "without that of the samples, not (0,)"),
        (
            "RESIZE_BILINEAR",
            [np.int32([4, 6])],
            (1, 4, 6, 4),
            {"options": "ResizeBilinearOptions"},
            "uint8 computes in",
        ),
        ("GATHER", [np.int32([0, 0])], (2, 2, 3, 4), {"options": "GatherOptions"}, "must leave axis 0 as it is"),
        (
            "SUM",
            [np.int32([1])],
            (1, 3, 4),
            {"options": "ReducerOptions"},
            "SUM 'tensor2': is not an operator on codes; use MEAN",
        ),
    ],
)
def test_what_has_other_kernels_is_refused(name, constants, made, options, reason):
    net, dtype = Net(), np.uint8 if name == "RESIZE_BILINEAR" else np.int8
    x = net.tensor((1, 2, 3, 4), dtype, **SCHEME)
    operands = [net.constant(values, **SCHEME if values.dtype == np.int8 else {}) for values in constants]
    y = net.op(name, [x, *operands], net.tensor(made, dtype, **SCHEME), **options)
    with pytest.raises(integer.UnquantisedModel) as refusal:
        integer.load(net.bytes([x], [y]))
    assert reason in refusal.value.reasons[0]


def test_a_layer_that_has_another_form():
    net = Net()
    x = net.tensor((1, 5, 3), np.int8, **SCHEME)
    y = net.op("UNIDIRECTIONAL_SEQUENCE_LSTM", [x], net.tensor((1, 5, 4), np.int8, **SCHEME))
    with pytest.raises(integer.UnquantisedModel, match="is not an operator on codes; convert the layer with unroll=T"):
        integer.load(net.bytes([x], [y]))


def test_weights_of_an_input_that_is_always_zero():
    """Converters divide by its scale, 0."""
    net = Net()
    x, y = net.tensor((1, 4), np.int16, scale=0.01), net.tensor((1, 2), np.int16, scale=0.01)
    w = net.constant(np.zeros((2, 4), np.int8), scale=[np.inf, 0.1])
    net.op("FULLY_CONNECTED", [x, w], y, "FullyConnectedOptions")
    with pytest.raises(integer.UnquantisedModel, match="must be finite, not inf, as for inputs that are always 0"):
        integer.load(net.bytes([x], [y]))
