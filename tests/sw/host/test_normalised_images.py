"""Images whose colours were normalised one by one travel as bytes: each colour has 256 values of its own."""

import numpy as np
import pytest

from concord.compiler.model import compile_graph, expecting
from concord.graph.ir import Graph, Node
from concord.host import Link, LinkedDevice, connect
from concord.host.rates import rates
from concord.spec.presets import ECP5_85F, ECP5_85F_256, TINY
from support.fed_model import FedModel
from support.link_model import ModelTransport

MEAN, DEVIATION = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def stem(size, kernel, channels=3):
    """A first convolution as image networks have it: large windows, stride 2, padded."""
    rng, pad = np.random.default_rng(5), kernel // 2
    attrs = {
        "weight": rng.normal(0, 0.1, (4, channels, kernel, kernel)), "bias": rng.normal(0, 0.1, 4),
        "strides": (2, 2), "pads": (pad,) * 4, "dilations": (1, 1), "group": 1,
    }  # fmt: skip
    shapes = {"x": (1, channels, size, size), "maps": (1, 4, -(-size // 2), -(-size // 2)), "y": (1, 4, 1, 1)}
    nodes = [
        Node("Conv", "stem", ("x",), ("maps",), attrs),
        Node("ReduceMean", "mean", ("maps",), ("y",), {"axes": (2, 3), "keepdims": True}),
    ]
    return Graph("stem", nodes, ["x"], ["y"], shapes, {"x", "y"})


def images(samples, size, channels=3):
    """Pixels of a byte, normalised by the user in single precision."""
    pixels = np.random.default_rng(6).integers(0, 256, (samples, channels, size, size)).astype(np.float32) / 255
    mean, deviation = (np.resize(each, channels).reshape(-1, 1, 1).astype(np.float32) for each in (MEAN, DEVIATION))
    return {"x": (pixels - mean) / deviation}


@pytest.mark.slow
@pytest.mark.parametrize("config", [ECP5_85F, ECP5_85F_256], ids=lambda config: config.name)
def test_a_large_stem_takes_a_byte_for_an_element(config):
    compiled = expecting(compile_graph(stem(64, 7), config), images(4, 64))
    found = rates(compiled.image)
    assert found.input_route == "raw: x: 12288 bytes, a byte for an element, one of at most 256 values of its channel"
    assert found.bytes_in < 1.05 * 12288


@pytest.mark.slow
def test_one_page_is_not_enough():
    compiled = expecting(compile_graph(stem(64, 7), ECP5_85F.replace(code_pages=1)), images(4, 64))
    assert rates(compiled.image).input_route == f"raw: x: {2 * 3 * 64 * 64} bytes, two bytes for an element"


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "pages"), [(3, 4), (2, 2), (4, 4)])
def test_the_same_bits_from_a_byte_for_an_element(channels, pages):
    config = TINY.replace(inbox=256, code_pages=pages, narrow_depth=1024, wide_depth=1024, matrix_depth=512)
    compiled, given = compile_graph(stem(12, 5, channels), config), images(9, 12, channels)
    with connect("emulator", config) as emulator:
        emulator.load(compiled.image)
        want = compiled.run(emulator, given)
    device = LinkedDevice(Link(ModelTransport(FedModel(config))), config)
    device.load(compiled.image)
    for _ in range(2):  # with the code book, and with the one that is there
        got = compiled.run(device, given)
        np.testing.assert_array_equal(got["y"], want["y"])
        assert device.input_route.endswith("of its channel")
    other = {"x": given["x"] * np.float32(1.1)}  # another code book
    with connect("emulator", config) as emulator:
        emulator.load(compiled.image)
        np.testing.assert_array_equal(compiled.run(device, other)["y"], compiled.run(emulator, other)["y"])
