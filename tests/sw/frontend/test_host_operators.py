"""Operators of the host, one by one: in double precision and as operations of the host, against ONNX Runtime."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from concord.frontend import import_model
from concord.frontend.errors import UnsupportedModel
from concord.graph import execute
from concord.graph.element_types import of_type
from concord.graph.host_evaluation import run_on_host
from concord.graph.host_rules import has_operations
from support.onnx_models import sample_results

TYPES = {
    "float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32, "int8": TensorProto.INT8,
    "uint8": TensorProto.UINT8, "bool": TensorProto.BOOL,
}  # fmt: skip
SAMPLES = 7


def model(op, inputs, outputs, constants=None, **attrs):
    """One node; types of inputs and outputs by name, shapes of a sample ``(3, 5)`` and any."""
    names = [*inputs, *(constants or {})]
    order = attrs.pop("order", names)
    node = helper.make_node(op, order, list(outputs), **attrs)
    shapes = {name: kind[1] if isinstance(kind, tuple) else (3, 5) for name, kind in inputs.items()}
    kinds = {name: kind[0] if isinstance(kind, tuple) else kind for name, kind in inputs.items()}
    graph = helper.make_graph(
        [node],
        op,
        [helper.make_tensor_value_info(name, TYPES[kinds[name]], [1, *shapes[name]]) for name in inputs],
        [helper.make_tensor_value_info(name, TYPES[kind], None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    for output in proto.graph.output:
        output.type.tensor_type.shape.SetInParent()
    onnx.checker.check_model(proto)
    return proto


def values(name, kind, shape, rng):
    """Numbers of a type with its ends, zero and equal ones among them."""
    size = (SAMPLES, *shape)
    if kind == "bool":
        return rng.integers(0, 2, size).astype(bool)
    if kind == "float32":
        x = rng.normal(0, 3, size)
        picked = rng.random(size)
        x[picked < 0.3] = rng.integers(-3, 4, size)[picked < 0.3] + 0.5 * rng.integers(0, 2, size)[picked < 0.3]
        return x.astype(np.float32)
    info = np.iinfo(kind)
    low, high = max(info.min, -(1 << 20)), min(info.max, 1 << 20)
    x = rng.integers(low, high, size, endpoint=True)
    picked = rng.random(size)
    x[picked < 0.5] = rng.integers(max(low, -3), 4, size)[picked < 0.5]
    x[picked > 0.95] = low
    return x.astype(kind)


def whole(kind, *values):
    return np.array(values, dtype=kind)


COMPARISONS = ("Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual")
ARITHMETIC = [
    (op, model(op, {"a": kind, "b": kind}, {"y": kind}))
    for op in ("Add", "Sub", "Mul", "Max", "Min")
    for kind in ("int64", "int32", "int8", "uint8")
    if not (op in ("Add", "Sub", "Mul") and kind in ("int8", "uint8"))  # ONNX Runtime has no such kernels
]
CASES = [
    *ARITHMETIC,
    *((op, model(op, {"a": kind, "b": kind}, {"y": "bool"}))
      for op in COMPARISONS for kind in ("float32", "int64", "int32")),
    *((op, model(op, {"a": "int64"}, {"y": "bool"}, {"c": whole("int64", 1)}))
      for op in COMPARISONS),
    *((op, model(op, {"a": "int64"}, {"y": "bool"}, {"c": whole("int64", 1)}, order=["c", "a"]))
      for op in COMPARISONS),
    *((op, model(op, {"a": "bool", "b": "bool"}, {"y": "bool"})) for op in ("And", "Or", "Xor")),
    ("Not", model("Not", {"a": "bool"}, {"y": "bool"})),
    ("Div by constant", model("Div", {"a": "int64"}, {"y": "int64"}, {"c": whole("int64", -3)})),
    ("Div int32", model("Div", {"a": "int32"}, {"y": "int32"}, {"c": whole("int32", 7)})),
    ("Mod", model("Mod", {"a": "int64"}, {"y": "int64"}, {"c": whole("int64", -3)})),
    ("Mod int32", model("Mod", {"a": "int32"}, {"y": "int32"}, {"c": whole("int32", 5)})),
    ("fmod", model("Mod", {"a": "int64"}, {"y": "int64"}, {"c": whole("int64", -3)}, fmod=1)),
    ("Neg", model("Neg", {"a": "int64"}, {"y": "int64"})),
    ("Neg int32", model("Neg", {"a": "int32"}, {"y": "int32"})),
    ("Abs", model("Abs", {"a": "int32"}, {"y": "int32"})),
    ("Clip", model("Clip", {"a": "int64"}, {"y": "int64"}, {"low": np.int64(-2), "high": np.int64(2)})),
    ("Sign", model("Sign", {"a": "int64"}, {"y": "int64"})),
    *((f"Cast {a} to {b}", model("Cast", {"a": a}, {"y": b}, to=TYPES[b]))
      for a in TYPES for b in TYPES if a != b and (a, b) not in (("float32", "int8"), ("float32", "uint8"))),
    ("Where", model("Where", {"c": "bool", "a": "float32", "b": "float32"}, {"y": "float32"})),
    ("Where int64", model("Where", {"c": "bool", "a": "int64"}, {"y": "int64"}, {"k": whole("int64", 9)})),
    ("Where of constants", model("Where", {"c": ("bool", (3, 1))}, {"y": "float32"},
                                 {"k": np.arange(5, dtype="f"), "l": np.float32(-1.5)})),
    *((f"{op} {kind} {axis} {keep} {last}",
       model(op, {"a": kind}, {"y": "int64"}, axis=axis, keepdims=keep, select_last_index=last))
      for op in ("ArgMax", "ArgMin") for kind in ("float32", "int32") for axis in (1, 2, -1)
      for keep in (0, 1) for last in (0, 1)),
    *((f"TopK {kind} {axis} {largest}",
       model("TopK", {"a": kind}, {"v": kind, "i": "int64"}, {"k": whole("int64", 2)}, axis=axis, largest=largest))
      for kind in ("float32", "int64") for axis in (1, 2) for largest in (0, 1)),
    ("ReduceSum", model("ReduceSum", {"a": "int64"}, {"y": "int64"}, {"axes": whole("int64", 1)}, keepdims=0)),
    ("ReduceMax", model("ReduceMax", {"a": "int64"}, {"y": "int64"}, {"axes": whole("int64", 2)})),
    ("ReduceMin", model("ReduceMin", {"a": "int32"}, {"y": "int32"}, {"axes": whole("int64", 2)})),
    ("OneHot", model("OneHot", {"a": "int64"}, {"y": "float32"},
                     {"d": whole("int64", 4), "v": np.array([-1, 2], "f")}, axis=-1)),
    *((f"IsInf {low} {high}",
       model("IsInf", {"a": "float32"}, {"y": "bool"}, detect_negative=low, detect_positive=high))
      for low in (0, 1) for high in (0, 1)),
    ("IsNaN", model("IsNaN", {"a": "float32"}, {"y": "bool"})),
]  # fmt: skip


@pytest.mark.parametrize(("name", "proto"), CASES, ids=[name for name, _ in CASES])
def test_one_operator(name, proto):
    """All values are exact: bits are equal, whether the graph runs in double precision or as the host computes it."""
    rng = np.random.default_rng(len(name))
    kinds = {value.name: numpy_type(value) for value in proto.graph.input}
    x = {k: values(k, kind, shape, rng) for k, (kind, shape) in kinds.items()}
    if name.startswith("OneHot"):
        x = {k: np.clip(v, -6, 6) for k, v in x.items()}
    want = sample_results(proto, **x)
    graph = import_model(proto)
    numbers = {k: v.astype(np.float64) for k, v in x.items()}
    results = [execute.run(graph, numbers)]
    if all(map(has_operations, graph.nodes)):
        results.append(run_on_host(graph, numbers))
    assert len(results) == 2 or name.startswith("Cast")
    for outputs in results:
        for output, expected in zip(proto.graph.output, want, strict=True):
            kind = graph.element_types.get(output.name)
            assert (kind or "float32") == expected.dtype.name
            np.testing.assert_array_equal(of_type(outputs[output.name], kind), expected)


def numpy_type(value):
    tensor = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)[1:]
    return np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type)).name, shape


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kind", ["int64", "int32"])
def test_tables(axis, kind):
    """Entries at computed indices, negative ones from the end; one beyond the table is an error that names it."""
    table = np.random.default_rng(axis).normal(size=(6, 7)).astype("f")
    proto = model("Gather", {"i": (kind, (4,))}, {"y": "float32"}, {"table": table}, order=["table", "i"], axis=axis)
    graph = import_model(proto)
    rng = np.random.default_rng(3)
    x = rng.integers(-6, 6, (SAMPLES, 4)).astype(kind)
    (want,) = sample_results(proto, i=x)
    want = want.reshape(SAMPLES, *graph.sample_shape("y"))
    for outputs in (execute.run(graph, {"i": x}), run_on_host(graph, {"i": x})):
        np.testing.assert_array_equal(outputs["y"], want)
    x[1, 2] = 99
    with pytest.raises(ValueError, match=rf"indices must be whole numbers from -{6 + axis} to {5 + axis}, not 99"):
        run_on_host(graph, {"i": x})


@pytest.mark.parametrize("axis", [1, 2])
def test_computed_elements_at_computed_indices(axis):
    proto = model("Gather", {"x": "float32", "i": ("int64", (2,))}, {"y": "float32"}, axis=axis)
    graph = import_model(proto)
    rng = np.random.default_rng(axis)
    x, i = rng.normal(size=(SAMPLES, 3, 5)).astype("f"), rng.integers(-3, 3, (SAMPLES, 2))
    (want,) = sample_results(proto, x=x, i=i)
    want = want.reshape(SAMPLES, *graph.sample_shape("y"))
    for outputs in (execute.run(graph, {"x": x, "i": i}), run_on_host(graph, {"x": x, "i": i})):
        np.testing.assert_array_equal(outputs["y"], want)


@pytest.mark.slow
def test_small_types_wrap_around():
    """ONNX Runtime has no such kernels; NumPy's integers do the same."""
    for kind in ("int8", "uint8"):
        for op, function in (("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply)):
            graph = import_model(model(op, {"a": kind, "b": kind}, {"y": kind}))
            every = np.arange(256).astype(np.uint8).view(kind)
            a, b = (x.reshape(-1, 1) for x in np.meshgrid(every, every))
            a, b = (np.repeat(x[:, :, None], 15, axis=2).reshape(-1, 3, 5) for x in (a, b))
            for outputs in (execute.run(graph, {"a": a, "b": b}), run_on_host(graph, {"a": a, "b": b})):
                np.testing.assert_array_equal(of_type(outputs["y"], kind), function(a, b))


def test_whole_numbers_are_no_operand_of_what_computes_with_floats():
    with pytest.raises(UnsupportedModel, match="reads whole numbers and computes with floats alone; put a Cast"):
        import_model(model("Sigmoid", {"a": "int64"}, {"y": "int64"}))


def test_nan_has_no_place():
    """It is neither the greatest nor the least, whatever a library says."""
    for op in ("ArgMax", "ArgMin"):
        graph = import_model(model(op, {"a": ("float32", (4,))}, {"y": "int64"}, axis=1, keepdims=0))
        x = np.array([[np.nan, 1, 3, 2], [2, np.nan, 3, 1], [np.nan] * 4])
        want = [2, 2, 0] if op == "ArgMax" else [1, 3, 0]
        for outputs in (execute.run(graph, {"a": x}), run_on_host(graph, {"a": x})):
            assert outputs["y"].tolist() == want
