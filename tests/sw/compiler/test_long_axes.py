"""Long axes: layouts use the structure of what is moved, and matrices ask for their size first."""

import numpy as np
import pytest

from concord.compiler.calibration.weights import units as rounded_units
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F, with_mantissas
from concord.utils import matrices
from support.expressions import network, tensor
from support.onnx_expressions import given, model_of, op
from support.onnx_models import onnxruntime_results

_ROOM = {"narrow_depth": 16384, "wide_depth": 16384, "matrix_depth": 4096, "program_depth": 4096}
CONFIG = with_mantissas(ECP5_85F.replace(**_ROOM), 12)


def compiled_for(proto, config=CONFIG):
    return compile_graph(import_model(proto), config)


def is_exact(proto, shape, largest=1000):
    """Whole numbers that blocks of 12 bits hold come out as onnxruntime has them; the matrices are small."""
    compiled = compiled_for(proto)
    values = np.random.default_rng(1).integers(-largest, largest + 1, shape).astype(np.float32)
    (want,) = onnxruntime_results(proto, {"x": values})
    (got,) = emulate(compiled, {"x": values}).values()
    np.testing.assert_array_equal(got.reshape(want.shape), want)
    assert all(layer.weight is None or layer.weight.size <= 1 << 17 for layer in compiled.lowered.layers)
    return compiled


@pytest.mark.slow
@pytest.mark.parametrize("pads", [(3, 8), (0, 5), (300, 0), (16, 16)])
@pytest.mark.parametrize("mode", ["constant", "constant 2", "reflect", "edge", "wrap"])
def test_a_pad_of_lanes_is_copied_by_ranges(mode, pads):
    rank = 2 if pads[0] % 2 else 3
    shape = (1, 5003) if rank == 2 else (1, 3, 1000)
    amounts = np.zeros((2, rank), np.int64)
    amounts[:, -1] = pads
    value = [2.0] if mode.endswith("2") else []
    y = op.Pad(given(*shape), amounts.reshape(-1), *value, mode=mode.split()[0])
    compiled = is_exact(model_of(y, opset=19), shape)
    assert len(compiled.lowered.layers) < 64


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("size", [513, 5003])
def test_running_sums_are_sums_of_parts(size, exclusive, reverse):
    proto = model_of(op.CumSum(given(1, size), 1, exclusive=exclusive, reverse=reverse))
    compiled = compiled_for(proto)
    values = np.zeros((1, size), np.float32)
    values[0, np.random.default_rng(2).permutation(size)[:200]] = 1
    (want,) = onnxruntime_results(proto, {"x": values})
    (got,) = emulate(compiled, {"x": values}).values()
    np.testing.assert_array_equal(got.reshape(want.shape), want)


@pytest.mark.slow
@pytest.mark.parametrize("size, count", [(3000, 1500), (3000, 2000), (2000, 3000), (4400, 1600), (1000, 4000)])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_axis_of_another_size_is_convolutions(mode, size, count):
    sizes = [1, 2, 1, count]
    x = given(1, 2, 1, size)
    proto = model_of(op.Resize(x, None, None, sizes, mode=mode, coordinate_transformation_mode="half_pixel"), opset=18)
    if mode == "nearest":
        is_exact(proto, (1, 2, 1, size))
        return
    compiled = compiled_for(proto)
    values = np.random.default_rng(1).normal(size=(1, 2, 1, size)).astype(np.float32)
    (want,) = onnxruntime_results(proto, {"x": values})
    (got,) = emulate(compiled, {"x": values}).values()
    assert np.linalg.norm(got.reshape(want.shape) - want) <= 0.002 * np.linalg.norm(want)
    assert all(layer.weight is None or layer.weight.size <= 1 << 16 for layer in compiled.lowered.layers)


