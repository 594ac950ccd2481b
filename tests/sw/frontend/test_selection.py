"""A part of a model, sizes of its inputs, and constants in the place of inputs."""

import re

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

import concord
from concord.cli.main import main
from concord.frontend import import_model
from concord.frontend.selection import Selection
from concord.graph.execute import run
from concord.networks.folder import MODEL
from support.onnx_models import floats, info, ints, model, node, ops


def chain(shape=("n", 3, "height", "width")):
    """Three steps with a tensor between each, and a second input that the last one reads."""
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Conv", ["a", "w"], ["b"], pads=[1, 1, 1, 1]),
        node("Add", ["b", "bias"], ["c"]),
        node("Sigmoid", ["c"], ["y"]),
    ]
    return model(nodes, {"x": shape, "bias": [1]}, constants={"w": floats(2, 3, 3, 3)}).SerializeToString()


def taken(data, **choice):
    return import_model(Selection(**choice).of(data))


def test_without_a_choice_the_file_is_the_same():
    data = chain()
    assert Selection().of(data) is data


def test_shapes_of_inputs_and_open_sizes():
    graph = taken(chain(), shapes={"x": (1, 3, 6, 8)})
    assert graph.shapes["y"] == (1, 2, 6, 8)
    assert taken(chain(), shapes={"height": 6, "width": [8]}).shapes["y"] == (1, 2, 6, 8)
    assert taken(chain(), shapes={"n": 4, "height": 6, "width": 8}).shapes["y"] == (4, 2, 6, 8)
    assert taken(chain(), shapes={"x": (1, 3, 6, 8), "height": 6}).shapes["y"] == (1, 2, 6, 8)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (1, 4, 6, 8)}, "shape of 'x' must go with ['any', 3, 'any', 'any'], not [1, 4, 6, 8]"),
        ({"x": (1, 3, 6)}, "shape of 'x' must go with ['any', 3, 'any', 'any'], not [1, 3, 6]"),
        ({"x": (1, 3, 6, 8), "height": 7}, "size 'height' one number, not 6 of input 'x' and 7 of 'height'"),
        ({"hight": 7}, "name of a shape must be one of x, bias, height, n, width, not 'hight'; did you mean height?"),
        ({"height": 0}, "size 'height' must be at least 1, not 0"),
    ],
)
def test_shapes_that_do_not_fit(shapes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Selection(shapes=shapes).of(chain())


def test_the_same_size_of_two_inputs():
    data = model([node("Add", ["x", "z"], ["y"])], {"x": ["n", "k"], "z": ["n", "k"]}).SerializeToString()
    assert taken(data, shapes={"x": (1, 5)}).shapes["z"] == (1, 5)
    with pytest.raises(ValueError, match="size 'k' one number, not 5 of input 'x' and 6 of input 'z'"):
        Selection(shapes={"x": (1, 5), "z": (1, 6)}).of(data)


def test_a_part_computes_what_it_computed_in_the_whole():
    data, sizes = chain(), {"x": (1, 3, 6, 8)}
    whole = import_model(onnx.load_from_string(Selection(shapes=sizes).of(data)))
    rng = np.random.default_rng(0)
    x = {"x": rng.normal(size=(2, 3, 6, 8)), "bias": rng.normal(size=2)}
    front = taken(data, shapes=sizes, outputs=("b",))
    assert front.inputs == ["x"] and ops(front) == ["Relu", "Conv"]
    back = taken(data, shapes=sizes, inputs=("b", "bias"))
    assert back.inputs == ["b", "bias"] and back.outputs == ["y"] and back.shapes["b"] == (1, 2, 6, 8)
    middle = run(front, {"x": x["x"]})["b"]
    want = run(whole, x)["y"]
    np.testing.assert_array_equal(run(back, {"b": middle, "bias": x["bias"]})["y"], want)
    both = taken(data, shapes=sizes, inputs=("a",), outputs=("b",))
    np.testing.assert_array_equal(run(both, {"a": np.maximum(x["x"], 0)})["b"], middle)
    assert taken(data, shapes=sizes, outputs=("c", "y")).outputs == ["c", "y"]


def test_the_shape_of_a_cut_may_be_chosen():
    nodes = [node("Fancy", ["x"], ["a"], domain="com.example"), node("Relu", ["a"], ["y"])]
    data = model(nodes, {"x": [1, 3]}, domains=["com.example"]).SerializeToString()
    with pytest.raises(ValueError, match="input 'a' must have a shape, which the model does not say: --shape a="):
        Selection(inputs=("a",)).of(data)
    assert taken(data, inputs=("a",), shapes={"a": (1, 7)}).shapes["y"] == (1, 7)


def test_results_of_one_node_are_cut_alone():
    nodes = [node("Split", ["x"], ["a", "b"], axis=1), node("Mul", ["a", "b"], ["y"])]
    data = model(nodes, {"x": [1, 4]}).SerializeToString()
    graph = taken(data, inputs=("b", "x"))
    assert graph.inputs == ["b", "x"] and graph.shapes["b"] == (1, 2)
    x = np.arange(1.0, 5.0)[None]
    np.testing.assert_array_equal(run(graph, {"x": x, "b": np.array([[10.0, 20.0]])})["y"], [[10, 40]])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"outputs": ("bb",)}, "tensor of outputs must be one of x, bias, a, b, c, y, not 'bb'; did you mean b?"),
        (
            {"inputs": ("bia", "b")},
            "tensor of inputs must be one of x, bias, a, b, c, y, not 'bia'; did you mean bias?",
        ),
        ({"inputs": ("b",)}, "inputs must include bias, which the outputs need"),
        ({"inputs": ("b", "bias"), "outputs": ("b", "a")}, "inputs must include x, which the outputs need"),
        ({"inputs": ("x", "bias"), "outputs": ("a",)}, "inputs must be needed for the outputs, and bias is not"),
        ({"outputs": ("y", "y")}, "outputs must name a tensor once, not 'y' twice"),
        ({"fixed": {"a": 1}}, "fixed input must be one of x, bias, not 'a'"),
        ({"fixed": {"bias": [1.0, 2.0]}}, "shape of 'bias' must go with [1], not [2]"),
        ({"fixed": {"bias": np.inf}}, "fixed value of 'bias' must be finite in float32"),
    ],
)
def test_what_cannot_be_taken(choice, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Selection(**choice).of(chain((1, 3, 4, 4)))


def test_inputs_become_constants(tmp_path):
    data, sizes = chain(), {"x": (1, 3, 4, 4)}
    graph = taken(data, shapes=sizes, fixed={"bias": 2})
    assert graph.inputs == ["x"]
    x = np.random.default_rng(1).normal(size=(1, 3, 4, 4))
    want = run(taken(data, shapes=sizes), {"x": x, "bias": np.array([2.0])})["y"]
    np.testing.assert_array_equal(run(graph, {"x": x})["y"], want)
    np.save(tmp_path / "bias.npy", np.float32([2]))
    for text in ("bias=2", "bias=2.0", f"bias={tmp_path / 'bias.npy'}"):
        choice = Selection.parse(["x=1,3,4,4"], None, None, [text])
        np.testing.assert_array_equal(run(import_model(choice.of(data)), {"x": x})["y"], want)


def test_integers_and_truth_become_constants():
    nodes = [node("Where", ["mask", "x", "zero"], ["a"]), node("Reshape", ["a", "sizes"], ["y"])]
    graph = helper.make_graph(
        nodes,
        "net",
        [info("x", [1, 4]), info("mask", [4], TensorProto.BOOL), info("sizes", [2], TensorProto.INT64)],
        [info("y", None)],
        [numpy_helper.from_array(np.float32(0), "zero")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10).SerializeToString()
    choice = Selection.parse([], None, None, ["mask=true,false,1,0", "sizes=2,2"])
    np.testing.assert_array_equal(
        run(import_model(choice.of(data)), {"x": np.arange(1.0, 5.0)[None]})["y"].reshape(2, 2), [[1, 0], [3, 0]]
    )
    with pytest.raises(ValueError, match="fixed value of 'sizes' must be numbers of the type int64"):
        Selection(fixed={"sizes": [2, 2.5]}).of(data)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (([], None, None, ["x"]), "fix must be NAME=VALUE, once for each name, not 'x'"),
        (([], None, None, ["x=1", "x=2"]), "fix must be NAME=VALUE, once for each name, not 'x=2'"),
        (([], None, None, ["x=one"]), "fix must be NAME=VALUE with numbers or an npy file, not 'x=one'"),
        (([], None, None, ["x=no.npy"]), "fix must name an npy file that exists, not 'no.npy'"),
        ((["x=1,a"], None, None, []), "shape must be NAME=1,3,64,64 with whole numbers, not 'x=1,a'"),
        ((["1,3"], None, None, []), "shape must be NAME=1,3,64,64, once for each name, not '1,3'"),
        (([], "a,", None, []), "inputs must be names with commas in between, not 'a,'"),
    ],
)
def test_texts_that_cannot_be_meant(texts, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Selection.parse(*texts)


@pytest.mark.slow
def test_commands_take_the_part(tmp_path):
    file, folder = tmp_path / "net.onnx", tmp_path / "net"
    file.write_bytes(chain())
    choice = ["--shape", "height=4", "--shape", "width=4", "--outputs", "c", "--fix", "bias=0.5"]
    done = CliRunner().invoke(main, ["compile", str(file), "-o", str(folder), "--preset", "ecp5-85f", *choice])
    assert done.exit_code == 0, done.output
    stored = import_model(folder / MODEL)
    assert stored.outputs == ["c"] and stored.inputs == ["x"] and stored.shapes["x"] == (1, 3, 4, 4)
    net = concord.compile(
        file, preset="ecp5-85f", shape={"height": 4, "width": 4}, outputs=["c"], fix={"bias": np.float32([0.5])}
    )
    x = np.random.default_rng(2).normal(size=(1, 3, 4, 4))
    np.testing.assert_array_equal(net.run({"x": x})["c"], concord.load(folder).run({"x": x})["c"])
    np.savez(tmp_path / "x.npz", x=x)
    for command in (["fit", str(file), "--board", "ulx3s-85f"], ["overflow", str(file), "-i", str(tmp_path / "x.npz")]):
        done = CliRunner().invoke(main, [*command, *choice])
        assert done.exit_code == 0, done.output
    done = CliRunner().invoke(main, ["overflow", str(folder), "-i", str(tmp_path / "x.npz"), "--fix", "bias=1"])
    assert done.exit_code == 1 and "must be given with an ONNX file, not a folder" in done.output
    done = CliRunner().invoke(main, ["compile", str(file), "--fix", "bias"])
    assert done.exit_code == 1 and "Error: fix must be NAME=VALUE" in done.output


def test_unused_names_do_no_harm():
    data = model([node("Reshape", ["x", "s"], ["y"])], {"x": [1, 4]}, constants={"s": ints(1, 2, 2)})
    assert taken(data.SerializeToString(), outputs=("y",)).shapes["y"] == (1, 2, 2)
