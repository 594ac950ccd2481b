"""Elements that are picked or placed by constant indices, and linear operators with a constant matrix."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, floats, ints, ops

X = given(1, 3, 4)

PICKED = {
    "along an axis": op.GatherElements(X, np.tile(ints(2, 0, 1), (1, 3, 1)), axis=2),
    "anywhere": op.GatherElements(X, ints(0, 2, 1, -1, 2, 0, 1, 1).reshape(1, 2, 4), axis=1),
    "rows": op.GatherND(X, ints(0, 2, 0, 0).reshape(2, 2)),
    "single elements": op.GatherND(X, ints(0, 2, 1, 0, 0, 3).reshape(1, 2, 3)),
    "of every row": op.GatherND(X, ints(2, 0).reshape(1, 2, 1), batch_dims=1),
    "some": op.Compress(X, np.array([True, False, True]), axis=2),
    "some of all": op.Compress(X, np.arange(12) % 5 == 0),
    "backwards": op.ReverseSequence(X, [2], batch_axis=0, time_axis=1),
}


@pytest.mark.parametrize("name", PICKED)
def test_elements_are_picked(name):
    agrees(PICKED[name])


def test_what_lies_along_an_axis_is_moved_along_it():
    assert "Reshape" not in ops(import_model(model_of(PICKED["along an axis"])))


def test_many_pieces_are_picked():
    rng = np.random.default_rng(1)
    graph = agrees(op.GatherElements(given(1, 400), rng.permutation(400).reshape(1, 400), axis=1))
    assert len(ops(graph)) > 64
    rows = np.stack([rng.permutation(100), rng.permutation(100)])[None]
    assert ops(agrees(op.GatherElements(given(1, 2, 100), rows, axis=2))) == ["Reshape", "Pick", "Reshape"]


#: Operators, places, shapes of updates, and attributes.
PLACED = {
    "elements": (op.ScatterElements, ints(1, 3).reshape(1, 1, 2), (1, 1, 2), {"axis": 2}),
    "rows": (op.ScatterND, ints(0, 2, 0, 0).reshape(2, 2), (2, 4), {}),
    "all": (op.ScatterND, ints(0).reshape(1, 1), (1, 3, 4), {}),
}


FORMS = pytest.mark.parametrize("form", ["computed", "constant updates", "constant data"])


def scattering(operator, places, updates, form, opset=16, **attrs):
    """A model of data and updates, of which a form may have one constant."""
    data = floats(1, 3, 4) if form == "constant data" else X
    new = floats(*updates) if form == "constant updates" else given(*updates, name="u")
    return model_of(operator(data, places, new, **attrs), opset=opset)


def agrees_on_normal_samples(proto):
    rng, graph = np.random.default_rng(2), import_model(proto)
    agrees(proto, {name: rng.normal(size=(2, *graph.sample_shape(name))) for name in graph.inputs})


@FORMS
@pytest.mark.parametrize("name", PLACED)
def test_elements_are_placed(name, form):
    operator, places, shape, attrs = PLACED[name]
    proto = scattering(operator, places, shape, form, **attrs)
    if name == "all" and form == "constant updates":
        with pytest.raises(UnsupportedModel, match="takes no element of a computed tensor"):
            import_model(proto)
        return
    agrees_on_normal_samples(proto)


@FORMS
def test_updates_are_added(form):
    places = ints(0, 2, 0, 0, 0, 2).reshape(3, 2)
    agrees_on_normal_samples(scattering(op.ScatterND, places, (3, 4), form, reduction="add"))


@FORMS
@pytest.mark.parametrize("reduction", ["max", "min", "mul"])
@pytest.mark.parametrize("name", ["ScatterND", "ScatterElements"])
def test_updates_are_combined(name, reduction, form):
    """Several of them at some places, none at others."""
    places, shape, attrs = {
        "ScatterND": (ints(0, 2, 0, 0, 0, 2).reshape(3, 2), (3, 4), {}),
        "ScatterElements": (ints(1, 1, 0, 2, 1, 1).reshape(1, 2, 3), (1, 2, 3), {"axis": 1}),
    }[name]
    proto = scattering(getattr(op, name), places, shape, form, opset=18, reduction=reduction, **attrs)
    agrees_on_normal_samples(proto)


def test_maxima_go_back_to_their_places():
    x, window = given(1, 1, 2, 2), {"kernel_shape": [2, 2], "strides": [2, 2]}
    places = ints(1, 7, 12, 14).reshape(1, 1, 2, 2)
    for size in ([], [[1, 1, 4, 4]]):
        agrees(op.MaxUnpool(x, places, *size, **window))
    with pytest.raises(UnsupportedModel, match="operand 1 must be constant"):
        import_model(model_of(op.MaxUnpool(x, x, kernel_shape=[2, 2])))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_maxima_of_regions(scale):
    """Whole, small, and beyond the image on either side."""
    regions = [[0, 0, 5, 4], [1, 2, 1, 2], [3, 1, 9, 9], [8, 9, 12, 11], [-1, -3, 3, 4]]
    rois, x = np.float32([[0, *region] for region in regions]), given(1, 2, 5, 6)
    agrees(op.MaxRoiPool(x, rois, pooled_shape=[2, 3], spatial_scale=scale))
    line = np.float32([[0, 0, 0, 28 / scale, 0]])
    agrees(op.MaxRoiPool(given(1, 8, 1, 31), line, pooled_shape=[1, 7], spatial_scale=scale))  # in single precision
    with pytest.raises(UnsupportedModel, match="must have at most 256 parts of regions, not 405"):
        import_model(model_of(op.MaxRoiPool(x, rois, pooled_shape=[9, 9])))


def of_reference(proto, inputs):
    """Against ONNX's reference, where onnxruntime has no such operator."""
    graph = import_model(proto)
    x = {name: np.random.default_rng(3).normal(size=(2, *graph.sample_shape(name))) for name in inputs}
    (got,) = run(graph, x).values()
    for k in range(2):
        sample = {name: values[k].reshape(graph.shapes[name]).astype("f4") for name, values in x.items()}
        (want,) = ReferenceEvaluator(proto).run(None, sample)
        np.testing.assert_allclose(got[k].reshape(want.shape), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_a_cache_is_updated(mode):
    x, u = given(1, 2, 5, 3), given(1, 2, 2, 3, name="u")
    y = op.TensorScatter(x, u, [3 if mode == "linear" else 4], mode=mode)
    of_reference(model_of(y, opset=24), ["x", "u"])


@pytest.mark.slow
def test_a_deformed_convolution_with_constant_offsets():
    rng = np.random.default_rng(1)
    x, weight, offsets = given(1, 2, 4, 4), floats(2, 2, 2, 2), rng.uniform(-1, 1, (1, 8, 3, 3))
    mask = rng.uniform(0, 1, (1, 4, 3, 3))
    y = op.DeformConv(x, weight, offsets, floats(2), mask, kernel_shape=[2, 2], pads=[0, 0, 0, 0])
    of_reference(model_of(y, opset=19), ["x"])
    with pytest.raises(UnsupportedModel, match="operand 2 must be constant"):
        import_model(model_of(op.DeformConv(x, weight, given(1, 8, 3, 3, name="o"), kernel_shape=[2, 2]), opset=19))


def test_many_elements_by_their_place_along_a_short_axis():
    """Where a product would be too large, each slice of the axis counts where it is meant."""
    indices = np.random.default_rng(1).integers(-3, 3, (1, 2, 40, 40))
    graph = agrees(op.GatherElements(given(1, 3, 40, 40), indices, axis=1))
    assert set(ops(graph)) == {"Slice", "Mul", "Add"}


def test_what_cannot_be_picked():
    for y, message in (
        (op.GatherElements(X, X), "operand 1 must be constant"),
        (op.GatherElements(X, ints(7).reshape(1, 1, 1), axis=2), "indices must fit the operand"),
        (op.Compress(X, np.zeros(4, bool), axis=2), "takes no elements"),
        (
            op.ScatterND(X, ints(0, 1).reshape(1, 2), floats(1, 4), reduction="mean"),
            "reduction must be one of none, add, max, min, mul, not mean",
        ),
        (
            op.ScatterND(X, np.tile(ints(0, 1), (17, 1)), floats(17, 4), reduction="max"),
            "must have at most 16 updates at a place, not 17",
        ),
        (op.DFT(given(1, 2000, 1), None, 1), "matrix of a linear function must have at most"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            import_model(model_of(y, opset=20))


def test_a_grid_is_a_matrix_for_all_channels():
    grid = np.random.default_rng(3).uniform(-1.1, 1.1, (1, 3, 5, 2)).astype(np.float32)
    for mode in ("linear", "nearest", "cubic"):
        proto = model_of(op.GridSample(given(1, 2, 4, 4), grid, mode=mode), opset=20)
        assert ops(agrees(proto, tolerance=1e-4)) == ["Reshape", "Dense", "Reshape"]
    two = op.GridSample(given(2, 2, 4, 4), np.tile(grid, (2, 1, 1, 1)))
    with pytest.raises(UnsupportedModel, match="must have a batch of 1, not 2"):
        import_model(model_of(two, opset=20))


def test_regions():
    operands = given(1, 2, 4, 4), np.float32([[0, 0, 3, 3], [1, 0.5, 2.5, 3]]), [0, 0]
    size = {"output_height": 2, "output_width": 2}
    agrees(op.RoiAlign(*operands, sampling_ratio=2, **size), tolerance=1e-4)
    with pytest.raises(UnsupportedModel, match="mode must be avg"):
        import_model(model_of(op.RoiAlign(*operands, mode="max", **size)))


def test_a_spectrum():
    graph = agrees(model_of(op.DFT(given(1, 12, 1), None, 1), opset=20))
    x = np.random.default_rng(4).normal(size=(1, 12, 1))
    want = np.fft.fft(x[0, :, 0])
    np.testing.assert_allclose(run(graph, {"x": x})["y"].reshape(12, 2), np.stack([want.real, want.imag], 1), atol=1e-5)


def test_columns_to_an_image():
    agrees(model_of(op.Col2Im(given(1, 8, 9), [4, 4], [2, 2]), opset=18))
