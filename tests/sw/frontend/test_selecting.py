"""Elements that are picked or placed by constant indices, and linear operators with a constant matrix."""

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from support.onnx_models import agrees, floats, ints, model, node, ops

X = {"x": (1, 3, 4)}

PICKED = {
    "along an axis": (node("GatherElements", ["x", "i"], ["y"], axis=2), {"i": np.tile(ints(2, 0, 1), (1, 3, 1))}),
    "anywhere": (
        node("GatherElements", ["x", "i"], ["y"], axis=1),
        {"i": ints(0, 2, 1, -1, 2, 0, 1, 1).reshape(1, 2, 4)},
    ),
    "rows": (node("GatherND", ["x", "i"], ["y"]), {"i": ints(0, 2, 0, 0).reshape(2, 2)}),
    "single elements": (node("GatherND", ["x", "i"], ["y"]), {"i": ints(0, 2, 1, 0, 0, 3).reshape(1, 2, 3)}),
    "of every row": (node("GatherND", ["x", "i"], ["y"], batch_dims=1), {"i": ints(2, 0).reshape(1, 2, 1)}),
    "some": (node("Compress", ["x", "c"], ["y"], axis=2), {"c": np.array([True, False, True])}),
    "some of all": (node("Compress", ["x", "c"], ["y"]), {"c": np.arange(12) % 5 == 0}),
    "backwards": (node("ReverseSequence", ["x", "n"], ["y"], batch_axis=0, time_axis=1), {"n": ints(2)}),
}


@pytest.mark.parametrize("name", PICKED)
def test_elements_are_picked(name):
    item, constants = PICKED[name]
    agrees(model([item], X, constants=constants))


def test_what_lies_along_an_axis_is_moved_along_it():
    item, constants = PICKED["along an axis"]
    assert "Reshape" not in ops(import_model(model([item], X, constants=constants)))


def test_many_pieces_are_picked():
    rng = np.random.default_rng(1)
    places = rng.permutation(400).reshape(1, 400)
    graph = agrees(model([node("GatherElements", ["x", "i"], ["y"], axis=1)], {"x": (1, 400)}, constants={"i": places}))
    assert len(ops(graph)) > 64
    wide = model([node("GatherElements", ["x", "i"], ["y"], axis=2)], {"x": (1, 2, 100)},
                 constants={"i": np.stack([rng.permutation(100), rng.permutation(100)])[None]})  # fmt: skip
    assert ops(agrees(wide)) == ["Reshape", "Pick", "Reshape"]


PLACED = {
    "elements": (
        node("ScatterElements", ["x", "i", "u"], ["y"], axis=2),
        ints(1, 3).reshape(1, 1, 2),
        (1, 1, 2),
    ),
    "rows": (node("ScatterND", ["x", "i", "u"], ["y"]), ints(0, 2, 0, 0).reshape(2, 2), (2, 4)),
    "all": (node("ScatterND", ["x", "i", "u"], ["y"]), ints(0).reshape(1, 1), (1, 3, 4)),
}


FORMS = pytest.mark.parametrize("form", ["computed", "constant updates", "constant data"])


def scattering(item, places, updates, form, opset=16):
    """A model of data and updates, of which a form may have one constant."""
    constants, inputs = {"i": places}, {"x": (1, 3, 4), "u": updates}
    known = {"constant updates": "u", "constant data": "x"}.get(form)
    if known is not None:
        constants[known] = floats(*inputs.pop(known))
    return model([item], inputs, constants=constants, opset=opset)


def agrees_on_normal_samples(proto):
    rng, graph = np.random.default_rng(2), import_model(proto)
    agrees(proto, {name: rng.normal(size=(2, *graph.sample_shape(name))) for name in graph.inputs})


@FORMS
@pytest.mark.parametrize("name", PLACED)
def test_elements_are_placed(name, form):
    proto = scattering(*PLACED[name], form)
    if name == "all" and form == "constant updates":
        with pytest.raises(UnsupportedModel, match="takes no element of a computed tensor"):
            import_model(proto)
        return
    agrees_on_normal_samples(proto)


