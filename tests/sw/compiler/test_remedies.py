"""What the compiler advises is done here, with a small network each: it must work, and give what onnxruntime gives.

What helps where memories are too small is in ``memory/test_capacity.py``.
"""

import numpy as np
import pytest

import concord
from concord.compiler.lowering.lowered import Unsupported
from concord.program.allocator import CapacityError
from support.host_stage_nets import chooser, too_large
from support.onnx_expressions import given, model_of, op
from support.onnx_models import onnxruntime_results

RNG = np.random.default_rng(6)
PRESET = "ecp5-85f-256"


def floats(*shape):
    return RNG.normal(0, 0.3, shape).astype(np.float32)


def works(proto, want_of=None, preset=PRESET, **options):
    """It compiles, and results differ by no more than 8 bits leave from those of a model, by default its own."""
    net = concord.compile(proto, preset=preset, **options)
    inputs = (want_of or proto).graph.input
    shapes = {item.name: [dim.dim_value or 1 for dim in item.type.tensor_type.shape.dim] for item in inputs}
    x = {name: np.random.default_rng(1).normal(0, 1, shape).astype(np.float32) for name, shape in shapes.items()}
    got = net.run({name: values.reshape(1, *net.inputs[name]) for name, values in x.items()})
    for name, want in zip(net.outputs, onnxruntime_results(want_of or proto, x), strict=True):
        assert np.abs(got[name].reshape(want.shape) - want).max() <= 0.04 * np.abs(want).max()


def advice(proto, error=Unsupported, preset=PRESET, **options):
    with pytest.raises(error) as caught:
        concord.compile(proto, preset=preset, **options)
    return str(caught.value)


def placed():
    """The place of the greatest of some scores."""
    return model_of(op.ArgMax(op.Gemm(given(1, 8), floats(8, 5)), axis=1))


def test_partition_ends():
    assert "no instruction computes it; --partition ends lets the host" in advice(placed(), partition="none")
    works(placed(), partition="ends")


def test_the_layers_in_front_of_what_the_host_computes():
    """The place of the greatest of the scores alone, and with the product that makes them."""
    alone = model_of(op.ArgMax(given(1, 5), axis=1))
    assert "or compile it together with the layers in front of it" in advice(alone)
    works(placed())


def test_partition_any_for_products_on_both_sides():
    assert "--partition any lets the host compute what is on one side of it" in advice(chooser())
    works(chooser(), partition="any")


@pytest.mark.slow
def test_partition_any_for_what_does_not_fit():
    text = "--partition any lets the host compute what the NPU does not take"
    assert text in advice(too_large(), CapacityError, "ecp5-25f")
    works(too_large(), preset="ecp5-25f", partition="any")


def along_positions(weight):
    """A product along positions."""
    count = len(weight)
    rows = op.Reshape(op.Conv(given(1, 3, 1, count), floats(4, 3, 1, 1)), [1, 4, count])
    return model_of(op.MatMul(rows, weight))


@pytest.mark.slow
def test_partition_any_for_a_layout():
    proto = along_positions(floats(67, 67))
    assert "--partition any lets the host compute what the NPU does not take" in advice(proto)
    works(proto, partition="any")


@pytest.mark.slow
def test_where_nothing_helps_it_is_not_said():
    """There is one product, and it is too large; no part of the network compiles without it."""
    proto = model_of(op.Gemm(given(1, 600), floats(600, 600)))
    assert "--partition" not in advice(proto, CapacityError)
    assert "--partition any" not in advice(proto, CapacityError, partition="any")


@pytest.mark.slow
def test_an_order_of_the_nodes():
    """Neighbours that are near each other; a band of a matrix has no row along all positions."""
    order = np.random.default_rng(1).permutation(67)
    band = np.tril(np.triu(floats(67, 67), -8), 8)
    far = band[np.ix_(order, order)]
    far[[0, -1], 0] = 0.5
    assert "another order of the nodes, or some more without neighbours" in advice(along_positions(far))
    works(along_positions(band))


@pytest.mark.slow
def test_nodes_without_neighbours():
    """A node more: 68 is twice 34."""
    weight = floats(67, 67)
    assert "or over a multiple of a number up to 63, not over 67" in advice(along_positions(weight))
    works(along_positions(np.pad(weight, (0, 1))))


def test_constants_that_are_scaled_in_the_model():
    def scaled(by):
        return model_of(op.Conv(given(1, 3, 5, 5), np.full((4, 3, 1, 1), by), np.full(4, 1e5 * by)))

    assert "constants must be below 65520 in magnitude, not 100000; scale them in the model" in advice(scaled(1.0))
    works(scaled(1 / 4))


def test_weights_that_are_scaled_in_the_model():
    def scaled(by):
        return model_of(op.Gemm(given(1, 8), floats(8, 4) * by))

    assert "weights must be below" in advice(scaled(1e9)) and "scale them in the model" in advice(scaled(1e9))
    works(scaled(1.0))


def test_clip_of_a_recurrent_layer():
    """What the activations read stays within 9."""
    weights = 3 * floats(1, 16, 3), floats(1, 16, 4)

    def clipped(**attrs):
        return model_of(op.LSTM(given(5, 1, 3), *weights, hidden_size=4, **attrs))

    text = "clip must be left out: results are the same while what the activations read stays within it"
    assert text in advice(clipped(clip=9.0))
    works(clipped(), want_of=clipped(clip=9.0))


@pytest.mark.parametrize(("kernel", "stride"), [(66, 2), (66, 66), (128, 64)])
def test_long_windows_of_equal_parts(kernel, stride):
    def pooled(size, by):
        return model_of(op.MaxPool(given(1, 4, 256), kernel_shape=[size], strides=[by]))

    assert "must be made of equal parts that the stride is a multiple of" in advice(pooled(67, 1))
    works(pooled(kernel, stride))
