"""Convolution, products, pooling and normalisation, against onnxruntime."""

import numpy as np
import pytest

from concord.frontend import UnsupportedModel, import_model
from concord.graph.cost import macs
from concord.graph.ops import divisors
from concord.graph.ops.windows import AveragePoolAttributes
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, floats, ints, ops, unary


def random_conv(seed):
    """Shape of the input, of the weights, and attributes, weighted towards corners."""
    rng = np.random.default_rng(seed)
    rank, group = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2, 3]))
    each, outputs = int(rng.integers(1, 4)), group * int(rng.integers(1, 4))
    if seed % 4 == 0:
        each, group = 1, outputs
    kernel, dilations, strides = (rng.integers(1, 4, rank).tolist() for _ in range(3))
    spatial = [(k - 1) * d + 1 + int(rng.integers(0, 6)) for k, d in zip(kernel, dilations, strict=True)]
    attrs = {"dilations": dilations, "strides": strides, "group": group}
    padding = ("explicit", "SAME_UPPER", "SAME_LOWER", "VALID", "none")[seed % 5]
    if padding == "explicit":
        attrs["pads"] = rng.integers(0, 3, 2 * rank).tolist()
    elif padding != "none":
        attrs["auto_pad"] = padding
    if padding.startswith("SAME"):
        attrs["dilations"] = [1] * rank
    return [1, each * group, *spatial], (outputs, each, *kernel), attrs


@pytest.mark.parametrize("seed", range(40))
def test_convolution(seed):
    shape, weight, attrs = random_conv(seed)
    constants = floats(*weight), floats(weight[0]) if seed % 3 else None
    assert ops(agrees(op.Conv(given(*shape), *constants, **attrs))) == ["Conv"]


def test_many_images_are_convolved_in_blocks(monkeypatch):
    for name in ("_PRODUCT_BLOCK", "_DEPTHWISE_BLOCK"):
        monkeypatch.setattr(f"concord.graph.ops.linear.{name}", 2 * 4 * 9 * 49)
    for group, weight in ((2, floats(6, 2, 3, 3)), (4, floats(4, 1, 3, 3))):
        agrees(op.Conv(given(1, 4, 9, 9), weight, group=group), {"x": floats(5, 4, 9, 9).astype(float)})


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("data", ["a", "b"])
@pytest.mark.parametrize("bias", [(), (1,), (5,), (1, 5), (4, 1), (4, 5), None])
def test_gemm(trans_a, trans_b, data, bias):
    shapes = {"a": (3, 4) if trans_a else (4, 3), "b": (5, 3) if trans_b else (3, 5)}
    a, b = (given(*shape) if name == data else floats(*shape) for name, shape in shapes.items())
    c = None if bias is None else floats(*bias)
    graph = agrees(op.Gemm(a, b, c, transA=trans_a, transB=trans_b, alpha=0.5, beta=-2.0))
    assert ops(graph).count("Dense") == 1
    if data == "a" and bias in ((), (5,), (1, 5), None) and not trans_a:
        assert ops(graph) == ["Dense"]


def test_gemm_with_a_computed_addend():
    agrees(op.Gemm(given(1, 3), floats(3, 4), given(1, 4, name="z"), beta=3.0))


@pytest.mark.parametrize(
    ("x", "w"),
    [((1, 3), (3, 4)), ((1, 2, 3), (3, 4)), ((1, 2, 3), (1, 3, 4)), ((2, 3), (1, 1, 3, 4)), ((2, 3), (3,)),
     ((3,), (3, 4)), ((3,), (3,))],
)  # fmt: skip
def test_product_with_a_constant_on_the_right(x, w):
    agrees(op.MatMul(given(*x), floats(*w)))


@pytest.mark.parametrize(
    ("w", "x"),
    [((4, 3), (3, 2)), ((4, 3), (2, 3, 5)), ((1, 4, 3), (3, 2)), ((3,), (3, 2)), ((3,), (2, 3, 5)), ((4, 3), (3,))],
)
def test_product_with_a_constant_on_the_left(w, x):
    agrees(op.MatMul(floats(*w), given(*x)))


@pytest.mark.parametrize(
    ("x", "z"),
    [((1, 3), (3, 4)), ((1, 2, 3), (3, 4)), ((1, 4, 2, 3), (1, 4, 3, 5)), ((2, 1, 2, 3), (5, 3, 2)), ((2, 3), (3,)),
     ((3,), (3, 4)), ((3,), (2, 3, 4)), ((3,), (3,)), ((2, 4, 3), (3,))],
)  # fmt: skip
def test_product_of_two_tensors(x, z):
    graph = agrees(op.MatMul(given(*x), given(*z, name="z")))
    (product,) = (item for item in graph.nodes if item.op == "MatMul")
    assert macs(graph) == np.prod(graph.shapes[product.outputs[0]]) * 3