@FORMS
def test_updates_are_added(form):
    item = node("ScatterND", ["x", "i", "u"], ["y"], reduction="add")
    agrees_on_normal_samples(scattering(item, ints(0, 2, 0, 0, 0, 2).reshape(3, 2), (3, 4), form))


@FORMS
@pytest.mark.parametrize("reduction", ["max", "min", "mul"])
@pytest.mark.parametrize("op", ["ScatterND", "ScatterElements"])
def test_updates_are_combined(op, reduction, form):
    """Several of them at some places, none at others."""
    places, shape, attrs = {
        "ScatterND": (ints(0, 2, 0, 0, 0, 2).reshape(3, 2), (3, 4), {}),
        "ScatterElements": (ints(1, 1, 0, 2, 1, 1).reshape(1, 2, 3), (1, 2, 3), {"axis": 1}),
    }[op]
    item = node(op, ["x", "i", "u"], ["y"], reduction=reduction, **attrs)
    agrees_on_normal_samples(scattering(item, places, shape, form, opset=18))


def test_maxima_go_back_to_their_places():
    constants = {"i": ints(1, 7, 12, 14).reshape(1, 1, 2, 2), "s": ints(1, 1, 4, 4)}
    for names in (["x", "i"], ["x", "i", "s"]):
        item = node("MaxUnpool", names, ["y"], kernel_shape=[2, 2], strides=[2, 2])
        agrees(model([item], {"x": (1, 1, 2, 2)}, constants={name: constants[name] for name in names[1:]}))
    with pytest.raises(UnsupportedModel, match="operand 1 must be constant"):
        item = node("MaxUnpool", ["x", "x"], ["y"], kernel_shape=[2, 2])
        import_model(model([item], {"x": (1, 1, 2, 2)}))


@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_maxima_of_regions(scale):
    """Whole, small, and beyond the image on either side."""
    regions = [[0, 0, 5, 4], [1, 2, 1, 2], [3, 1, 9, 9], [8, 9, 12, 11], [-1, -3, 3, 4]]
    constants = {"r": np.float32([[0, *region] for region in regions])}
    item = node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[2, 3], spatial_scale=scale)
    agrees(model([item], {"x": (1, 2, 5, 6)}, constants=constants))
    sevenths = node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[1, 7], spatial_scale=scale)  # in single precision
    agrees(model([sevenths], {"x": (1, 8, 1, 31)}, constants={"r": np.float32([[0, 0, 0, 28 / scale, 0]])}))
    many = node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[9, 9])
    with pytest.raises(UnsupportedModel, match="must have at most 256 parts of regions, not 405"):
        import_model(model([many], {"x": (1, 2, 5, 6)}, constants=constants))


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
    item = node("TensorScatter", ["x", "u", "i"], ["y"], mode=mode)
    inputs = {"x": (1, 2, 5, 3), "u": (1, 2, 2, 3)}
    of_reference(model([item], inputs, constants={"i": ints(3 if mode == "linear" else 4)}, opset=24), inputs)


@pytest.mark.slow
def test_a_deformed_convolution_with_constant_offsets():
    rng = np.random.default_rng(1)
    constants = {"w": floats(2, 2, 2, 2), "o": rng.uniform(-1, 1, (1, 8, 3, 3)).astype("f"), "b": floats(2)}
    constants["m"] = rng.uniform(0, 1, (1, 4, 3, 3)).astype("f")
    item = node("DeformConv", ["x", *constants], ["y"], kernel_shape=[2, 2], pads=[0, 0, 0, 0])
    of_reference(model([item], {"x": (1, 2, 4, 4)}, constants=constants, opset=19), ["x"])
    with pytest.raises(UnsupportedModel, match="operand 2 must be constant"):
        item = node("DeformConv", ["x", "w", "o"], ["y"], kernel_shape=[2, 2])
        import_model(model([item], {"x": (1, 2, 4, 4), "o": (1, 8, 3, 3)}, constants={"w": constants["w"]}, opset=19))


