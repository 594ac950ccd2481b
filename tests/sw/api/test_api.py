"""The Python interface: compile, load, connect, and what a network says."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest

import concord
from concord.frontend import import_model
from concord.graph import execute
from concord.networks.folder import load_package
from concord.spec.presets import TINY
from support.commands import run, two_products

RNG = np.random.default_rng(3)


@pytest.fixture
def model(tmp_path):
    return two_products(tmp_path) / "net.onnx"


def samples_for(network, count=6):
    (shape,) = network.inputs.values()
    return RNG.normal(size=(count, *shape))


def test_the_face_is_small_and_complete():
    assert set(concord.__all__) <= set(dir(concord))
    assert all(getattr(concord, name) is not None for name in concord.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = concord.nothing
    assert (Path(concord.__file__).parent / "py.typed").exists()


def test_definitions_alone_import_nothing_else():
    code = "import concord.spec.presets, sys; print('numpy' in sys.modules, 'concord.api' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_a_network_from_a_path_bytes_or_a_model_is_the_same(model):
    forms = (model, str(model), model.read_bytes(), onnx.load(model))
    networks = [concord.compile(one, preset="tiny") for one in forms]
    assert len({one.image.program for one in networks}) == 1
    assert networks[0].config == TINY and "tiny" in repr(networks[0])
    x = samples_for(networks[0])
    graph = import_model(model)
    (found,) = networks[0].run(x).values()
    (exact,) = execute.run(graph, {graph.inputs[0]: x}).values()
    assert np.abs(found - exact).max() < 0.1 * np.abs(exact).max()


@pytest.mark.slow
def test_the_command_compiles_the_same(model, tmp_path):
    """One way from options to an image: with samples, widths and an accumulator."""
    network = concord.compile(model, preset="tiny")
    x = samples_for(network, 12)
    np.savez(tmp_path / "x.npz", x=x)
    cases = [
        ((), {}),
        (("--calibrate", tmp_path / "x.npz"), {"calibrate": x}),
        (("--calibrate", tmp_path / "x.npz", "--mantissa", "6"), {"calibrate": {"x": x}, "mantissa": 6}),
        (("--input-range", "-2,2"), {"input_range": (-2, 2)}),
        (("--output-format", "narrow"), {"output_format": "narrow"}),
        (("--calibrate", tmp_path / "x.npz", "--accumulator", "auto"), {"calibrate": x, "accumulator": "auto"}),
    ]
    for options, parameters in cases:
        folder = tmp_path / "net"
        code, text = run("compile", model, "--preset", "tiny", "-o", folder, *options)
        assert code == 0, text
        mine, theirs = concord.compile(model, preset="tiny", **parameters), load_package(folder)
        assert mine.config == theirs.config and mine.image.segments == theirs.image.segments
        assert mine.image.program == theirs.image.program and mine.package.formats == theirs.formats
        assert bool(mine.evidence) == ("calibrate" in parameters)


@pytest.mark.slow
def test_automatic_mantissas_keep_a_budget_of_labels(model):
    network = concord.compile(model, preset="tiny")
    x = samples_for(network, 16)
    (shape,) = network.outputs.values()
    labels = RNG.integers(0, shape[-1], 16)
    narrow = concord.compile(model, preset="tiny", calibrate=x, labels=labels, mantissa="auto", budget="100")
    assert "accuracy" in narrow.evidence and "Mantissas on 16 samples" in narrow.evidence
    assert sum(len(s.data) for s in narrow.image.segments) <= sum(len(s.data) for s in network.image.segments)


def test_a_folder_gives_the_network_back(model, tmp_path):
    network = concord.compile(model, preset="tiny")
    network.save(tmp_path / "net")
    again = concord.load(tmp_path / "net")
    assert again.model == network.model and again.image.program == network.image.program
    assert (again.inputs, again.outputs, again.compilation) == (network.inputs, network.outputs, None)
    x = samples_for(network)
    for name, values in network.run(x).items():
        assert np.array_equal(again.run({next(iter(network.inputs)): x})[name], values)
    assert again.rates.text == network.rates.text and again.warnings == network.warnings and again.evidence == ""
    with pytest.raises(ValueError, match="cannot be read"):
        concord.load(model)


def test_shapes_behind_the_part_of_the_host(tmp_path):
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 5]) for name in "xy"]
    proto = helper.make_model(helper.make_graph(nodes, "net", values[:1], values[1:]))
    network = concord.compile(proto, preset="tiny")
    found = network.run(np.zeros((2, 5)))
    assert network.outputs == {name: values.shape[1:] for name, values in found.items()} == {"y": (5,)}


def test_a_device_keeps_the_network_that_it_has(model):
    network = concord.compile(model, preset="tiny")
    x = samples_for(network)
    with concord.connect("emulator", network) as device:
        loaded, load = [], device.load
        device.load = lambda image: (loaded.append(image), load(image))
        results = network.run(x, device)
        assert loaded == []
        device.image = None
        network.run(x, device)
        assert loaded == [network.image]
    assert all(np.array_equal(results[name], values) for name, values in network.run(x).items())
    with concord.connect("emulator", network.config) as device:
        assert device.image is None


def test_flags_are_a_warning_or_an_error(model):
    network = concord.compile(model, preset="tiny")
    x = samples_for(network)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network.run(x, strict=True)
    with pytest.raises(concord.FlagError, match="INPUT_RANGE, values from -60000 to 60000; compiled for"):
        network.run(60000 * np.sign(x), strict=True)
    network = concord.compile(model, preset="tiny", input_range="-60000,60000")
    with pytest.warns(concord.FlagWarning, match="HALF_OVERFLOW.*what helps: "):
        network.run(60000 * np.sign(x))
    with pytest.raises(concord.FlagError, match="results may be wrong") as error:
        network.run(60000 * np.sign(x), strict=True)
    assert {"HALF_OVERFLOW"} <= {one.flag for one in error.value.flags}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"board": "no such"}, "board must be one of ulx3s-85f, .*, not 'no such'"),
        ({"board": "ulx3s"}, "not 'ulx3s'; did you mean ulx3s-85f?"),
        ({"board": "ulx3s-85f", "preset": "tiny"}, "preset must be one of those of ulx3s-85f .*, not 'tiny'"),
        ({"board": "nowhere", "config": TINY}, "board must be one of"),
        ({"preset": "none"}, "preset must be one of .*, not 'none'"),
        ({"preset": "tiny", "config": TINY}, "preset and config must not be given together"),
        ({"labels": [1]}, "must be given with calibrate"),
        ({"workers": 2}, "must be given with calibrate"),
        ({"mantissa": "auto"}, "needs --calibrate"),
        ({"accumulator": "wide"}, "accumulator must be full, auto or a number of bits, not 'wide'"),
        ({"accumulator": True}, "accumulator must be"),
        ({"guard": 3}, "must be given with"),
        ({"input_range": (2, 1)}, "input-range must be"),
        ({"input_range": {"z": (0, 1)}}, "input-range must be"),
        ({"output_format": {"z": "narrow"}}, "output-format must be"),
        ({"calibrate": np.zeros((3, 20)), "labels": [0.5, 1, 2]}, "labels must be integers, one for each of the 3"),
        ({"calibrate": {"z": np.zeros((3, 20))}}, "data must have the arrays"),
        ({"calibrate": 3.0}, "must have samples along its first axis"),
    ],
)  # fmt: skip
def test_parameters_that_are_not_possible(model, parameters, message):
    with pytest.raises(ValueError, match=message):
        concord.compile(model, **parameters)


def test_one_array_is_for_one_input(tmp_path):
    from onnx import TensorProto, helper

    nodes = [helper.make_node("Add", ["a", "b"], ["y"])]
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in "aby"}
    proto = helper.make_model(helper.make_graph(nodes, "net", [values["a"], values["b"]], [values["y"]]))
    network = concord.compile(proto, preset="tiny")
    a, b = RNG.normal(size=(2, 3, 4))
    assert np.allclose(network.run({"a": a, "b": b})["y"], a + b, atol=0.05)
    with pytest.raises(ValueError, match=r"inputs must be 2 arrays, one each, for \['a', 'b'\], or a mapping, not 1"):
        network.run(a)
    with pytest.raises(ValueError, match="inputs must be 2 arrays"):
        concord.compile(proto, preset="tiny", calibrate=a)
