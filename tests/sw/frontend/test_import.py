"""What import does with a whole model: shapes, constants, names, and everything it refuses."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from concord.frontend import UnsupportedModel, import_model
from concord.graph.execute import run
from support.onnx_expressions import given, model_of, op
from support.onnx_models import agrees, disagreement, info, model, node, ops, samples

RNG = np.random.default_rng(3)


def floats(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def reasons(proto, **options):
    with pytest.raises(UnsupportedModel) as caught:
        import_model(proto, **options)
    assert str(caught.value).startswith("net cannot be compiled:\n")
    assert all(reason in str(caught.value) for reason in caught.value.reasons)
    return caught.value.reasons


def test_everything_is_listed_at_once():
    x = given(1, 1, 3, 3)
    relu = op.Relu(op.Fancy(x, name="first", domain="com.example"))
    y = op.Add(op.Conv(x, x, name="third"), op.RandomNormalLike(relu, name="second"))
    listed = reasons(model_of(y, domains=["com.example"]))
    assert [reason.split(":")[0] for reason in listed] == [
        "Conv 'third'",
        "com.example.Fancy 'first'",
        "RandomNormalLike 'second'",
    ]
    assert "operator is not supported; replace it" in listed[1]
    assert "weight must be constant, not computed ('x'); export with constants folded" in listed[0]


def test_nodes_behind_an_unsupported_one_are_checked_with_inferred_shapes():
    a = op.RandomNormalLike(given("n", 4))
    c = op.Gather(op.Reshape(a, op.Shape(a)), [0, 1, 4], axis=1)
    listed = reasons(model_of(op.RandomNormalLike(c)))
    assert [reason.split()[0] for reason in listed] == ["RandomNormalLike", "Gather", "RandomNormalLike"]


def test_constants_of_unknown_shapes_are_no_reasons():
    a = op.Fancy(given("n", 4), domain="com.example")
    y = op.Add(a, op.ConstantOfShape(op.Shape(a)))
    assert len(reasons(model_of(y, domains=["com.example"]))) == 1


def test_what_no_output_needs_is_no_reason():
    proto = model([node("NonZero", ["x"], ["a"]), node("Relu", ["x"], ["y"])], {"x": (1, 3, 3)})
    assert ops(agrees(proto)) == ["Relu"]


def test_integer_operators_have_a_remedy():
    constants = {"w": np.zeros((1, 1, 1, 1), np.int8)}
    listed = reasons(model([node("ConvInteger", ["x", "w"], ["y"])], {"x": [1, 1, 2, 2]}, constants=constants))
    assert listed == ["ConvInteger 'y': must read DynamicQuantizeLinear; export in QDQ form or in floats"]
    dynamic = node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"])
    listed = reasons(model([dynamic, node("Relu", ["q"], ["y"])], {"x": [1, 3]}))
    assert listed[0].startswith("Relu 'y': reads the integers of DynamicQuantizeLinear; let MatMulInteger, ConvInteger")
    for name in "qsz":
        listed = reasons(model([dynamic], {"x": [1, 3]}, [name]))
        what = "integers, scale and zero point of DynamicQuantizeLinear are not computed"
        assert listed == [f"output '{name}': {what}; use QuantizeLinear"]


def test_weights_must_be_finite():
    for bad in (np.nan, np.inf, -np.inf):
        weight = floats(4, 3)
        weight[1, 2] = bad
        nodes = [node("MatMul", ["x", "weight"], ["a"]), node("Add", ["a", "fine"], ["y"])]
        listed = reasons(model(nodes, {"x": ["n", 4]}, constants={"weight": weight, "fine": floats(3)}))
        place = "MatMul 'a': weight 'weight'" if bad == -np.inf else "constant 'weight':"  # a mask may have it
        assert listed == [f"{place} must be finite, it has NaN or infinities; correct the model"]
    listed = reasons(model([node("Mul", ["x", "c"], ["y"])], {"x": [1, 4]}, constants={"c": np.float32(np.inf)}))
    assert listed == ["Mul 'y': operand 'c' must be finite, it has NaN or infinities; correct the model"]
    nan = np.float32(np.nan)
    assert "constant 'c'" in reasons(model([node("Add", ["x", "c"], ["y"])], {"x": [1, 4]}, constants={"c": nan}))[0]


def test_symbolic_batch():
    """Every dimension called like the batch is 1; other axes must be fixed."""
    nodes = [node("RNN", ["x", "W", "R", "", "", "h"], ["y", "y_h"], hidden_size=2)]
    constants = {"W": floats(1, 2, 3), "R": floats(1, 2, 2)}
    layer = model([node("Transpose", ["i"], ["x"], perm=[1, 0, 2]), *nodes], {"i": ["N", 4, 3], "h": [1, "N", 2]},
                  ["y_h"], constants)  # fmt: skip
    graph = agrees(layer)
    assert graph.shapes["i"] == (1, 4, 3) and graph.shapes["h"] == (1, 1, 2)
    assert graph.batched == {"i", "h", "y_h"}
    assert graph.sample_shape("i") == (4, 3)


def test_a_first_axis_longer_than_one_is_no_batch():
    graph = agrees(model([node("Relu", ["x"], ["y"])], {"x": [2, 3]}))
    assert graph.batched == set() and run(graph, samples(graph))["y"].shape == (3, 2, 3)


def test_open_dimensions_are_named():
    relu = [node("Relu", ["x"], ["a"]), node("NonZero", ["z"], ["b"]), node("Add", ["a", "b"], ["y"])]
    proto = model(relu, {"x": ["n", 3, "height", "width"], "z": [None, None]})
    listed = reasons(proto)
    first, second = "--shape x=1,3,SIZE,SIZE does so", "--shape z=1,SIZE does so"
    assert listed[0] == f"input 'x': dimension 2 'height', dimension 3 'width' must be fixed; {first}"
    assert listed[1] == f"input 'z': dimension 1 must be fixed; {second}"
    assert listed[2].startswith("NonZero 'b': operator is not supported")
    (empty,) = reasons(model([node("Relu", ["x"], ["y"])], {"x": ["n", 0, "width"]}))
    assert empty == "input 'x': dimension 1 must be at least 1, not 0; there is nothing to compute"
    older = model([node("Relu", ["x"], ["y"])], {"x": [-1, 3, -1]})
    assert reasons(older)[0].startswith("input 'x': dimension 2 must be fixed; --shape x=1,3,SIZE does so")
    assert import_model(older, shapes={"x": [1, 3, 5]}).shapes["y"] == (1, 3, 5)
    fixed = model([node("Relu", ["x"], ["y"])], {"x": ["n", 3, "height", "width"]})
    assert import_model(fixed, shapes={"x": [1, 3, 5, 7]}).shapes == {"x": (1, 3, 5, 7), "y": (1, 3, 5, 7)}
    for shape in ([1, 4, 5, 7], [1, 3, 5], [1, 3, 0, 7]):
        with pytest.raises(ValueError, match=r"shape of 'x' must go with \['any', 3, 'any', 'any'\], not"):
            import_model(fixed, shapes={"x": shape})
    with pytest.raises(ValueError, match=r"shapes must be of inputs \['x'\], not \['q'\]"):
        import_model(fixed, shapes={"q": [1]})


def test_inputs_must_be_numbers():
    proto = model([node("Cast", ["x"], ["y"], to=1)], {"x": [1, 3]})
    proto.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    assert reasons(proto) == ["input 'x': must be a tensor of numbers, not STRING; convert it outside the model"]


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16])
def test_other_floats(kind):
    """Weights are read with the values they have."""
    values = np.array([[0.5, -1.25], [3.0, 0.0625]])
    tensor = helper.make_tensor("w", kind, [2, 2], values.reshape(-1))
    proto = model([node("Gemm", ["x", "w"], ["y"])], {"x": [1, 2]})
    proto.graph.initializer.append(tensor)
    for value in (proto.graph.input[0], proto.graph.output[0]):
        value.type.tensor_type.elem_type = kind
    (layer,) = import_model(proto).nodes
    assert layer.attrs["weight"].dtype == np.float64
    assert np.array_equal(layer.attrs["weight"], values.T)


def test_constants_are_folded():
    """Through chains, Shape of a computed tensor included."""
    r = op.Relu(given("N", 3, 4))
    n = op.Gather(op.Shape(r), op.Constant(value=numpy_helper.from_array(np.int64(0))), axis=0)
    flat = op.Reshape(r, op.Concat(op.Unsqueeze(n, [0]), [-1], axis=0))
    product = op.MatMul(flat, op.Mul(op.Transpose(floats(5, 12)), 0.5))
    ones = helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0])
    graph = agrees(op.Add(product, op.ConstantOfShape([5], value=ones)))
    assert ops(graph) == ["Relu", "Reshape", "Dense"]
    assert np.array_equal(graph.nodes[-1].attrs["bias"], np.ones(5))


def test_giant_constants_are_refused():
    proto = model_of(op.Add(given(1, 3), op.ConstantOfShape([1 << 20, 1 << 20])))
    assert reasons(proto)[0].endswith("makes a constant of the shape [1048576, 1048576]; correct the model")


def test_random_numbers_are_no_constants():
    proto = model([node("RandomNormalLike", ["c"], ["r"]), node("Add", ["x", "r"], ["y"])], {"x": [1, 3]},
                  constants={"c": floats(3)})  # fmt: skip
    assert reasons(proto)[0].startswith("RandomNormalLike 'r': operator is not supported")


def test_normalisation_becomes_part_of_the_layer():
    s, b, m, v = floats(4), floats(4), floats(4), np.abs(floats(4)) + 0.1
    conv = op.Conv(given("N", 3, 6, 6), floats(4, 3, 3, 3))
    relu = op.Relu(op.BatchNormalization(conv, s, b, m, v, epsilon=0.01))
    assert ops(agrees(op.BatchNormalization(relu, s, b, m, v))) == ["Conv", "Relu", "Mul", "Add"]


def test_names_survive():
    nodes = [
        node("Relu", ["x"], ["a"], name="same"),
        node("Relu", ["a"], ["b"], name="same"),
        node("Div", ["b", "a"], ["c"], name="quotient"),
        node("Identity", ["c"], ["y"]),
        node("Identity", ["x"], ["z"]),
    ]
    proto = model(nodes, {"x": ["N", 3]}, ["y", "z", "c"])
    graph = import_model(proto)
    assert graph.outputs == ["y", "z", "c"] and graph.inputs == ["x"]
    assert [n.name for n in graph.nodes[:3]] == ["same", "same.1", "quotient"]
    for item in proto.graph.node:
        item.name = ""  # onnxruntime wants different ones
    assert disagreement(graph, proto, {"x": 1 + RNG.random((3, 3))}) < 1e-6


def test_an_output_may_be_an_input():
    graph = import_model(model([node("Relu", ["x"], ["y"])], {"x": ["N", 3]}, ["x", "y"]))
    x = RNG.standard_normal((4, 3))
    assert np.array_equal(run(graph, {"x": x})["x"], x)


def test_constant_outputs():
    """They are there for every sample; numbers that are not finite are refused."""
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["c"], ["z"])]
    agrees(model(nodes, {"x": [1, 2]}, ["y", "z"], {"c": floats(2)}))
    proto = model(nodes, {"x": [1, 2]}, ["y", "z"], {"c": np.float32(np.inf)})
    assert reasons(proto) == ["output 'z': is constant and no finite numbers; --outputs leaves it out"]


def test_functions_of_the_model_are_inlined():
    function = helper.make_function("mine", "Twice", ["a"], ["b"], [node("Add", ["a", "a"], ["b"])],
                                    [helper.make_opsetid("", 17)])  # fmt: skip
    proto = model([node("Twice", ["x"], ["y"], domain="mine")], {"x": [1, 3]}, domains=["mine"])
    proto.functions.append(function)
    graph = import_model(proto)
    assert ops(graph) == ["Add"] and graph.nodes[0].inputs == ("x", "x")


def test_the_model_stays_as_it_is():
    proto = model([node("RandomNormalLike", ["x"], ["y"])], {"x": ["n", 3]})
    before = proto.SerializeToString()
    reasons(proto)
    assert proto.SerializeToString() == before


def test_malformed_files(tmp_path):
    proto = model([node("Relu", ["x"], ["y"])], {"x": ["n", 3]}, constants={"c": floats(50)})
    whole = proto.SerializeToString()
    path = tmp_path / "net.onnx"
    for content in (b"", b"not ONNX at all", whole[: len(whole) // 2], whole[:-3]):
        path.write_bytes(content)
        with pytest.raises(
            ValueError, match=r"net\.onnx must be valid ONNX|net\.onnx must be an ONNX model, not (an empty|a text)"
        ):
            import_model(path)
    path.write_bytes(whole)
    assert ops(import_model(path)) == ops(import_model(str(path))) == ["Relu"]
    with pytest.raises(FileNotFoundError):
        import_model(tmp_path / "absent.onnx")


def test_initialisers_of_no_type():
    proto = model([node("Add", ["x", "c"], ["y"])], {"x": [1, 3]}, constants={"c": floats(3)})
    proto.graph.initializer[0].data_type = 99
    with pytest.raises(ValueError, match="must be valid ONNX"):
        import_model(proto)


def test_missing_weights_of_a_file(tmp_path):
    proto = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 300]}, constants={"w": floats(300, 300)})
    path = tmp_path / "net.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="weights.bin")
    assert ops(import_model(path)) == ["Dense"]
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ValueError, match=r"net\.onnx must be valid ONNX"):
        import_model(path)


def test_inconsistent_models():
    cases = [
        ([node("Relu", ["nowhere"], ["y"])], "must be valid ONNX"),
        ([node("Relu", ["a"], ["y"]), node("Relu", ["x"], ["a"])], "must be valid ONNX"),
        ([node("NoSuchOperator", ["x"], ["y"])], "must be valid ONNX"),
    ]
    for nodes, message in cases:
        with pytest.raises(ValueError, match=message):
            import_model(model(nodes, {"x": ["n", 3]}))
    bad = model([node("MatMul", ["x", "w"], ["y"])], {"x": ["n", 3]}, constants={"w": floats(4, 2)})
    assert reasons(bad) == ["MatMul 'y': last axis must have 4 elements, not the shape [1, 3]; correct the model"]
    shapeless = model([node("Relu", ["x"], ["y"])], {"x": None})
    with pytest.raises(ValueError, match="input 'x' must have a shape"):
        import_model(shapeless)


def test_old_opsets_are_refused():
    with pytest.raises(ValueError, match=r"opset must be 7 or later, not 6; convert it with onnx\.version_converter"):
        import_model(model([node("Relu", ["x"], ["y"])], {"x": [1, 3]}, opset=6))


def test_control_flow_that_depends_on_values_is_refused():
    branch = helper.make_graph([node("Relu", ["x"], ["b"])], "branch", [], [info("b", [1, 3])])
    choice = node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    proto = model([node("ReduceMax", ["x"], ["m"]), node("IsNaN", ["m"], ["c"]), choice], {"x": [1, 3]})
    assert [reason.split()[0] for reason in reasons(proto)] == ["If"]
    proto = model([choice], {"x": [1, 3], "c": []})
    assert "If 'y': condition must be constant, not computed ('c')" in reasons(proto)[0]


def test_a_diagonal_in_the_shape_of_a_tensor_is_constant():
    for k in (0, 1, -2):
        agrees(model([node("EyeLike", ["x"], ["e"], k=k), node("Add", ["x", "e"], ["y"])], {"x": [3, 4]}))