PICKED = {
    "of an image": ("GatherND", (1, 3, 200, 300), [(0, k % 3, 7 * k % 200, 11 * k % 300) for k in range(20)]),
    "of a small image": ("GatherND", (1, 3, 20, 30), [(0, k % 3, 7 * k % 20, 11 * k % 30) for k in range(20)]),
    "of one axis": ("Gather", (1, 70_000), [1, 35_000, 7, 69_995, 99, 1000]),
}


@pytest.mark.parametrize("read", ["as they are", "by a product", "by a function"])
@pytest.mark.parametrize("name", PICKED)
def test_the_host_writes_the_elements_of_an_input_that_are_read(name, read):
    kind, shape, indices = PICKED[name]
    x = given(*shape)
    p = op.GatherND(x, np.array(indices)) if kind == "GatherND" else op.Gather(x, np.array(indices), axis=1)
    y = {
        "as they are": lambda: p,
        "by a product": lambda: op.MatMul(p, np.eye(len(indices))),
        "by a function": lambda: op.Neg(p),
    }[read]()
    compiled = compiled_for(model_of(y), ECP5_85F)
    values = np.random.default_rng(1).integers(-63, 64, (3, *shape)).astype(np.float32)
    (got,) = emulate(compiled, {"x": values[:, 0]}).values()
    want = values[(slice(None), *np.transpose(indices))] if kind == "GatherND" else values[:, 0, indices]
    np.testing.assert_array_equal(got.reshape(want.shape), -want if read == "by a function" else want)
    assert compiled.image.inputs[0].vectors(ECP5_85F) < 64


