"""Models and samples that cannot be used: one message that says what is wrong, no traceback, and no folder."""

import warnings
import zipfile

import numpy as np
import onnx
import pytest
from click.testing import CliRunner

from concord.cli.main import main
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph.execute import run
from concord.networks.calibrated import emulate
from concord.spec.presets import PRESETS, TINY
from support.commands import run as command
from support.onnx_models import floats, model, node

WEIGHT = floats(8, 4)
X = np.random.default_rng(0).normal(size=(20, 8))


def product(weight=WEIGHT, shape=(1, 8), weights="w"):
    return model([node("Gemm", ["x", weights], ["y"], name="fc")], {"x": shape}, constants={"w": weight})


def with_one(value):
    changed = WEIGHT.copy()
    changed[1, 2] = value
    return changed


GOOD = product().SerializeToString()
MODELS = {
    "half a file": (GOOD[: len(GOOD) // 2], "must be valid ONNX: "),
    "end missing": (GOOD[:-7], "must be valid ONNX: "),
    "text": (b"a text\n", "must be an ONNX model, not a text file; "),
    "empty": (b"", "must be an ONNX model, not an empty file; export the model again"),
    "noise": (np.random.default_rng(1).bytes(3000), "must be valid ONNX: "),
    "open sizes": (product(shape=("n", "m")), "input 'x': dimension 1 'm' must be fixed; --shape x=1,SIZE does so"),
    "no elements": (product(shape=(1, 0)), "input 'x': dimension 1 must be at least 1, not 0"),
    "not a number": (product(with_one(np.nan)), "constant 'w': must be finite, it has NaN or infinities"),
    "complex numbers": (product(WEIGHT.astype(np.complex64)), "'w' must be real, not complex64"),
    "infinity": (product(with_one(np.inf)), "constant 'w': must be finite, it has NaN or infinities"),
    "too large": (product(with_one(1e9)), "Dense 'fc': weights must be below 128 in magnitude, not 1e+09; scale them"),
    "wrong size": (product(WEIGHT[1:]), "Gemm 'fc': last axis must have 7 elements, not the shape [1, 8]"),
    "nothing there": (product(weights="v"), "must be valid ONNX: Nodes in a graph must be topologically sorted"),
}


def without_outputs():
    proto = product()
    del proto.graph.output[:]
    return proto


MODELS |= {
    "no outputs": (without_outputs(), "the model must have at least one output; export it with its results as outputs"),
    "one axis more": (
        product(WEIGHT[None]), "Gemm 'fc': weight must have two axes, not the shape [4, 8, 1]; correct the model"
    ),
    "one axis": (product(WEIGHT[0]), "Gemm 'fc': weight must have two axes, not the shape [4]; correct the model"),
    "a number as weight": (product(np.float32(1)), "Gemm 'fc': weight must have two axes, not the shape []"),
    "a constant of another shape": (
        model([node("Add", ["x", "c"], ["y"], name="sum")], {"x": (1, 8)}, constants={"c": floats(10, 3)}),
        "Add 'sum': shapes must be ones that are broadcast to each other, not [1, 8] and [10, 3]",
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", [(10, 1), (4, 1), (2, 4), (1, 1, 4)])
def test_a_bias_of_another_shape_is_one_message(tmp_path, shape):
    proto = model([node("Gemm", ["x", "w", "b"], ["y"], name="fc")], {"x": (1, 8)},
                  constants={"w": WEIGHT, "b": floats(*shape)})  # fmt: skip
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    code, lines, written = compile_file(tmp_path, tmp_path / "net.onnx")
    assert code == 1 and not written and len(lines) == 2
    reason = f"bias must be one that is broadcast to [1, 4], not of the shape {list(shape)}; correct the model"
    assert lines[1] == f"  Gemm 'fc': {reason}"


def test_a_constant_with_more_axes_is_taken():
    """The tensor gets axes of length 1, as ONNX has it."""
    nodes = [node("Relu", ["x"], ["a"]), node("Add", ["a", "c"], ["y"])]
    proto = model(nodes, {"x": (1, 8)}, constants={"c": floats(1, 1, 1, 8)})
    graph = import_model(proto)
    x = {"x": X}
    got, want = emulate(compile_graph(graph, TINY), x)["y"], run(graph, x)["y"]
    assert got.shape == want.shape == (20, 1, 1, 8)
    np.testing.assert_allclose(got, want, atol=0.01)


def test_no_samples_are_one_message(tmp_path, good):
    command("compile", good, "--preset", "tiny", "-o", tmp_path / "out")
    np.savez(tmp_path / "x.npz", x=X[:0])
    code, output = command("run", tmp_path / "out", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    assert (code, output) == (1, "Error: input 'x' must have at least one sample, not none\n")


def compile_file(tmp_path, path, *arguments):
    """Exit code, lines, and whether anything was written."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = CliRunner().invoke(main, ["compile", str(path), *arguments, "-o", str(tmp_path / "out")])
    assert isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output.splitlines(), (tmp_path / "out").exists()


@pytest.mark.parametrize(("content", "message"), MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", ["net.onnx", "net.json", "net.textproto", "net.onnxtxt", "net"])
def test_a_bad_model_is_one_message(tmp_path, content, message, name):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    code, lines, written = compile_file(tmp_path, path, "--preset", "tiny")
    assert code == 1 and not written and lines[0].startswith("Error: ")
    assert message in lines[-1]
    assert len(lines) == (1 if "ONNX" in message else 2), lines


def test_weights_that_are_elsewhere_are_missed(tmp_path):
    path = tmp_path / "net.onnx"
    onnx.save_model(product(), path, save_as_external_data=True, location="weights", size_threshold=0)
    (tmp_path / "weights").unlink()
    code, lines, _ = compile_file(tmp_path, path)
    assert code == 1 and len(lines) == 1 and f"{path} must be valid ONNX: " in lines[0] and "weights" in lines[0]


def changed(value):
    x = X.copy()
    x[3, 2] = value
    return x


SAMPLES = {
    "other size": ({"x": X[:, :7]}, "input 'x' must have the shape (samples, 8), not (20, 7)"),
    "one sample without its axis": ({"x": X[0]}, "input 'x' must have the shape (samples, 8), not (8,)"),
    "a number": ({"x": 3.0}, "array 'x' must have samples along its first axis, not be array(3.)"),
    "no samples": ({"x": X[:0]}, "input 'x' must have samples to calibrate with, not none"),
    "another name": ({"foo": X}, "data must have the arrays ['x'], not ['foo']"),
    "no arrays": ({}, "data must have the arrays ['x'], not []"),
    "text": ({"x": X.astype(str)}, "input 'x' must be an array of real numbers, not of <U"),
    "complex": ({"x": X.astype(complex)}, "input 'x' must be an array of real numbers, not of complex128"),
    "times": ({"x": X.astype("datetime64[s]")}, "input 'x' must be an array of real numbers, not of datetime64[s]"),
    "objects": ({"x": X.astype(object)}, "x.npy must hold numbers or texts, not Python's objects"),
    "not a number": ({"x": changed(np.nan)}, "±65504 (binary16), not nan at [3, 2] (1 such values)"),
    "infinity": ({"x": changed(-np.inf)}, "±65504 (binary16), not -inf at [3, 2] (1 such values)"),
    "too large": ({"x": changed(1e6)}, "input 'x' must hold finite numbers within ±65504 (binary16), not 1000000.0"),
}


@pytest.fixture
def good(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(GOOD)
    return path


@pytest.mark.parametrize(("arrays", "message"), SAMPLES.values(), ids=SAMPLES)
@pytest.mark.parametrize("options", [(), ("--mantissa", "auto")], ids=["formats", "mantissas"])
def test_bad_samples_are_one_message(tmp_path, good, arrays, message, options):
    np.savez(tmp_path / "c.npz", **arrays)
    code, lines, written = compile_file(
        tmp_path, good, "--preset", "tiny", "--calibrate", str(tmp_path / "c.npz"), *options
    )
    assert code == 1 and not written and len(lines) == 1
    assert lines[0].startswith("Error: ") and message in lines[0]


def damaged(path):
    data = bytearray(path.read_bytes())
    data[150] ^= 255
    path.write_bytes(bytes(data))


def truncated(path):
    path.write_bytes(path.read_bytes()[:200])


def text_inside(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", "a text")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damaged, "c.npz must be an npz file of arrays of numbers: Bad CRC-32"),
        (truncated, "c.npz must be an npz file of arrays, not a damaged archive (zip)"),
        (text_inside, "c.npz must be an npz file of arrays of numbers: EOF: reading magic string"),
        (lambda path: path.write_text("a text"), "c.npz must be an npz file of arrays, not a text file"),
    ],
)
def test_a_bad_file_of_samples_is_one_message(tmp_path, good, spoil, message):
    np.savez(tmp_path / "c.npz", x=X)
    spoil(tmp_path / "c.npz")
    code, lines, written = compile_file(tmp_path, good, "--preset", "tiny", "--calibrate", str(tmp_path / "c.npz"))
    assert code == 1 and not written and len(lines) == 1 and message in lines[0]


def test_two_inputs_need_the_same_samples(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(model([node("Add", ["a", "b"], ["y"])], {"a": (1, 8), "b": (1, 8)}).SerializeToString())
    for arrays, message in (
        ({"a": X, "b": X[:3]}, "inputs must have the same number of samples, not {'a': 20, 'b': 3}"),
        ({"a": X}, "data must have the arrays ['a', 'b'], not ['a']"),
    ):
        np.savez(tmp_path / "c.npz", **arrays)
        code, lines, _ = compile_file(tmp_path, path, "--preset", "tiny", "--calibrate", str(tmp_path / "c.npz"))
        assert code == 1 and lines == [f"Error: {message}"]


@pytest.mark.parametrize("name", ["tiny", "up5k", "ecp5-85f"])
def test_weights_up_to_the_limit_are_taken(name):
    """The limit that is told is the one of the blocks, for weights that no pass has scaled."""
    config = PRESETS[name]
    below = np.nextafter(np.float32(config.wgt.limit), np.float32(0))
    compile_graph(with_weight(below), config)
    with pytest.raises(Unsupported, match=f"weights must be below {config.wgt.limit:g} in magnitude"):
        compile_graph(with_weight(-config.wgt.limit), config)


def with_weight(value):
    """A graph with one weight changed after all passes."""
    graph = import_model(product(WEIGHT))
    weight = graph.nodes[0].attrs["weight"].copy()
    weight.flat[0] = value
    graph.nodes[0] = graph.nodes[0].with_attrs(weight=weight)
    return graph


def test_recurrent_weights_are_checked():
    weights = {"W": floats(1, 8, 3), "R": floats(1, 8, 2)}
    weights["R"][0, 5, 1] = 300
    proto = model(
        [node("LSTM", ["x", *weights], ["y"], hidden_size=2, name="cell")], {"x": (4, 1, 3)}, constants=weights
    )
    with pytest.raises(Unsupported, match=r"LSTM 'cell': weights must be below 128 in magnitude, not 300; scale them"):
        compile_graph(import_model(proto), TINY)


def test_a_short_file_that_promises_terabytes_is_one_message(tmp_path, good):
    """Also where a member is compressed, and wherever samples are read."""
    command("compile", good, "--preset", "tiny", "-o", tmp_path / "out")
    head = {"descr": "<f8", "fortran_order": False, "shape": (1 << 23, 1 << 20)}
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as file, file.open("x.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, head)
    for words in (
        ["run", tmp_path / "out", "-i"],
        ["report", tmp_path / "out", "-i"],
        ["compile", good, "--calibrate"],
    ):
        code, output = command(*words, tmp_path / "x.npz", "-o", tmp_path / "y.npz")
        assert code == 1 and output.count("\n") == 1, output
        assert "x.npy is shorter or longer than an array (8388608, 1048576) of float64" in output


def test_too_little_memory_is_one_message(tmp_path, good, monkeypatch):
    def read(path):
        return np.empty(1 << 55)

    command("compile", good, "--preset", "tiny", "-o", tmp_path / "out")
    np.savez(tmp_path / "x.npz", x=X)
    monkeypatch.setattr("concord.cli.common.read_npz", read)
    code, output = command("run", tmp_path / "out", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")
    assert code == 1 and output.startswith("Error: not enough memory, fewer samples need less: Unable to allocate")
