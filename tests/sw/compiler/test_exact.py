"""Single layers on small integers, which every format holds exactly: the program must compute what ONNX says."""

import math

import numpy as np
import pytest

from support import expressions
from support.expressions import ROOMY, concat, exact, tensor, whole

SAME = {"kernel": 3, "pads": 1}
OPERATIONS = ["Add", "Sub", "Mul", "Max", "Min"]


def image(*shape, name="x"):
    return tensor(1, *shape, name=name)


def layers(compiled):
    return compiled.lowered.layers


@pytest.mark.parametrize("seed", range(32))
def test_convolutions(seed):
    """Of any geometry; images are a few positions larger than their windows, so that these reach over all borders."""
    rng = np.random.default_rng(seed)
    kernel, strides, dilations, more = (rng.integers(low, high, 2) for low, high in ((1, 4), (1, 4), (1, 3), (0, 5)))
    pads, group = rng.integers(0, 3, 4).tolist(), int(rng.choice([1, 1, 2, 3]))
    size = np.maximum((kernel - 1) * dilations + 1 + more - pads[:2], 2)
    x = image(group * int(rng.integers(1, 4)), *size.tolist())
    x = x.relu() if seed % 2 else x  # computed: the host cannot unfold it
    geometry = {"strides": strides.tolist(), "pads": pads, "dilations": dilations.tolist(), "group": group}
    exact(x.whole_conv(group * int(rng.integers(1, 4)), *kernel.tolist(), **geometry))


@pytest.mark.parametrize("channels", [3, 4, 9])
@pytest.mark.parametrize("stride", [1, 2])
def test_depthwise_convolutions(channels, stride):
    compiled = exact(image(channels, 6, 7).whole_conv(channels, 3, 3, strides=stride, pads=1, group=channels))
    assert layers(compiled)[0].reduction.value == "depthwise"


@pytest.mark.parametrize("kernel, stride, dilation, group", [(3, 1, 1, 1), (5, 2, 1, 1), (2, 1, 3, 1), (3, 2, 1, 6)])
def test_one_dimensional_convolutions(kernel, stride, dilation, group):
    geometry = {"strides": stride, "pads": (1, 2), "dilations": dilation, "group": group}
    exact(image(6, 13).whole_conv(6, kernel, **geometry))


@pytest.mark.parametrize("lead", [(1,), (1, 3), (2, 3)])
@pytest.mark.parametrize("width", [3, 4, 11])
def test_matrix_products(lead, width):
    exact(tensor(*lead, width).whole_dense(5))


def test_a_product_reads_a_flattened_image():
    compiled = exact(image(3, 6, 6).whole_conv(5, 2, 1, dilations=2).reshape(1, 120).whole_dense(7), limit=1)
    assert len(layers(compiled)) == 2


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 2, 1), (0, 1, 3, 2)])
def test_transposed_inputs_and_results_cost_nothing(order):
    stored = [(1, 3, 5, 6)[axis] for axis in order]
    back = (int(axis) for axis in np.argsort(order))
    assert len(layers(exact(tensor(*stored).transpose(*back).whole_conv(5, 2, 2).transpose(*order)))) == 1


@pytest.mark.parametrize("kernel, stride, pad", [(2, 2, 0), (3, 2, 1), (3, 1, 1)])
def test_maxima_of_windows(kernel, stride, pad):
    exact(image(6, 7, 8).pool("MaxPool", kernel, stride, pad))


@pytest.mark.parametrize("counted", [(0, 0, 0, 0), (1, 1, 1, 1)])
def test_averages_of_windows(counted):
    exact(image(6, 5, 4).pool("AveragePool", 2, pads=1, counted=counted))


@pytest.mark.parametrize("axes, keep", [((2, 3), True), ((2, 3), False), ((3,), True), ((1,), True), ((1, 2), False)])
def test_means(axes, keep):
    exact(image(4, 4, 8).relu().reduce("Mean", *axes, keep=keep))


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("constant", [(), (5, 1, 1), (1, 6), (1, 5, 4, 6)])
@pytest.mark.parametrize("behind", [False, True])
def test_operations_with_constants(op, constant, behind):
    x = image(5, 4, 6).whole_conv(5, 1, 1) if behind else image(5, 4, 6)
    attrs = {"reversed": True} if op == "Sub" and behind else {}
    compiled = exact(x.with_constant(op, np.random.default_rng(11).integers(-3, 4, constant), **attrs))
    assert len(layers(compiled)) == 1


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("swapped", [False, True])
def test_operations_of_two_tensors_are_fused_with_the_later_one(op, swapped):
    x = image(3, 4, 6)
    pair = [x.whole_conv(5, 1, 1, name="conv"), x.whole_conv(5, 1, 1, name="other")][:: -1 if swapped else 1]
    compiled = exact(pair[0].combined(op, pair[1], name="op"))
    assert [layer.nodes for layer in layers(compiled)] == [[pair[0].name], [pair[1].name, "op"]]


