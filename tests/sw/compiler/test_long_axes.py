"""Long axes: layouts use the structure of what is moved, and matrices ask for their size first."""

import numpy as np
import pytest

from concord.compiler.calibration.weights import units as rounded_units
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.graph.ir import Node
from concord.networks.calibrated import emulate
from concord.spec.presets import ECP5_85F, with_mantissas
from concord.utils import matrices
from support.compiled_nets import graph_of
from support.onnx_models import model, node, onnxruntime_results

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
    constants = {"p": amounts.reshape(-1)} | ({"v": np.float32(2)} if mode.endswith("2") else {})
    item = node("Pad", ["x", *constants], ["y"], mode=mode.split()[0])
    compiled = is_exact(model([item], {"x": shape}, constants=constants, opset=19), shape)
    assert len(compiled.lowered.layers) < 64


@pytest.mark.slow
@pytest.mark.parametrize("reverse", [0, 1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("size", [513, 5003])
def test_running_sums_are_sums_of_parts(size, exclusive, reverse):
    item = node("CumSum", ["x", "a"], ["y"], exclusive=exclusive, reverse=reverse)
    proto = model([item], {"x": (1, size)}, constants={"a": np.int64(1)})
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
    item = node("Resize", ["x", "", "", "s"], ["y"], mode=mode, coordinate_transformation_mode="half_pixel")
    proto = model([item], {"x": (1, 2, 1, size)}, constants={"s": np.array([1, 2, 1, count])}, opset=18)
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
    op, shape, indices = PICKED[name]
    attrs = {"axis": 1} if op == "Gather" else {}
    constants = {"i": np.array(indices), "w": np.eye(len(indices), dtype=np.float32)}
    follows = {
        "as they are": [],
        "by a product": [node("MatMul", ["p", "w"], ["y"])],
        "by a function": [node("Neg", ["p"], ["y"])],
    }
    nodes = [node(op, ["x", "i"], ["p"], **attrs), *follows[read]]
    used = {key: value for key, value in constants.items() if key == "i" or read == "by a product"}
    compiled = compiled_for(model(nodes, {"x": shape}, ["y" if follows[read] else "p"], constants=used), ECP5_85F)
    values = np.random.default_rng(1).integers(-63, 64, (3, *shape)).astype(np.float32)
    (got,) = emulate(compiled, {"x": values[:, 0]}).values()
    want = values[(slice(None), *np.transpose(indices))] if op == "GatherND" else values[:, 0, indices]
    np.testing.assert_array_equal(got.reshape(want.shape), -want if read == "by a function" else want)
    assert compiled.image.inputs[0].vectors(ECP5_85F) < 64


@pytest.mark.parametrize(("last", "positions"), [((7, 9), [*range(12)]), ((4, 5), [0, 4, 8])])
def test_elements_at_equal_distances_stay_so(last, positions):
    """A slice with a step, and another one: positions that nobody reads go, unless the step would be lost."""
    slices = {"a": (0, 9, 4), "b": (*last, 1)}
    nodes = [
        Node("Slice", name, ("x",), (name,), {"axes": (1,), "starts": (a,), "stops": (b,), "steps": (c,)})
        for name, (a, b, c) in slices.items()
    ]
    nodes += [Node("Relu", f"{name}/relu", (name,), (f"{name}/y",), {}) for name in slices]
    graph = graph_of(nodes, x=(1, 12, 16))
    graph.outputs = ["a/y", "b/y"]
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
    op, shape, count, around = SCATTERED[name]
    rng = np.random.default_rng(5)
    if op == "GatherND":
        indices = np.stack([rng.integers(0, size, count) for size in shape], 1)
    else:
        indices = rng.integers(0, shape[1], count)
    attrs = {"axis": 1} if op == "Gather" else {}
    inner = {"as they are": "x", "a function in front": "f", "functions around": "f"}.get(around, "x")
    nodes = [*([node("Neg", ["x"], ["f"])] if inner == "f" else []), node(op, [inner, "i"], ["p"], **attrs)]
    size = (*shape[2:], count)[0] if op == "Gather" else count
    constants = {"i": indices, "w": rng.integers(-2, 3, (size, 3)), "c": rng.integers(-3, 4, size)}
    after = {
        "a function after": node("Neg", ["p"], ["y"]), "functions around": node("Neg", ["p"], ["y"]),
        "factors after": node("Mul", ["p", "c"], ["y"]), "a product after": node("MatMul", ["p", "w"], ["y"]),
        "a sum after": node("Add", ["p", "x"], ["y"]),
    }.get(around)  # fmt: skip
    nodes += [after] if after is not None else []
    used = {x for item in nodes for x in item.input}
    constants = {k: v if k == "i" else v.astype(np.float32) for k, v in constants.items() if k in used}
    if op == "GatherND" and after is not None:
        constants["s"] = np.array([1, count])
        nodes[-1:] = [node("Reshape", ["p", "s"], ["q"]), node("MatMul", ["q", "w"], ["y"])]
    largest = 3 if "product" in around else 600
    is_exact(model(nodes, {"x": shape}, [nodes[-1].output[0]], constants=constants), shape, largest)


def refusal_of(item, shape, constants, opset=18):
    proto = model([item], {"x": shape}, constants=constants, opset=opset)
    with pytest.raises((UnsupportedModel, Unsupported)) as caught:
        compiled_for(proto)
    return str(caught.value)


def places(count, size):
    return np.random.default_rng(3).integers(0, size, count)


TOO_LARGE = {
    "resized by a ratio without a period": (
        node("Resize", ["x", "", "", "s"], ["y"], name="it", mode="linear"), (1, 1, 44_101),
        {"s": np.array([1, 1, 16_000])}, "Resize 'it': matrix of a resized axis must have at most",
    ),
    "a spectrum": (
        node("DFT", ["x"], ["y"], name="it", axis=1), (1, 20_000, 1), {},
        "DFT 'it': matrix of a linear function must have at most",
    ),
    "sums at places": (
        node("ScatterElements", ["x", "i", "x"], ["y"], name="it", axis=1, reduction="add"), (1, 9000),
        {"i": places(9000, 9000)[None]}, "ScatterElements 'it': matrix of sums at places must",
    ),
    "pooling of volumes": (
        node("LpPool", ["x"], ["y"], name="it", kernel_shape=[1, 1, 1], p=2), (1, 5356, 2, 1, 1), {},
        "Conv 'it.3': matrix of weights in groups must have at most 16,777,216 numbers",
    ),
    "neighbouring channels": (
        node("LRN", ["x"], ["y"], name="it", size=3), (1, 44_100, 1, 1), {},
        "LRN 'it': matrix of neighbouring channels",
    ),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_matrix_that_is_too_large_is_told_with_operator_and_size(name):
    item, shape, constants, text = TOO_LARGE[name]
    assert text in refusal_of(item, shape, constants)


def test_constants_are_not_made_before_their_size_is_known():
    for item, constants in (
        (
            node("Tile", ["c", "n"], ["t"], name="it"),
            {"c": np.ones((1, 1000), np.float32), "n": np.array([1000, 1000])},
        ),
        (
            node("Range", ["a", "b", "c"], ["t"], name="it"),
            {"a": np.int64(0), "b": np.int64(1 << 40), "c": np.int64(1)},
        ),
        (node("Pad", ["c", "n"], ["t"], name="it"), {"c": np.ones(3, np.float32), "n": np.array([1 << 30, 1 << 30])}),
        (
            node("Expand", ["c", "n"], ["t"], name="it"),
            {"c": np.ones(1, np.float32), "n": np.array([1 << 20, 1 << 20])},
        ),
    ):
        nodes = [item, node("ReduceMax", ["t"], ["m"], keepdims=0), node("Mul", ["x", "m"], ["y"])]
        with pytest.raises(UnsupportedModel, match="'it': makes a constant of the shape"):
            import_model(model(nodes, {"x": (1, 4)}, constants=constants))


def test_a_message_has_some_of_many_reasons():
    nodes = [node("Det", [f"x{k}"], [f"y{k}"], name=f"it{k}") for k in range(40)]
    inputs, outputs = {f"x{k}": (1, 9, 9) for k in range(40)}, [f"y{k}" for k in range(40)]
    with pytest.raises(UnsupportedModel) as caught:
        import_model(model(nodes, inputs, outputs))
    lines = str(caught.value).splitlines()
    assert (
        len(lines) == 22 and "'it19'" in lines[-2] and lines[-1] == "  and 20 more" and len(caught.value.reasons) == 40
    )


@pytest.mark.slow
def test_products_of_many_inputs_are_not_kept():
    """Weights of a product with 9,000 inputs are rounded to the nearest, as 81 million products would be kept."""
    rng = np.random.default_rng(1)
    weight = rng.normal(size=(4, 9000)) / 100
    proto = model(
        [node("Gemm", ["x", "w"], ["y"], transB=1)], {"x": (1, 9000)}, constants={"w": weight.astype(np.float32)}
    )
    graph = import_model(proto)
    compiled = compile_graph(graph, CONFIG)
    assert rounded_units(graph, compiled) == {}
    small = import_model(model([node("Gemm", ["x", "w"], ["y"], transB=1)], {"x": (1, 90)},
                               constants={"w": weight[:, :90].astype(np.float32)}))  # fmt: skip
    assert len(rounded_units(small, compile_graph(small, CONFIG))) == 1


def test_matrices_ask_first():
    assert matrices.zeros("a test", 3, 4).shape == (3, 4) and np.array_equal(matrices.eye("a test", 2), np.eye(2))
    assert matrices.zeros("a test", 2048, 2048).size == matrices.LARGEST
    for make in (lambda: matrices.zeros("a test", 2048, 2049), lambda: matrices.eye("a test", 1 << 40)):
        with pytest.raises(matrices.MatrixTooLarge, match="matrix of a test must have at most 4,194,304 numbers, not"):
            make()
