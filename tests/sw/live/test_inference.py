"""Inputs of networks and their results: which a source can be for, labels, and flags."""

from types import SimpleNamespace

import numpy as np
import pytest

from concord.examples import softmax
from concord.host import connect
from concord.live.inference import Inference, network_input
from concord.networks.folder import load
from concord.spec.presets import TINY
from support.commands import run
from support.live_files import COLOURS, colour_network
from support.onnx_models import model, node


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    return colour_network(tmp_path_factory.mktemp("colours"))


@pytest.fixture
def loaded(net):
    """Image, package and a device that has it."""
    image, package = load(net)
    with connect("emulator", image.config) as device:
        device.load(image)
        yield image, package, device


def filled(red, green, blue):
    return np.broadcast_to(np.array([red, green, blue])[:, None, None], (3, 8, 8))


def compiled(folder, nodes, inputs, **options):
    (folder / "net.onnx").write_bytes(model(nodes, inputs, **options).SerializeToString())
    code, output = run("compile", folder / "net.onnx", "--preset", "tiny", "-o", folder / "net")
    assert code == 0, output
    return load(folder / "net")


@pytest.mark.slow
def test_the_class_is_that_with_the_highest_score(loaded):
    inference = Inference(*loaded, COLOURS)
    classification = inference.run(filled(0.25, 0.75, 0.5))
    assert (classification.label, classification.best, classification.score) == ("green", 1, 0.75)
    assert classification.scores.tolist() == [0.25, 0.75, 0.5]
    assert Inference(*loaded).run(filled(0, 0, 1)).label == "2"


def test_flags_are_those_of_the_run(loaded):
    inference = Inference(*loaded)
    texture = np.random.default_rng(1).uniform(0, 1, (3, 8, 8))
    (flag,) = inference.run(255 * texture).flags
    assert flag.flag == "INPUT_RANGE" and "times as large as the samples" in flag.meaning
    assert inference.run(texture).flags == ()


def test_what_is_known_of_the_input(loaded):
    known = network_input(*loaded[:2])
    assert (known.name, known.shape, known.element_type) == ("x", (3, 8, 8), None)
    assert known.known.startswith("values from 0.") and known.known.endswith("(40 samples)")


def test_an_image_has_no_more_than_ports():
    image = softmax(TINY).image()
    with connect("emulator", TINY) as device:
        device.load(image)
        inference = Inference(image, None, device)
        inference.warm_up()
        values = np.linspace(-1, 1, np.prod(inference.input.shape)).reshape(inference.input.shape)
        classification = inference.run(values)
    assert classification.best == inference.classes - 1 and classification.flags == ()


def test_labels_that_are_too_many(loaded):
    with pytest.raises(ValueError, match="there must be 3 labels, one for each class, not 2"):
        Inference(*loaded, ["a", "b"])


def test_networks_with_several_inputs(tmp_path):
    image, package = compiled(tmp_path, [node("Add", ["a", "b"], ["y"])], {"a": (1, 4), "b": (1, 4)})
    with pytest.raises(ValueError, match=r"must have one input, which the source is for, not \['a', 'b'\]"):
        network_input(image, package)


def test_networks_that_read_texts():
    package = SimpleNamespace(input_shapes={"x": (1,)}, texts={"x": ("a", "b")})
    with pytest.raises(ValueError, match="input 'x' must be of numbers, not of texts"):
        network_input(None, package)


def test_several_results(tmp_path):
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["z"])]
    image, package = compiled(tmp_path, nodes, {"x": (1, 4)}, outputs=["y", "z"])
    with connect("emulator", image.config) as device:
        device.load(image)
        with pytest.raises(ValueError, match=r"--output must say which result has the scores, one of \['y', 'z'\]"):
            Inference(image, package, device)
        with pytest.raises(ValueError, match=r"output must be one of \['y', 'z'\], not 'x'"):
            Inference(image, package, device, output="x")
        classification = Inference(image, package, device, output="z").run(np.array([1.0, 2, 3, 4]))
    assert (classification.best, classification.score) == (0, -1)


def test_results_that_are_no_scores(tmp_path):
    image, package = compiled(tmp_path, [node("Relu", ["x"], ["y"])], {"x": (1, 3, 8, 8)})
    with connect("emulator", image.config) as device:
        device.load(image)
        with pytest.raises(ValueError, match="result 'y' must be one score for each class, not 3 x 8 x 8"):
            Inference(image, package, device)


def test_a_result_that_is_the_class(tmp_path):
    nodes = [node("Neg", ["x"], ["a"]), node("ArgMax", ["a"], ["y"], axis=1, keepdims=0)]
    image, package = compiled(tmp_path, nodes, {"x": (1, 3)})
    with connect("emulator", image.config) as device:
        device.load(image)
        classification = Inference(image, package, device, COLOURS).run(np.array([3.0, 2, 1]))
    assert (classification.label, classification.best, classification.score, len(classification.scores)) == (
        "blue",
        2,
        None,
        0,
    )