@pytest.mark.parametrize(("last", "positions"), [((7, 9), [*range(12)]), ((4, 5), [0, 4, 8])])
def test_elements_at_equal_distances_stay_so(last, positions):
    """A slice with a step, and another one: positions that nobody reads go, unless the step would be lost."""
    x, (a, b) = tensor(1, 12, 16), last
    graph = network(a=x[:, 0:9:4].relu(), b=x[:, a:b].relu())
    _, order = compile_graph(graph, ECP5_85F).lowered.inputs["x"]
    assert (order[0, :, 0] // 16).tolist() == positions


SCATTERED = {
    "half of a second of sound": ("Gather", (1, 44_100), 22_050, "as they are"),
    "in front of a function": ("Gather", (1, 5000), 4000, "a function after"),
    "after a function": ("Gather", (1, 5000), 4000, "a function in front"),
    "between functions": ("Gather", (1, 5000), 4000, "functions around"),
    "of an image": ("GatherND", (1, 8, 32, 32), 500, "a function in front"),
    "of positions": ("Gather", (1, 2000, 16), 2000, "functions around"),
    "with factors": ("Gather", (1, 300), 400, "factors after"),
    "in front of a product": ("Gather", (1, 400), 500, "a product after"),
    "of positions in front of a product": ("Gather", (1, 300, 16), 280, "a product after"),
    "of an image in front of a product": ("GatherND", (1, 8, 8, 8), 80, "a product after"),
    "in front of a sum": ("Gather", (1, 300), 300, "a sum after"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", SCATTERED)
def test_scattered_elements(name):
    """They are views, or products where a layer finds them at other places than it needs them."""
    kind, shape, count, around = SCATTERED[name]
    rng, x = np.random.default_rng(5), given(*shape)
    inner = op.Neg(x) if around in ("a function in front", "functions around") else x
    if kind == "GatherND":
        p = op.GatherND(inner, np.stack([rng.integers(0, size, count) for size in shape], 1))
        p = op.Reshape(p, [1, count]) if "product" in around else p
    else:
        p = op.Gather(inner, rng.integers(0, shape[1], count), axis=1)
    size = (*shape[2:], count)[0] if kind == "Gather" else count
    weight, factors = rng.integers(-2, 3, (size, 3)).astype(float), rng.integers(-3, 4, size).astype(float)
    if around in ("a function after", "functions around"):
        p = op.Neg(p)
    elif around == "factors after":
        p = op.Mul(p, factors)
    elif around == "a product after":
        p = op.MatMul(p, weight)
    elif around == "a sum after":
        p = op.Add(p, x)
    is_exact(model_of(p), shape, 3 if "product" in around else 600)


def refusal_of(y, opset=18):
    with pytest.raises((UnsupportedModel, Unsupported)) as caught:
        compiled_for(model_of(y, opset=opset))
    return str(caught.value)


def places(count, size):
    return np.random.default_rng(3).integers(0, size, count)


def summed_at_places():
    x = given(1, 9000)
    return op.ScatterElements(x, places(9000, 9000)[None], x, name="it", axis=1, reduction="add")


TOO_LARGE = {
    "resized by a ratio without a period": (
        op.Resize(given(1, 1, 44_101), None, None, [1, 1, 16_000], name="it", mode="linear"),
        "Resize 'it': matrix of a resized axis must have at most",
    ),
    "a spectrum": (
        op.DFT(given(1, 20_000, 1), name="it", axis=1),
        "DFT 'it': matrix of a linear function must have at most",
    ),
    "sums at places": (summed_at_places(), "ScatterElements 'it': matrix of sums at places must"),
    "pooling of volumes": (
        op.LpPool(given(1, 5356, 2, 1, 1), name="it", kernel_shape=[1, 1, 1], p=2),
        "Conv 'it.3': matrix of weights in groups must have at most 16,777,216 numbers",
    ),
    "neighbouring channels": (
        op.LRN(given(1, 44_100, 1, 1), name="it", size=3),
        "LRN 'it': matrix of neighbouring channels",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_matrix_that_is_too_large_is_told_with_operator_and_size(name):
    y, text = TOO_LARGE[name]
    assert text in refusal_of(y)


def test_constants_are_not_made_before_their_size_is_known():
    one = np.ones(1, np.float32)
    for huge in (
        op.Tile(np.ones((1, 1000)), [1000, 1000], name="it"),
        op.Range(0, 1 << 40, 1, name="it"),
        op.Pad(np.ones(3), [1 << 30, 1 << 30], name="it"),
        op.Expand(one, [1 << 20, 1 << 20], name="it"),
    ):
        y = op.Mul(given(1, 4), op.ReduceMax(huge, keepdims=0))
        with pytest.raises(UnsupportedModel, match="'it': makes a constant of the shape"):
            import_model(model_of(y))


def test_a_message_has_some_of_many_reasons():
    many = {f"y{k}": op.Det(given(1, 9, 9, name=f"x{k}"), name=f"it{k}") for k in range(40)}
    with pytest.raises(UnsupportedModel) as caught:
        import_model(model_of(**many))
    lines = str(caught.value).splitlines()
    assert (
        len(lines) == 22 and "'it19'" in lines[-2] and lines[-1] == "  and 20 more" and len(caught.value.reasons) == 40
    )


@pytest.mark.slow
def test_products_of_many_inputs_are_not_kept():
    """Weights of a product with 9,000 inputs are rounded to the nearest, as 81 million products would be kept."""
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(4, 9000)) / 100
    graph, small = (import_model(model_of(op.Gemm(given(1, size), weight[:, :size], transB=1))) for size in (9000, 90))
    assert rounded_units(graph, compile_graph(graph, CONFIG)) == {}
    assert len(rounded_units(small, compile_graph(small, CONFIG))) == 1


def test_matrices_ask_first():
    assert matrices.zeros("a test", 3, 4).shape == (3, 4) and np.array_equal(matrices.eye("a test", 2), np.eye(2))
    assert matrices.zeros("a test", 2048, 2048).size == matrices.LARGEST
    for make in (lambda: matrices.zeros("a test", 2048, 2049), lambda: matrices.eye("a test", 1 << 40)):
        with pytest.raises(matrices.MatrixTooLarge, match="matrix of a test must have at most 4,194,304 numbers, not"):
            make()