def test_channels_are_scaled_by_a_tensor():
    a = image(4, 2, 2).conv(4 * whole(6, 4, 1, 1, limit=1))
    exact(a * a.reduce("Mean", 2, 3).relu(), limit=1)


@pytest.mark.parametrize("bounds", [(0.0, 2.0), (-1.0, 1.0), (-math.inf, 1.0), (-1.0, math.inf)])
def test_limits(bounds):
    stages = 1 + np.isfinite(bounds).sum() - (bounds[0] == 0)  # sums, maxima and minima, two per chain
    assert len(layers(exact(image(4, 3, 3).whole_conv(6, 1, 1).clip(*bounds)))) == -(-stages // 2)


@pytest.mark.parametrize("axis", [1, 2])
def test_concatenated_tensors_are_written_side_by_side(axis):
    x = image(4, 3, 5)
    both = concat(axis, x.whole_conv(6, 1, 1), x.whole_conv(6, 1, 1))
    assert len(layers(exact(both.whole_conv(3, 1, 1), limit=1))) == 3


@pytest.mark.parametrize("axis", [1, 2, 3])
def test_inputs_are_copied_to_lie_side_by_side(axis):
    """What the host writes stays where it is."""
    exact(concat(axis, image(4, 3, 5), image(4, 3, 5, name="z")))


#: Eight factors or terms that differ where channels are the same element.
APART = np.reshape([3, 8, 1, 6, 2, 7, 4, 5], (1, 8, 1, 1))
ENDS = {
    "depthwise": lambda x: x.whole_conv(8, 3, 3, group=8),
    "grouped": lambda x: x.whole_conv(8, 3, 3, group=2),
    "dense": lambda x: x.whole_conv(5, 3, 3),
    "average": lambda x: x.pool("AveragePool", 2, counted=(0,) * 4),
    "sum": lambda x: x.reduce("Sum", 2, 3),
    "same constant": lambda x: x + 2.0,
    "other terms": lambda x: x + APART,
    "other factors": lambda x: x * APART,
    "other limits": lambda x: x.combined("Max", APART),
}


@pytest.mark.parametrize("computed", [False, True])
@pytest.mark.parametrize("last", ENDS)
def test_a_tensor_beside_itself(computed, last):
    """Channels that are the same element have kernels, and constants, of their own all the same."""
    x = image(4, 4, 4).whole_conv(4, 1, 1) if computed else image(4, 4, 4)
    exact(ENDS[last](concat(1, x, x)), limit=1)


def test_a_tensor_that_is_concatenated_twice_is_copied():
    x = image(4, 3, 5)
    a, b = x.whole_conv(4, 1, 1), x.whole_conv(4, 1, 1)
    one, two = concat(1, a, b), concat(1, b, a)
    exact(one.whole_conv(4, 1, 1) + two.whole_conv(4, 1, 1), limit=1)


def test_parts_of_a_product_meet_element_by_element():
    a = image(6, 3, 2).whole_conv(14, 1, 1)
    exact(a[:, :7] * a[:, 7:])
    a = image(3, 6).whole_dense(14)
    exact(a[:, :, :7] * a[:, :, 7:])


@pytest.mark.parametrize("mode", ["reflect", "edge", "constant"])
def test_a_first_convolution_over_padded_samples(mode):
    """What the host pads is unfolded as well."""
    compiled = exact(image(20).pad(0, 3, 0, 5, mode=mode).reshape(1, 1, 28).whole_conv(6, 8, strides=4))
    assert layers(compiled)[0].window.taps == 1


def test_parts_of_a_tensor_are_read_in_place():
    part = image(4, 3, 5).whole_conv(6, 1, 1)[:, 1:4, :, ::-2]
    assert len(layers(exact(part.whole_conv(3, 2, 2), limit=1))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("between", [False, True])
def test_a_residual_sum_is_streamed_where_wide_memory_is_short(between, monkeypatch):
    """In place, unless the product reads what is added. Row tiles, which keep it as it is, take fewer cycles."""
    a = image(4, 20, 20).whole_conv(4, 1, 1)
    second = (a.pool("MaxPool", **SAME) if between else a).whole_conv(4, 3, 3, pads=1, name="second")
    sparse = np.random.default_rng(17).integers(-1, 2, (2, 4, 5, 5)) * (
        np.random.default_rng(1).random((2, 4, 5, 5)) < 0.1
    )
    y = (second + a).conv(sparse.astype(float), strides=5)
    short = ROOMY.replace(wide_depth=400, narrow_depth=800)
    assert not exact(y, short, limit=1).streamed_residuals
    monkeypatch.setattr("concord.compiler.emission.row_tiled.layer_spans", lambda lowered: iter(()))
    assert exact(y, short, limit=1).streamed_residuals == ("second",)
    assert not exact(y, limit=1).streamed_residuals


@pytest.mark.parametrize("size", [(4, 5), (7,)])
def test_an_input_that_products_and_others_read(size):
    """The host writes it wide, and the program makes it narrow before its first layer."""
    x, kernel = image(9, *size), (1,) * len(size)
    compiled = exact(concat(1, x.whole_conv(9, *kernel) + x, x.whole_conv(3, *kernel)))
    assert [port.region.name for port in compiled.image.inputs] == ["WIDE"]


@pytest.mark.parametrize("axis", [2, 3])
def test_a_part_of_a_map_is_copied_from_where_it_lies(axis):
    """Rows or columns from the middle, which meet others of the same map."""
    a = image(2, 6, 6).whole_conv(4, 1, 1)
    middle, first = ((*[slice(None)] * axis, slice(start, start + 3)) for start in (2, 0))
    exact(a[middle].relu() + a[first])


def test_parts_of_a_product_with_gaps_between_them_meet():
    """Every part begins with a native vector of its own, also one that no other part ends in front of."""
    a = image(3).whole_dense(12)
    assert len(layers(exact(a[:, :3] * a[:, 5:8]))) == 2


def test_what_a_later_layer_reads_is_not_replaced():
    a = image(2, 5, 6).whole_conv(4, 1, 1)
    exact(a.clip(-1.0, 1.0).pool("MaxPool", **SAME) + a)


@pytest.mark.parametrize("kernel", [(2, 2), (1, 3), (3, 1)])
@pytest.mark.parametrize("strides", [(1, 1), (2, 1), (1, 2)])
@pytest.mark.parametrize("dilations", [(1, 1), (1, 2), (2, 1)])
def test_windows_of_an_input_that_the_host_writes_out(kernel, strides, dilations):
    """Different steps and pads along both axes and at both ends."""
    compiled = exact(image(1, 6, 7).whole_conv(3, *kernel, strides=strides, pads=(0, 1, 1, 2), dilations=dilations))
    assert layers(compiled)[0].window.kernel == (1, 1)


def test_what_a_window_still_reads_is_not_replaced():
    """A maximum of windows plus the tensor itself: the sum must not lie where later windows read."""
    a = image(2, 5, 6).whole_conv(4, 1, 1)
    exact((a.pool("MaxPool", **SAME) + a).relu())


def test_what_another_operand_still_reads_is_not_replaced():
    """Four rows plus the first of them: the result must not lie where the first row is read again."""
    x, u = image(4), image(4, name="u")
    a = x + x
    exact(a + concat(0, a, a, u, x))


@pytest.mark.parametrize("op", OPERATIONS)
@pytest.mark.parametrize("computed", [False, True])
def test_an_operation_on_a_tensor_and_itself(op, computed):
    """As passes leave it where they remove what lay between the tensor and its other operand."""
    x = image(3, 5).relu() if computed else image(3, 5)
    exact(x.combined(op, x))


def test_a_part_that_is_written_when_others_have_been_read():
    """Products read one row narrow; a later row of the same tensor is written narrow, too, and replaces nothing."""
    a = image(5) * 2.0
    exact(concat(0, a, a.same().same().same().same()))


def test_the_comparison_notices_one_wrong_number(monkeypatch):
    """The least difference there is between binary16 numbers, in one element of one sample."""
    y = image(2, 4, 4).whole_conv(3, 2, 2) + 9.0
    exact(y)
    original = expressions.run

    def wrong(*args, **options):
        found = original(*args, **options)
        found["y"][-1, -1, -1, -1] *= 1 + 2.0**-10
        return found

    monkeypatch.setattr(expressions, "run", wrong)
    with pytest.raises(AssertionError):
        exact(y)


@pytest.mark.parametrize("channels", [3, 4, 6])
def test_a_product_reads_the_maximum_over_channels(channels):
    """The mask in padding lanes is beyond all numbers: were it in a block, nothing else would be left of that."""
    exact(image(2, 3, 3).whole_conv(channels, 1, 1, limit=2).reduce("Max", 1).conv(np.ones((1, 1, 1, 1))))
