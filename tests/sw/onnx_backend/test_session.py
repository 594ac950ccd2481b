"""A session with the methods of ONNX Runtime's."""

import numpy as np
import onnx
import onnxruntime
import pytest

import concord
from concord.onnx_backend import InferenceSession
from support.onnx_models import model, node

RNG = np.random.default_rng(8)


def two_outputs(first="batch"):
    weights = {"w": RNG.normal(size=(6, 4)).astype(np.float32)}
    nodes = [node("MatMul", ["x", "w"], ["h"]), node("Relu", ["h"], ["a"]), node("Add", ["h", "b"], ["s"])]
    proto = model(nodes, {"x": (first, 6), "b": (first, 4)}, ["a", "s"], weights)
    return onnx.shape_inference.infer_shapes(proto)


@pytest.mark.parametrize("first", ["batch", 1])
def test_the_same_calls_as_of_onnx_runtime(first):
    proto = two_outputs(first)
    ours = InferenceSession(proto.SerializeToString(), None, ["CPUExecutionProvider"], preset="tiny")
    theirs = onnxruntime.InferenceSession(proto.SerializeToString())
    for values in ("get_inputs", "get_outputs"):
        pairs = zip(getattr(ours, values)(), getattr(theirs, values)(), strict=True)
        assert all((a.name, a.shape, a.type) == (b.name, b.shape, b.type) for a, b in pairs)
    count = 3 if first == "batch" else 1
    feed = {"x": RNG.normal(size=(count, 6)).astype(np.float32), "b": RNG.normal(size=(count, 4)).astype(np.float32)}
    for names in (None, ["s"], ["s", "a"]):
        results, want = ours.run(names, feed), theirs.run(names, feed)
        assert [x.dtype for x in results] == [x.dtype for x in want]
        assert all(x.shape == y.shape and np.abs(x - y).max() < 0.1 for x, y in zip(results, want, strict=True))


def test_what_is_compiled_already(tmp_path):
    network = concord.compile(two_outputs(), preset="tiny")
    network.save(tmp_path / "net")
    feed = {"x": np.ones((1, 6)), "b": np.ones((1, 4))}
    results = [InferenceSession(given).run(None, feed) for given in (network, tmp_path / "net", str(tmp_path / "net"))]
    assert all(np.array_equal(one, two) for other in results[1:] for one, two in zip(results[0], other, strict=True))
    assert InferenceSession(network).get_providers() == ["ConcordExecutionProvider"]
    for given in (network, tmp_path / "net"):
        with pytest.raises(ValueError, match="preset must be left out: the network is compiled already"):
            InferenceSession(given, preset="tiny")


def test_a_model_without_an_axis_of_samples():
    proto = onnx.shape_inference.infer_shapes(model([node("Relu", ["x"], ["y"])], {"x": (3, 4)}))
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    (y,) = InferenceSession(proto, preset="tiny").run(None, {"x": x})
    assert y.shape == (3, 4) and np.allclose(y, np.maximum(x, 0), atol=0.02)


def test_names_that_are_not_there():
    session = InferenceSession(two_outputs(), preset="tiny")
    with pytest.raises(ValueError, match=r"output_names must be among \['a', 's'\], not \['z'\]"):
        session.run(["z"], {"x": np.ones((1, 6)), "b": np.ones((1, 4))})
    with pytest.raises(ValueError, match=r"input_feed must have the inputs \['x', 'b'\], not \['x'\]"):
        session.run(None, {"x": np.ones((1, 6))})
