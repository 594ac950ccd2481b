"""Results are in the order of the model and have its element types, whoever computes them last."""

import importlib.util
from itertools import permutations

import numpy as np
import onnx
import pytest

import concord
from support.commands import run
from support.onnx_models import model, node

ORDERS = [*permutations(["p", "t", "r"]), *permutations(["g", "l", "t"]), ("r", "t"), ("t", "p"), ("x1", "p", "g")]


def network(outputs):
    """A product, functions of it on the NPU, and a softmax, its logarithms and a copy on the host."""
    w = np.random.default_rng(3).normal(0, 0.3, (6, 6)).astype(np.float32)
    nodes = [node("Gemm", ["x", "w"], ["g"]), node("Softmax", ["g"], ["p"]), node("Tanh", ["g"], ["t"]),
             node("Relu", ["t"], ["r"]), node("LogSoftmax", ["t"], ["l"]), node("Identity", ["p"], ["x1"])]  # fmt: skip
    return model(nodes, {"x": (1, 6)}, outputs, {"w": w})


@pytest.mark.slow
@pytest.mark.parametrize("outputs", ORDERS, ids="".join)
def test_network(outputs, tmp_path):
    net = concord.compile(network(outputs))
    x = np.random.default_rng(1).normal(0, 1, (3, 6))
    assert list(net.outputs) == list(net.run(x)) == list(outputs)
    net.save(tmp_path / "net")
    loaded = concord.load(tmp_path / "net")
    assert list(loaded.outputs) == list(loaded.run(x)) == list(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [("p", "t", "r"), ("t", "p"), ("l", "g", "t")], ids="".join)
def test_commands_and_derived_models(outputs, tmp_path):
    onnx.save(network(outputs), tmp_path / "net.onnx")
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).normal(0, 1, (3, 6)))
    net, y = tmp_path / "net", tmp_path / "y.npz"
    assert run("compile", tmp_path / "net.onnx", "-o", net)[0] == 0
    assert run("run", net, "-i", tmp_path / "x.npz", "-o", y)[0] == 0
    assert run("derive", net, "-o", tmp_path / "model.onnx")[0] == 0
    assert run("derive", net, "-o", tmp_path / "model.py")[0] == 0
    assert list(np.load(tmp_path / "y.npz")) == list(outputs)
    derived = [item.name for item in onnx.load(tmp_path / "model.onnx").graph.output]
    assert tuple(derived[: len(outputs)]) == outputs  # behind them is what the NPU gives to the host's part
    loader = importlib.util.spec_from_file_location("model", tmp_path / "model.py")
    module = importlib.util.module_from_spec(loader)
    loader.loader.exec_module(module)
    assert list(module.run({"x": np.load(tmp_path / "x.npz")["x"]})) == list(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FLOAT", "FLOAT16", "DOUBLE", "BFLOAT16"])
def test_results_have_the_types_of_the_model(kind, tmp_path):
    """Of the NPU and of the host, and after a folder; NumPy has no bfloat16."""
    proto = network(("g", "p"))
    for value in proto.graph.output:
        value.type.tensor_type.elem_type = getattr(onnx.TensorProto, kind)
    proto.graph.node.extend(
        [node("Cast", [name], [f"{name}.end"], to=getattr(onnx.TensorProto, kind)) for name in "gp"]
    )
    for value in proto.graph.output:
        value.name += ".end"
    net = concord.compile(proto)
    net.save(tmp_path / "net")
    want = {"FLOAT": "float32", "FLOAT16": "float16", "DOUBLE": "float64", "BFLOAT16": "float32"}[kind]
    for one in (net, concord.load(tmp_path / "net")):
        assert {y.dtype.name for y in one.run(np.ones((2, 6))).values()} == {want}
