"""Files of the wrong kind at every command: what they are, and what to do."""

import numpy as np
import pytest

from support.commands import run, two_products
from support.onnx_models import model, node


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``net.onnx``, ``net``, its image, ``x.npz``, ``x.npy``."""
    place = two_products(tmp_path_factory.mktemp("doors"))
    np.save(place / "x.npy", np.load(place / "x.npz")["x"])
    assert run("compile", place / "net.onnx", "-o", place / "net", "--preset", "tiny")[0] == 0
    return place


@pytest.mark.parametrize(
    "words",
    [["run", "net.onnx", "-i", "x.npz", "-o", "y.npz"], ["inspect", "net.onnx"], ["derive", "net.onnx", "-o", "m.py"],
     ["data", "to-native", "net.onnx", "x.npz", "-o", "n.npz"], ["prove", "net.onnx"],
     ["live", "net.onnx", "--source", "camera", "--scale", "1"]],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_model_that_is_not_compiled(folder, words):
    names = ("net.onnx", "x.npz", "y.npz", "m.py", "n.npz")
    code, output = run(*(folder / word if word in names else word for word in words))
    assert code == 1 and output.startswith("Error: ") and "Traceback" not in output
    assert "must be a compiled network or an image, not an ONNX model; compile it first: concord compile" in output


def test_one_array_is_that_of_the_only_input(folder):
    proto = model([node("Tanh", ["pixels"], ["y"])], {"pixels": (1, 20)})
    (folder / "one.onnx").write_bytes(proto.SerializeToString())
    place = folder / "one"
    assert run("compile", folder / "one.onnx", "-o", place, "--preset", "tiny")[0] == 0
    np.savez(folder / "pixels.npz", pixels=np.load(folder / "x.npy"))
    for given in ("pixels.npz", "x.npy"):
        assert run("run", place, "-i", folder / given, "-o", folder / f"{given}.y.npz")[0] == 0
    first, second = (np.load(folder / f"{given}.y.npz")["y"] for given in ("pixels.npz", "x.npy"))
    assert first.tobytes() == second.tobytes()


@pytest.mark.slow
def test_other_commands_take_one_array(folder):
    code, output = run("compile", folder / "net.onnx", "--calibrate", folder / "x.npy", "-o", folder / "other")
    assert code == 0, output
    assert run("overflow", folder / "net.onnx", "-i", folder / "x.npy")[0] == 0
    assert run("report", folder / "net", "-i", folder / "x.npy")[0] == 0


@pytest.mark.slow
def test_one_array_for_two_inputs(folder):
    proto = model([node("Add", ["a", "b"], ["y"])], {"a": (1, 4), "b": (1, 4)})
    (folder / "two.onnx").write_bytes(proto.SerializeToString())
    assert run("compile", folder / "two.onnx", "-o", folder / "two")[0] == 0
    code, output = run("run", folder / "two", "-i", folder / "x.npy", "-o", folder / "y.npz")
    assert code == 1 and "x.npy must be an npz file with the arrays ['a', 'b'], not one array (npy)" in output


def test_a_model_in_the_place_of_samples(folder):
    code, output = run("run", folder / "net", "-i", folder / "net.onnx", "-o", folder / "y.npz")
    assert code == 1 and "net.onnx must be an npz file of arrays, not an ONNX model" in output


def test_objects_in_an_array_are_refused(folder):
    np.save(folder / "objects.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    code, output = run("run", folder / "net", "-i", folder / "objects.npy", "-o", folder / "y.npz")
    assert code == 1 and "Traceback" not in output and "objects.npy must hold numbers or texts" in output


@pytest.mark.parametrize("command", ["compile", "fit", "overflow"])
def test_a_file_of_another_tool(folder, command):
    (folder / "net.h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(100))
    more = {"compile": ["-o", folder / "h5"], "fit": ["--board", "ulx3s-85f"], "overflow": ["-i", folder / "x.npz"]}
    code, output = run(command, folder / "net.h5", *more[command])
    assert code == 1 and "net.h5 must be an ONNX model, not an HDF5 file, as Keras writes; load it" in output