def test_many_elements_by_their_place_along_a_short_axis():
    """Where a product would be too large, each slice of the axis counts where it is meant."""
    indices = np.random.default_rng(1).integers(-3, 3, (1, 2, 40, 40))
    item = node("GatherElements", ["x", "i"], ["y"], axis=1)
    graph = agrees(model([item], {"x": (1, 3, 40, 40)}, constants={"i": indices}))
    assert set(ops(graph)) == {"Slice", "Mul", "Add"}


def test_what_cannot_be_picked():
    for item, constants, message in (
        (node("GatherElements", ["x", "x"], ["y"]), {}, "operand 1 must be constant"),
        (
            node("GatherElements", ["x", "i"], ["y"], axis=2),
            {"i": ints(7).reshape(1, 1, 1)},
            "indices must fit the operand",
        ),
        (node("Compress", ["x", "c"], ["y"], axis=2), {"c": np.zeros(4, bool)}, "takes no elements"),
        (
            node("ScatterND", ["x", "i", "u"], ["y"], reduction="mean"),
            {"i": ints(0, 1).reshape(1, 2), "u": floats(1, 4)},
            "reduction must be one of none, add, max, min, mul, not mean",
        ),
        (
            node("ScatterND", ["x", "i", "u"], ["y"], reduction="max"),
            {"i": np.tile(ints(0, 1), (17, 1)), "u": floats(17, 4)},
            "must have at most 16 updates at a place, not 17",
        ),
        (node("DFT", ["x", "", "a"], ["y"]), {"a": np.int64(1)}, "matrix of a linear function must have at most"),
    ):
        shape = (1, 2000, 1) if item.op_type == "DFT" else (1, 3, 4)
        with pytest.raises(UnsupportedModel, match=message):
            import_model(model([item], {"x": shape}, constants=constants, opset=20))


def test_a_grid_is_a_matrix_for_all_channels():
    grid = np.random.default_rng(3).uniform(-1.1, 1.1, (1, 3, 5, 2)).astype(np.float32)
    for mode in ("linear", "nearest", "cubic"):
        proto = model(
            [node("GridSample", ["x", "g"], ["y"], mode=mode)], {"x": (1, 2, 4, 4)}, constants={"g": grid}, opset=20
        )
        assert ops(agrees(proto, tolerance=1e-4)) == ["Reshape", "Dense", "Reshape"]
    two = model(
        [node("GridSample", ["x", "g"], ["y"])],
        {"x": (2, 2, 4, 4)},
        constants={"g": np.tile(grid, (2, 1, 1, 1))},
        opset=20,
    )
    with pytest.raises(UnsupportedModel, match="must have a batch of 1, not 2"):
        import_model(two)


def test_regions():
    constants = {"r": np.float32([[0, 0, 3, 3], [1, 0.5, 2.5, 3]]), "b": ints(0, 0)}
    item = node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2, sampling_ratio=2)
    agrees(model([item], {"x": (1, 2, 4, 4)}, constants=constants), tolerance=1e-4)
    largest = node("RoiAlign", ["x", "r", "b"], ["y"], output_height=2, output_width=2, mode="max")
    with pytest.raises(UnsupportedModel, match="mode must be avg"):
        import_model(model([largest], {"x": (1, 2, 4, 4)}, constants=constants))


def test_a_spectrum():
    graph = agrees(
        model([node("DFT", ["x", "", "a"], ["y"])], {"x": (1, 12, 1)}, constants={"a": np.int64(1)}, opset=20)
    )
    x = np.random.default_rng(4).normal(size=(1, 12, 1))
    want = np.fft.fft(x[0, :, 0])
    np.testing.assert_allclose(run(graph, {"x": x})["y"].reshape(12, 2), np.stack([want.real, want.imag], 1), atol=1e-5)


def test_columns_to_an_image():
    constants = {"size": ints(4, 4), "block": ints(2, 2)}
    agrees(model([node("Col2Im", ["x", "size", "block"], ["y"])], {"x": (1, 8, 9)}, constants=constants, opset=18))
