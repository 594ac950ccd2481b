"""Recurrent layers, against onnxruntime."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import concord
from concord.frontend import UnsupportedModel, import_model
from concord.functions import by_recurrent_name
from concord.graph.execute import run
from support.onnx_models import agrees, floats, model, node

RNG = np.random.default_rng(7)


def recurrent(op, steps=4, features=3, hidden=5, directions=1, bias=True, states=None, p=False, **attrs):
    """A recurrent layer with every output; ``states`` is None, "inputs" or "constants"."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    constants = {
        "W": floats(directions, gates * hidden, features),
        "R": 0.5 * floats(directions, gates * hidden, hidden),
    }
    names = ["x", "W", "R", "B" if bias else "", ""]
    if bias:
        constants["B"] = floats(directions, 2 * gates * hidden)
    inputs = {"x": [steps, 1, features]}
    for name in ("h", "c")[: 2 if op == "LSTM" else 1]:
        names.append(name if states else "")
        if states == "inputs":
            inputs[name] = [directions, 1, hidden]
        elif states:
            constants[name] = (
                floats(directions, 1, hidden) if states == "constants" else np.zeros((directions, 1, hidden), "f")
            )
    if p:
        names.append("P")
        constants["P"] = floats(directions, 3 * hidden)
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    return model([node(op, names, outputs, hidden_size=hidden, **attrs)], inputs, outputs, constants)


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("states", [None, "inputs", "constants", "zeros"])
def test_recurrent(op, direction, states):
    directions = 2 if direction == "bidirectional" else 1
    graph = agrees(recurrent(op, directions=directions, states=states, bias=states != "zeros", direction=direction))
    (layer,) = graph.nodes
    assert layer.inputs[1:] == (
        ("h", "c")[: len(layer.inputs) - 1] if states == "inputs" else ("",) * (len(layer.inputs) - 1)
    )
    assert (layer.attrs["initial_h"] is not None) == (states == "constants")


@pytest.mark.parametrize("linear", [0, 1])
@pytest.mark.parametrize("directions", [1, 2])
def test_reset_gate(linear, directions):
    direction = "bidirectional" if directions == 2 else "forward"
    agrees(recurrent("GRU", directions=directions, direction=direction, linear_before_reset=linear))


def test_recurrent_details():
    agrees(recurrent("LSTM", p=True, states="inputs"))
    agrees(recurrent("LSTM", clip=0.4, p=True))
    agrees(recurrent("GRU", clip=0.4))
    agrees(recurrent("RNN", clip=0.4))
    agrees(recurrent("LSTM", activations=["HardSigmoid", "LeakyRelu", "Softplus"], activation_alpha=[0.3, 0.2],
                     activation_beta=[0.4]))  # fmt: skip
    agrees(
        recurrent("RNN", directions=2, direction="bidirectional", activations=["Relu", "Elu"], activation_alpha=[0.5])
    )


@pytest.mark.parametrize("name", by_recurrent_name())
def test_functions_that_recurrent_layers_may_have(name):
    agrees(recurrent("GRU", activations=[name, "Tanh"]))
    agrees(recurrent("RNN", activations=[name]))
    (layer,) = import_model(recurrent("RNN", activations=[name.upper()])).nodes
    assert layer.attrs["activations"] == ((name,),)


def test_input_and_forget_gate_are_one():
    agrees(recurrent("LSTM", input_forget=1))


def test_batch_may_come_first():
    """onnxruntime has no layout 1: the same layer, written with time first."""
    proto = recurrent("LSTM", states="constants", directions=2, direction="bidirectional")
    first = recurrent("LSTM", states="constants", directions=2, direction="bidirectional", layout=1)
    del first.graph.initializer[:]
    for item in proto.graph.initializer:
        first.graph.initializer.add().CopyFrom(item)
        if item.name in ("h", "c"):
            value = numpy_helper.to_array(item).swapaxes(0, 1)
            first.graph.initializer[-1].CopyFrom(numpy_helper.from_array(value, item.name))
    first.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", 1, [1, 4, 3]))
    x = RNG.standard_normal((3, 4, 3))
    plain, turned = import_model(proto), import_model(first)
    want, got = run(plain, {"x": x[:, :, None]}), run(turned, {"x": x})
    assert turned.shapes["y"] == (1, 4, 2, 5) and turned.shapes["y_h"] == (1, 2, 5)
    assert np.array_equal(got["y"], want["y"][:, :, :, 0])
    assert np.array_equal(got["y_c"], want["y_c"][:, :, 0])


