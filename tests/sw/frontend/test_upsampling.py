"""Transposed convolutions and resized images, against onnxruntime."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from concord.frontend import UnsupportedModel, import_model
from concord.graph.cost import macs
from concord.graph.execute import run
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, floats, ops, unary


def random_transposed(seed):
    """Shape of the input, of the weights, and attributes, weighted towards corners."""
    rng = np.random.default_rng(seed)
    rank, group = int(rng.integers(1, 3)), int(rng.choice([1, 1, 2]))
    kernel, strides, dilations = (rng.integers(1, 4, rank).tolist() for _ in range(3))
    spatial = rng.integers(1, 5, rank).tolist()
    attrs = {"strides": strides, "dilations": dilations, "group": group}
    extra = [int(rng.integers(0, stride)) for stride in strides]
    full = [s * (n - 1) + (k - 1) * d + 1 for s, n, k, d in zip(strides, spatial, kernel, dilations, strict=True)]
    if seed % 3 == 0:
        attrs["pads"] = [int(rng.integers(0, (size + 1) // 2)) for size in full] * 2
    if seed % 2:
        attrs["output_padding"] = extra
    if seed % 5 == 4:
        kernel = [max(k, s) for k, s in zip(kernel, strides, strict=True)]
        attrs["auto_pad"] = str(rng.choice(["SAME_UPPER", "SAME_LOWER", "VALID"]))
        attrs.pop("pads", None)
        attrs.pop("output_padding", None)
    return [1, 2 * group, *spatial], (2 * group, int(rng.integers(1, 4)), *kernel), attrs


@pytest.mark.parametrize("seed", range(60))
def test_transposed_convolutions(seed):
    shape, weight, attrs = random_transposed(seed)
    constants = [floats(*weight), *([floats(weight[1] * attrs["group"])] if seed % 2 else [])]
    agrees(op.ConvTranspose(given(*shape), *constants, **attrs))


def test_no_product_is_with_a_zero_between_elements():
    """All multiplications are those of the definition."""
    graph = agrees(op.ConvTranspose(given(1, 8, 5, 7), floats(8, 6, 4, 4), strides=[2, 2], pads=[1] * 4))
    assert ops(graph).count("Conv") == 4
    assert macs(graph) == 8 * 6 * 4 * 4 * 5 * 7


@pytest.mark.parametrize("sizes", [[9, 8], [8, 7], [10, 9]])
def test_sizes_of_the_result_that_are_asked_for(sizes):
    agrees(op.ConvTranspose(given(1, 2, 3, 4), floats(2, 3, 3, 3), strides=[3, 2], output_shape=sizes))


def test_a_batch_of_fixed_size():
    agrees(op.ConvTranspose(given(2, 2, 3, 4), floats(2, 3, 3, 3), strides=[2, 2]))


SCALES = [1.0, 2.0, 3.0, 1.5, 0.5, 0.6, 2.5]


@pytest.mark.parametrize("seed", range(80))
def test_resized_images(seed):
    rng = np.random.default_rng(seed)
    mode = ("nearest", "linear", "cubic")[seed % 3]
    where = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric")[seed // 3 % 4]
    attrs = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        attrs["nearest_mode"] = str(rng.choice(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    if mode == "cubic" and seed % 2:
        attrs |= {"cubic_coeff_a": -0.5, "exclude_outside": int(where != "align_corners")}
    spatial = rng.integers(1, 6, 2).tolist()
    scales = np.array([1, 1, *rng.choice(SCALES[:3] if seed % 2 else SCALES, 2)], np.float32)
    scales = np.maximum(scales, np.float32([1, 1, 1 / spatial[0], 1 / spatial[1]]))
    x = given(1, 3, *spatial)
    if seed % 4 == 3:
        sizes = np.maximum(np.floor(np.array([1, 3, *spatial]) * scales), 1).astype(np.int64)
        agrees(op.Resize(x, None, None, sizes, **attrs))
    else:
        agrees(op.Resize(x, None, scales, **attrs))


def test_the_nearest_element_is_only_moved():
    attrs = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    graph = agrees(op.Resize(given(1, 2, 4, 5), None, np.float32([1, 1, 2, 3]), **attrs))
    assert set(ops(graph)) <= {"Reshape", "Concat"}


def test_linear_interpolation_is_a_sum_over_neighbours():
    graph = agrees(op.Resize(given(1, 2, 4, 5), None, np.float32([1, 1, 2, 2]), mode="linear"))
    assert ops(graph).count("Conv") == 4 and "Dense" not in ops(graph)


def test_upsample():
    agrees(model_of(op.Upsample(given(1, 2, 3, 4), np.float32([1, 1, 2, 2]), mode="nearest"), opset=9))


def test_axes_and_a_batch():
    resize = op.Resize(given(2, 2, 3, 4), None, np.float32([2, 2]), mode="linear", axes=[2, 3])
    agrees(model_of(resize, opset=18))


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_the_proportions_may_stay(policy):
    resize = op.Resize(given(1, 2, 4, 3), None, None, [7, 8], keep_aspect_ratio_policy=policy, axes=[2, 3])
    agrees(model_of(resize, opset=18))


REFUSED = [
    ({"mode": "linear", "antialias": 1}, [1, 1, 2, 2], "antialias must be 0, as runtimes differ"),
    ({"coordinate_transformation_mode": "half_pixel_odd"}, [1, 1, 2, 2], "must be nearest, linear or cubic"),
    ({"coordinate_transformation_mode": "tf_crop_and_resize"}, [1, 1, 2, 2], "roi must be constant|operands or attr"),
    ({}, [1, 2, 2, 2], "must leave the batch and the channels as they are"),
    ({}, [2, 2], "must have a scale or a size for each of 4 axes"),
]


@pytest.mark.parametrize(("attrs", "scales", "message"), REFUSED)
def test_what_is_refused(attrs, scales, message):
    proto = model_of(op.Resize(given(1, 2, 3, 4), None, np.float32(scales), **attrs), opset=18)
    with pytest.raises(UnsupportedModel, match=message):
        import_model(proto)


VOLUMES = [
    ({}, (2, 3, 2, 2, 2)), ({"strides": [2, 1, 3]}, (2, 3, 3, 2, 2)),
    ({"strides": [2, 2, 2], "pads": [1] * 6}, (2, 3, 3, 3, 3)),
    ({"group": 2, "dilations": [1, 2, 1], "output_padding": [1, 0, 1], "strides": [2, 1, 2]}, (2, 2, 2, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize(("attrs", "weight"), VOLUMES)
def test_transposed_convolutions_of_volumes(attrs, weight, images):
    bias = floats(weight[1] * attrs.get("group", 1))
    agrees(op.ConvTranspose(given(images, 2, 3, 2, 4), floats(*weight), bias, **attrs))


def test_more_spatial_axes_are_refused():
    proto = unary("ConvTranspose", shape=(1, 2, 3, 3, 3, 3), constants={"w": floats(2, 2, 2, 2, 2, 2)})
    with pytest.raises(UnsupportedModel, match="must have 1 to 3 spatial axes, not 4"):
        import_model(proto)


REGIONS = {
    "inside": ([0, 0, 0.2, 0.1, 1, 1, 0.9, 0.7], 0.0),
    "beyond": ([0, 0, -0.3, 0.1, 1, 1, 1.2, 0.9], 0.0),
    "beyond, with a value": ([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7], 10.0),
}


@pytest.mark.parametrize("sizes", [[1, 2, 3, 3], [1, 2, 1, 7]])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("name", REGIONS)
def test_regions_of_images(name, mode, sizes):
    region, value = REGIONS[name]
    attrs = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": value}
    y = op.Resize(given(1, 2, 4, 5), np.float32(region), None, sizes, mode=mode, **attrs)
    agrees(model_of(y, opset=18))


def test_a_region_with_as_many_results_as_elements():
    """As ONNX's reference has it: onnxruntime leaves such an axis as it is."""
    region = np.float32([0, 0, 0.4, 0.6, 1, 1, 1.2, 1.7])
    attrs = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 10.0}
    y = op.Resize(given(1, 2, 4, 5), region, None, [1, 2, 4, 5], mode="linear", **attrs)
    proto = model_of(y, opset=18)
    x = np.random.default_rng(1).normal(size=(1, 2, 4, 5))
    (want,) = ReferenceEvaluator(proto).run(None, {"x": x.astype("f4")})
    np.testing.assert_allclose(run(import_model(proto), {"x": x})["y"], want, rtol=1e-4, atol=1e-4)
