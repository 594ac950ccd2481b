"""``concord report``: from a folder to a page, if the folder is what its network compiles to."""

import numpy as np
import pytest

from concord.frontend import import_model
from concord.graph import execute
from concord.image.container import read_file, write_file
from concord.networks.folder import NETWORK_FILE, NETWORK_FOLDER, PackageError, load_package, recompile
from concord.report import NetworkFacts
from concord.report.prefixes import layer_at
from support.commands import run, two_products
from support.onnx_models import model as proto
from support.onnx_models import node


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A network and samples for it."""
    return two_products(tmp_path_factory.mktemp("model"))


@pytest.fixture(params=[(), ("--calibrate", "x.npz"), ("--batch", "2")])
def folder(request, model, tmp_path):
    """The network, compiled with some options."""
    options = [model / option if option.endswith("npz") else option for option in request.param]
    code, output = run("compile", model / "net.onnx", "--preset", "tiny", "-o", tmp_path / "net", *options)
    assert code == 0, output
    return tmp_path / "net"


def test_a_folder_is_compiled_again_as_it_was(folder):
    package = load_package(folder)
    compiled = recompile(folder)
    assert compiled.image.program == package.image.program and compiled.image.segments == package.image.segments
    assert compiled.package.formats == package.formats
    assert compiled.package.arrangement.batch == package.arrangement.batch
    assert len(compiled.starts) == len(compiled.lowered.layers) == 2


@pytest.mark.slow
def test_page_and_facts(folder, model):
    code, output = run("report", folder, "-i", model / "x.npz", "--samples", 9)
    assert code == 0 and output.startswith(f"{folder / 'report.html'}, report.json: 2 layers, agreement ")
    analysis = NetworkFacts.from_json((folder / "report.json").read_text())
    assert analysis.samples == 9 and analysis.name == "net" and analysis.same_on_rtl is None and analysis.error < 0.05
    assert "<title>net on tiny</title>" in (folder / "report.html").read_text()


@pytest.mark.slow
def test_output_goes_elsewhere(folder, model, tmp_path):
    assert run("report", folder, "-i", model / "x.npz", "-o", tmp_path / "page.html")[0] == 0
    assert (tmp_path / "page.html").is_file() and (tmp_path / "page.json").is_file()
    assert not (folder / "report.html").exists()


def test_what_is_not_what_the_network_compiles_to_is_refused(folder, model):
    header, arrays = read_file(folder / "network.npz", NETWORK_FILE)
    exponents = {} if header["formats"]["exponents"] else dict.fromkeys(recompile(folder).graph.shapes, -1)
    header["formats"]["exponents"] = exponents
    write_file(folder / "network.npz", header, arrays, NETWORK_FILE)
    NETWORK_FOLDER.seal(folder)
    with pytest.raises(PackageError, match="compile it again"):
        recompile(folder)
    code, output = run("report", folder, "-i", model / "x.npz")
    assert code == 1 and "compile it again" in output and not (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("mantissas", "message"),
    [
        ("x", "has contents that are not valid here; compile the network again\n"),
        ({"first": "x"}, "must hold formats that its network can have: compile it again\n"),
    ],
)
def test_formats_of_another_kind_are_refused(folder, model, mantissas, message):
    header, arrays = read_file(folder / "network.npz", NETWORK_FILE)
    header["formats"]["mantissas"] = mantissas
    write_file(folder / "network.npz", header, arrays, NETWORK_FILE)
    NETWORK_FOLDER.seal(folder)
    code, output = run("report", folder, "-i", model / "x.npz")
    assert code == 1 and output.endswith(message)


@pytest.mark.parametrize("name", ["y.npz", "missing.npz", "net.onnx"])
def test_wrong_samples(model, tmp_path, name):
    run("compile", model / "net.onnx", "--preset", "tiny", "-o", tmp_path / "net")
    np.savez(model / "y.npz", other=np.zeros((1, 20)), more=np.zeros(1))
    code, output = run("report", tmp_path / "net", "-i", model / name)
    message = {"y.npz": "data must have the arrays", "missing.npz": "does not exist", "net.onnx": "must be an npz file"}
    assert code != 0 and message[name] in output


def test_no_network(tmp_path, model):
    code, output = run("report", tmp_path, "-i", model / "x.npz")
    assert code == 1 and "must be a compiled network: npu.image" in output


@pytest.mark.slow
def test_a_network_in_row_tiles_from_the_model_to_the_page(tmp_path):
    rng = np.random.default_rng(4)
    weights = {"v": rng.normal(0, 0.4, (4, 1, 3, 3)), "w": rng.normal(0, 0.4, (4, 3))}
    nodes = [
        node("Conv", ["x", "v"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("MaxPool", ["b"], ["c"], kernel_shape=[2, 2], strides=[2, 2]),
        node("ReduceMean", ["c"], ["d"], axes=[2, 3], keepdims=0),
        node("MatMul", ["d", "w"], ["y"]),
    ]
    constants = {name: values.astype(np.float32) for name, values in weights.items()}
    model = tmp_path / "net.onnx"
    model.write_bytes(proto(nodes, {"x": (1, 1, 32, 4)}, constants=constants).SerializeToString())
    x = rng.normal(0, 1, (6, 1, 32, 4))
    np.savez(tmp_path / "x.npz", x=x)
    code, output = run("compile", model, "--preset", "tiny", "-o", tmp_path / "net")
    assert code == 0 and ", first " in output and " rows of the input" in output
    code, output = run("inspect", tmp_path / "net")
    phases = len(load_package(tmp_path / "net").image.phases)
    assert code == 0 and f"{phases} phases" in output and phases > 2
    assert run("run", tmp_path / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")[0] == 0
    want = execute.run(import_model(model), {"x": x})["y"]
    with np.load(tmp_path / "y.npz") as found:
        assert np.abs(found["y"] - want).max() < 0.05 * np.abs(want).max()
    code, output = run("report", tmp_path / "net", "-i", tmp_path / "x.npz")
    analysis = NetworkFacts.from_json((tmp_path / "net" / "report.json").read_text())
    assert (
        code == 0
        and analysis.row_tiling in output
        and analysis.row_tiling in (tmp_path / "net" / "report.html").read_text()
    )
    assert analysis.error < 0.05 and all(layer.error.relative < 0.05 for layer in analysis.layers)
    depth = next(memory.depth for memory in analysis.memories if memory.name == "narrow")
    assert all(layer.space.narrow <= depth for layer in analysis.layers)
    recompiled = recompile(tmp_path / "net")
    assert recompiled.image == load_package(tmp_path / "net").image
    assert [layer_at(recompiled, pc) for pc in recompiled.starts] == list(range(len(recompiled.starts)))
    assert len(recompiled.tile_starts) >= 2
    for segment in recompiled.tile_starts:
        assert [layer_at(recompiled, pc) for pc in segment.starts] == list(range(recompiled.row_tiling.layers))