def test_lengths_of_sequences():
    def proto(length):
        layer = node("RNN", ["x", "W", "R", "", "n"], ["y"], hidden_size=2)
        constants = {"W": floats(1, 2, 3), "R": floats(1, 2, 2), "n": np.array([length], np.int32)}
        return model([layer], {"x": (4, 1, 3)}, constants=constants)

    agrees(proto(4))
    for length in (0, 5):
        with pytest.raises(UnsupportedModel, match=f"sequence_lens must be from 1 to the 4 steps .*, not {length}"):
            import_model(proto(length))


def with_length(op, length=None, outputs=2, **more):
    """A recurrent layer of six steps with an initial state; ``length`` is constant, or else an input."""
    proto = recurrent(op, steps=6, **more)
    (layer,) = proto.graph.node
    layer.input[4] = "n"
    del proto.graph.output[outputs:]
    if length is None:
        proto.graph.input.append(helper.make_tensor_value_info("n", TensorProto.INT32, [1]))
    else:
        proto.graph.initializer.append(numpy_helper.from_array(np.array([length], np.int32), "n"))
    return proto


DIRECTIONS = {"forward": 1, "reverse": 1, "bidirectional": 2}


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("states", [None, "inputs", "constants"])
def test_a_constant_length(op, direction, states):
    """Steps behind the end are none: outputs are zero, and states stay."""
    for length in (1, 4):
        agrees(with_length(op, length, outputs=3, direction=direction, directions=DIRECTIONS[direction], states=states))


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("states", [None, "inputs", "constants"])
def test_a_computed_length(op, direction, states):
    """All lengths in one batch, against onnxruntime one by one."""
    proto = with_length(op, direction=direction, directions=DIRECTIONS[direction], states=states, hidden=3)
    graph, session = import_model(proto), onnxruntime.InferenceSession(proto.SerializeToString())
    x = {name: RNG.standard_normal((6, *graph.sample_shape(name))) for name in graph.inputs}
    x["n"] = np.arange(1.0, 7.0).reshape(6, *graph.sample_shape("n"))
    got = run(graph, x)
    for k in range(6):
        sample = {name: values[k].reshape(graph.shapes[name]).astype("f4") for name, values in x.items()}
        sample["n"] = sample["n"].astype(np.int32)
        for name, want in zip(graph.outputs, session.run(graph.outputs, sample), strict=True):
            assert np.abs(got[name][k].reshape(want.shape) - want).max() < 1e-5


def test_what_a_computed_length_cannot_have():
    with pytest.raises(UnsupportedModel, match="Y_c must not be read where sequence_lens is computed"):
        import_model(with_length("LSTM", outputs=3))


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("W", (1, 20, 4), "3 features|4 features"),
        ("W", (2, 20, 3), "must go"),
        ("R", (1, 15, 5), "must go together"),
        ("B", (1, 20), "must go with forward"),
        ("P", (1, 10), "P must have the shape"),
        ("h", (1, 2, 5), "constant initial states"),
    ],
)
def test_operands_that_do_not_fit(name, shape, message):
    proto = recurrent("LSTM", states="constants", p=True)
    (item,) = (item for item in proto.graph.initializer if item.name == name)
    item.CopyFrom(numpy_helper.from_array(floats(*shape), name))
    with pytest.raises(UnsupportedModel, match=message):
        import_model(proto)


def test_unknown_functions_are_refused():
    with pytest.raises(UnsupportedModel, match=r"activations must be of \['Elu', .*\], not \['Affine'\]"):
        import_model(recurrent("RNN", activations=["Affine"]))


@pytest.mark.slow
@pytest.mark.parametrize("length", [None, 4])
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_lengths_on_the_emulator(direction, length):
    """Results behind the end are exactly zero."""
    proto = with_length("GRU", length, direction=direction, directions=DIRECTIONS[direction])
    graph = import_model(proto)
    x = {name: RNG.standard_normal((12, *graph.sample_shape(name))) for name in graph.inputs}
    lengths = np.full(12, 4)
    if length is None:
        lengths = 1 + np.arange(12) % 6
        x["n"] = lengths.reshape(12, *graph.sample_shape("n"))
    want = run(graph, x)
    results = concord.compile(proto, preset="ecp5-85f", calibrate=x, quick=True).run(x)
    for name, values in want.items():
        assert np.abs(results[name] - values).max() < 0.06 * np.abs(values).max()
    for sample, end in zip(results["y"], lengths, strict=True):
        assert not sample[end:].any() and sample[:end].any()