@pytest.mark.parametrize("trans_a", [0, 1])
@pytest.mark.parametrize("trans_b", [0, 1])
@pytest.mark.parametrize("bias", [True, False])
def test_gemm_of_two_tensors(trans_a, trans_b, bias):
    shapes = {"a": (3, 4) if trans_a else (4, 3), "b": (5, 3) if trans_b else (3, 5)} | ({"c": (5,)} if bias else {})
    operands = (given(*shape, name=name) for name, shape in shapes.items())
    agrees(op.Gemm(*operands, transA=trans_a, transB=trans_b, alpha=0.5, beta=-2.0))


@pytest.mark.parametrize("name", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("seed", range(24))
def test_pooling(name, seed):
    rng = np.random.default_rng(seed)
    rank = 1 + seed % 2
    kernel = rng.integers(2, 4, rank).tolist()
    attrs = {"kernel_shape": kernel, "strides": rng.integers(1, 4, rank).tolist(), "ceil_mode": int(seed % 3 == 0)}
    if seed % 4 == 3:
        attrs["auto_pad"] = ("SAME_UPPER", "SAME_LOWER", "VALID")[seed % 3]
        attrs |= {"ceil_mode": 0, "strides": [2] * rank}
    else:
        attrs["pads"] = [int(rng.integers(0, kernel[k % rank])) for k in range(2 * rank)]
        attrs["dilations"] = rng.integers(1, 3, rank).tolist()
    if name == "AveragePool":
        attrs["count_include_pad"] = int(seed % 5 < 2)
    shape = (1, 2, *rng.integers(5, 10, rank).tolist())
    assert ops(agrees(unary(name, opset=19, shape=shape, **attrs))) == [name]


@pytest.mark.parametrize("name", ["MaxPool", "AveragePool"])
@pytest.mark.parametrize("seed", range(24))
def test_pooling_of_volumes(name, seed):
    """Three spatial axes: windows of planes, then products along the first axis."""
    rng = np.random.default_rng(seed)
    kernel = rng.integers(1, 4, 3).tolist()
    attrs = {"kernel_shape": kernel, "strides": rng.integers(1, 4, 3).tolist(), "ceil_mode": int(seed % 3 == 0)}
    attrs |= {
        "dilations": rng.integers(1, 3, 3).tolist(),
        "pads": [int(rng.integers(0, kernel[k % 3])) for k in range(6)],
    }
    if name == "AveragePool":
        attrs["count_include_pad"] = int(seed % 5 < 2)
    graph = agrees(unary(name, opset=19, shape=(1 + seed % 2, 2, *rng.integers(5, 8, 3).tolist()), **attrs))
    assert name in ops(graph) and "Conv" in ops(graph)


@pytest.mark.parametrize("name", ["Conv", "MaxPool", "AveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("rank", [1, 2])
def test_a_fixed_batch_is_groups_of_channels(name, rank):
    spatial = (7, 6)[:rank]
    constants = {"w": floats(4, 2, *(3,) * rank), "b": floats(4)} if name == "Conv" else {}
    attrs = {"Conv": {"group": 2, "pads": [1, 0] * rank}, "GlobalMaxPool": {}}.get(name, {"kernel_shape": [2] * rank})
    graph = agrees(unary(name, 19, (3, 4, *spatial), constants, **attrs))
    assert ops(graph) == ["Reshape", name.removeprefix("Global"), "Reshape"]


def test_averages_divide_by_what_counts():
    """The last window of four reaches one element beyond all padding."""
    attrs = {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "ceil_mode": 1}
    for include, want in ((1, [3, 3, 3, 2]), (0, [2, 3, 3, 1])):
        graph = agrees(unary("AveragePool", 19, (1, 1, 6), count_include_pad=include, **attrs))
        assert divisors(graph.nodes[0].attributes(AveragePoolAttributes), [6]).tolist() == want


@pytest.mark.parametrize("name", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pooling(name):
    assert ops(agrees(unary(name, shape=(1, 3, 4, 5)))) == ["ReduceMean" if name == "GlobalAveragePool" else "MaxPool"]


@pytest.mark.parametrize("name", ["ReduceMean", "ReduceSum", "ReduceMax"])
@pytest.mark.parametrize("opset", [11, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [(1,), (-1, 1), None])
def test_reductions(name, opset, keepdims, axes):
    attrs = {"keepdims": keepdims} | ({"axes": axes} if axes and opset < 18 else {})
    graph = agrees(unary(name, opset, constants={"axes": ints(*axes)} if axes and opset == 18 else None, **attrs))
    assert name in ops(graph)


def test_mean_over_no_axes_is_the_input():
    assert ops(agrees(unary("ReduceMean", 18, noop_with_empty_axes=1))) == ["Reshape"]


@pytest.mark.parametrize("shape", [(1, 3, 4, 5), (1, 4, 6)])
def test_normalisation_of_channels(shape):
    constants = {"s": floats(shape[1]), "b": floats(shape[1])}
    agrees(unary("InstanceNormalization", shape=shape, constants=constants, epsilon=0.1))


@pytest.mark.parametrize("shape", [(1, 6), (1, 6, 5), (1, 6, 3, 4)])
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_normalization(shape, groups):
    scale, bias = np.linspace(0.5, 1.5, 6), np.linspace(-1, 1, 6)
    normal = op.GroupNormalization(given(*shape), scale, bias, num_groups=groups, epsilon=0.1)
    assert "Normalise" in ops(agrees(model_of(normal, opset=21)))


def test_groups_that_channels_are_no_multiple_of():
    normal = op.GroupNormalization(given(1, 6, 5), np.ones(6), np.ones(6), num_groups=4)
    with pytest.raises(UnsupportedModel, match="channels must be a multiple of num_groups 4, not 6"):
        import_model(model_of(normal, opset=21))


def test_normalisation_of_a_layer():
    constants = {"s": floats(3, 5), "b": floats(3, 5)}
    agrees(unary("LayerNormalization", constants=constants, axis=1, epsilon=0.1))
    agrees(unary("LayerNormalization", constants={"s": floats(5)}))
    y, mean, root = op.LayerNormalization(given(1, 3, 5), floats(3, 5), axis=1, outputs=3)
    agrees(model_of(y=y, mean=mean, root=root))


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(
    ("weight", "attrs"),
    [
        ((4, 2, 2, 3, 3), {"pads": [1, 1, 1, 0, 1, 1]}),
        ((4, 2, 3, 2, 2), {"strides": [2, 1, 2], "dilations": [2, 1, 1]}),
        ((4, 1, 2, 2, 2), {"group": 2, "auto_pad": "SAME_UPPER"}),
    ],
)
def test_convolutions_of_volumes(weight, attrs, images):
    agrees(op.Conv(given(images, 2, 6, 5, 7), floats(*weight), floats(weight[0]), **attrs))


def test_convolutions_of_volumes_that_do_not_fit():
    for shape, group, message in (((4, 3, 2, 2, 2), 1, "must go with 2 channels in 1 groups"),
                                  ((4, 2, 7, 2, 2), 1, "must fit into the padded input")):  # fmt: skip
        with pytest.raises(UnsupportedModel, match=message):
            import_model(model_of(op.Conv(given(1, 2, 6, 5, 7), floats(*shape), group=group)))


@pytest.mark.parametrize("p", [1, 2])
def test_norms_of_windows(p):
    x = given(1, 2, 6, 5)
    for norm in (
        op.LpPool(x, p=p, kernel_shape=[2, 3], strides=[2, 1], pads=[1, 0, 0, 1]),
        op.LpPool(x, p=p, kernel_shape=[3, 3], auto_pad="SAME_UPPER"),
        op.GlobalLpPool(x, p=p),
    ):
        agrees(model_of(norm, opset=18))
    with pytest.raises(UnsupportedModel, match="p must be 1 or 2, not 3: other powers in a window span more than"):
        import_model(model_of(op.GlobalLpPool(x, p=3)))


@pytest.mark.parametrize("beta", [0.5, 0.75, 1.0])
@pytest.mark.parametrize("size", [1, 3, 5])
def test_local_response(beta, size):
    x = given(1, 5, 3, 2)
    agrees(op.LRN(x, size=size, alpha=0.5, beta=beta, bias=1.5))
    with pytest.raises(UnsupportedModel, match=r"beta must be 0.5, 0.75 or 1, not 0.6"):
        import_model(model_of(op.LRN(x, size=size, beta=0.6)))


@pytest.mark.parametrize("shape, constant", [
    ((2, 3, 4), (2, 4, 5)), ((1, 3, 4), (3, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 1, 3, 4), (5, 4, 2)),
    ((2, 3, 2, 4), (2, 1, 4, 3)), ((6, 3, 4), (6, 4, 1)), ((1, 2, 1, 4), (2, 2, 1, 4, 3)),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("left", [False, True])
def test_constants_that_differ_over_the_batch(shape, constant, left):
    """A product for each matrix of the constant, on either side."""
    if left:
        constant = (*constant[:-2], constant[-1], shape[-2])
    x, weight = given(*shape), floats(*constant)
    agrees(op.MatMul(weight, x) if left else op.MatMul(x, weight))


@pytest.mark.parametrize("equation", ["nij,njk->nik", "nji,njk->nik", "nij,nkj->kni"])
def test_sums_of_a_constant_that_differs_over_the_batch(equation):
    constant = (2, 4, 5) if "njk" in equation else (2, 5, 4)
    shape = (2, 4, 3) if "nji" in equation else (2, 3, 4)
    (left, right), x, weight = equation.split("->"), given(*shape), floats(*constant)
    first, second = left.split(",")
    agrees(op.Einsum(x, weight, equation=equation))
    agrees(op.Einsum(weight, x, equation=f"{second},{first}->{right}"))
