"""Types of tensors as a user sees them: ``concord types``, ``concord inspect --only types``, ``concord report``."""

import re

import numpy as np
import onnx
import pytest

from concord.image.container import read_file, write_file
from concord.networks.folder import NETWORK_FILE, NETWORK_FOLDER, load_package
from concord.report import NetworkFacts
from support.commands import run
from support.onnx_models import model, node, onnxruntime_results


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """``net.onnx`` with a tensor that two products read narrow and a softmax wide; ``net``, compiled; ``x.npz``."""
    folder, rng = tmp_path_factory.mktemp("types"), np.random.default_rng(3)
    weights = {name: rng.normal(0, 0.3, (8, 8)).astype(np.float32) for name in ("w", "w1", "w2")}
    nodes = [node("MatMul", ["x", "w"], ["a"], name="fc"), node("MatMul", ["a", "w1"], ["y1"], name="fc1"),
             node("MatMul", ["a", "w2"], ["y2"], name="fc2"), node("Tanh", ["a"], ["b"], name="third"),
             node("Mul", ["b", "y1"], ["y3"], name="product")]  # fmt: skip
    proto = model(nodes, {"x": (1, 8)}, ["y2", "y3"], weights)
    (folder / "net.onnx").write_bytes(proto.SerializeToString())
    np.savez(folder / "x.npz", x=rng.normal(0, 1, (20, 8)))
    code, output = run("compile", folder / "net.onnx", "-o", folder / "net", "--preset", "tiny")
    assert code == 0, output
    return folder


def lines(output, name):
    """Rows of the table that begin with a name, in words."""
    return [line.split() for line in re.findall(rf"^ {re.escape(name)} .*$", output, re.M)]


def test_types_of_a_model(place):
    code, output = run("types", place / "net.onnx", "--preset", "tiny")
    assert code == 0 and "Data types of net.onnx, bytes with tiny" in output
    assert lines(output, "a") == ["a 1, 1, 0, 0, 0 wide once for fc2, fc1 narrow to wide 64 78".split()]
    assert lines(output, "x") == ["x 1 narrow 32 20".split()]
    (total,) = lines(output, "total")
    assert total[:5] == "total 3 before, 2 after".split()
    assert not [path for path in place.iterdir() if path.name not in ("net.onnx", "net", "x.npz")]


def test_a_set_number(place):
    code, output = run("types", place / "net.onnx", "--preset", "tiny", "--conversions-from", "2")
    assert code == 0 and "once for" not in output
    assert lines(output, "a") == ["a 1, 1, 0, 0, 0 wide by fc2 narrow to wide 64 64".split()]
    assert re.search(r"^ +by fc1 *$", output, re.M)


@pytest.mark.parametrize("number", [-1, -7])
def test_a_negative_set_number_is_refused(place, number, tmp_path):
    code, output = run("types", place / "net.onnx", "-o", tmp_path / "t.onnx", "--conversions-from", number)
    assert code == 1 and output == f"Error: conversions_from must be 0 or more, not {number}\n"
    assert not (tmp_path / "t.onnx").exists()


@pytest.mark.parametrize(("number", "text", "operators"), [
    (1, "1 shared conversion as a node", ["ToNarrow"]), (2, "0 shared conversions as nodes", []),
])  # fmt: skip
def test_a_typed_file(place, tmp_path, number, text, operators):
    path = tmp_path / "typed.onnx"
    code, output = run("types", place / "net.onnx", "-o", path, "--preset", "tiny", "--conversions-from", number)
    assert code == 0 and output.endswith(f"{path}: {text}\n")
    was, typed = onnx.load(place / "net.onnx"), onnx.load(path)
    onnx.checker.check_model(typed, full_check=True)
    assert [part.op_type for part in typed.graph.node if part.domain] == operators
    x = {"x": np.load(place / "x.npz")["x"][:1]}
    for wanted, result in zip(onnxruntime_results(was, x), onnxruntime_results(typed, x), strict=True):
        assert wanted.tobytes() == result.tobytes()


def test_a_typed_file_compiles(place, tmp_path):
    """The same program and constants, as the conversion is no operator by itself."""
    assert run("types", place / "net.onnx", "-o", tmp_path / "typed.onnx")[0] == 0
    assert run("compile", tmp_path / "typed.onnx", "-o", tmp_path / "typed", "--preset", "tiny")[0] == 0
    was, now = (load_package(folder).image for folder in (place / "net", tmp_path / "typed"))
    assert was.program == now.program and was.segments == now.segments


def test_a_part_of_a_model(place):
    code, output = run("types", place / "net.onnx", "--preset", "tiny", "--outputs", "y2")
    assert code == 0 and lines(output, "a") == ["a 1 narrow narrow to narrow 32 20".split()]


def test_types_are_for_models(place):
    code, output = run("types", place / "x.npz")
    assert code == 1 and "must be an ONNX model, not" in output


def test_inspect(place):
    code, output = run("inspect", place / "net", "--only", "types")
    assert code == 0 and "Data types of the layers, bytes of 1 sample" in output and "Program" not in output
    (row,) = lines(output, "a")
    assert row[:4] == "a 1, 1, 0".split() and "once for" in " ".join(row) and row[-5:-2] == "narrow to wide".split()
    assert lines(output, "total")


def test_inspect_shows_types_only_if_asked(place):
    code, output = run("inspect", place / "net")
    assert code == 0 and "Data types" not in output and "Program" in output
    code, output = run("inspect", place / "net", "--only", "types", "--only", "ports")
    assert code == 0 and output.index("Inputs and outputs") < output.index("Data types")


def test_an_image_has_no_types(place):
    image = place / "net" / "npu.image"
    code, output = run("inspect", image, "--only", "types")
    assert code == 1 and "but no network to take types from" in output
    assert output.startswith(f"Error: IMAGE must be the folder of a compiled network for --only types, not {image}:")


def test_a_network_that_compiles_to_another_program_has_no_types(place, tmp_path):
    """As of another version of the compiler."""
    code, output = run("compile", place / "net.onnx", "-o", tmp_path / "net", "--preset", "tiny")
    assert code == 0, output
    file = tmp_path / "net" / "network.npz"
    header, arrays = read_file(file, NETWORK_FILE)
    header["formats"]["exponents"] = {"a": -1}
    write_file(file, header, arrays, NETWORK_FILE)
    NETWORK_FOLDER.seal(tmp_path / "net")
    code, output = run("inspect", tmp_path / "net", "--only", "types")
    assert code == 1 and "must hold what its network compiles to, but does not: compile it again" in output


def test_report(place, tmp_path):
    page = tmp_path / "page.html"
    code, output = run("report", place / "net", "-i", place / "x.npz", "-o", page)
    assert code == 0 and "once for" in output and "Data types of the layers, bytes of 1 sample" in output
    facts = NetworkFacts.from_json((tmp_path / "page.json").read_text())
    (a,) = (tensor for tensor in facts.types if tensor.name == "a")
    assert a.entries[0] == (1.0, 2) and a.entries[1][0] == 0.0
    assert (a.type, a.forms) == ("wide", ("narrow to wide",))
    assert a.conversions[0].shared and a.bytes_before == 6 * 16  # one writes, five read
    assert facts.saved.bytes_after == sum(tensor.bytes_after for tensor in facts.types)
    section = page.read_text().partition("<h2>Data types</h2>")[2].partition("</section>")[0]
    assert a.conversions[0].text in section and f'<td class="whole">{a.factors}</td>' in section
    assert f"{facts.saved.conversions_before} before, {facts.saved.conversions_after} after" in section
