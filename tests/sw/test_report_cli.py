"""``concord report``: from a folder to a page, if the folder is what its network compiles to."""

import numpy as np
import pytest
from click.testing import CliRunner

from concord.cli import main
from concord.compiler.model import recompile
from concord.compiler.package import NETWORK_FILE, Package, PackageError
from concord.container import read_file, write_file
from concord.report import Analysis
from onnx_models import model as proto
from onnx_models import node


def run(*arguments):
    """Run the command; returns exit code and everything it printed."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A network and samples for it."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(1)
    weights = {"v": rng.normal(0, 0.2, (20, 8)), "w": rng.normal(0, 0.4, (8, 3))}
    nodes = [node("MatMul", ["x", "v"], ["a"]), node("Relu", ["a"], ["b"]), node("MatMul", ["b", "w"], ["y"])]
    constants = {name: values.astype(np.float32) for name, values in weights.items()}
    (folder / "net.onnx").write_bytes(proto(nodes, {"x": (1, 20)}, constants=constants).SerializeToString())
    np.savez(folder / "x.npz", x=rng.normal(0, 1, (20, 20)))
    return folder


@pytest.fixture(params=[(), ("--calibrate", "x.npz"), ("--batch", "2")])
def folder(request, model, tmp_path):
    """The network, compiled with some options."""
    options = [model / option if option.endswith("npz") else option for option in request.param]
    code, output = run("compile", model / "net.onnx", "--preset", "tiny", "-o", tmp_path / "net", *options)
    assert code == 0, output
    return tmp_path / "net"


def test_a_folder_is_compiled_again_as_it_was(folder):
    package = Package.load(folder)
    compiled = recompile(folder)
    assert compiled.image.program == package.image.program and compiled.image.segments == package.image.segments
    assert compiled.package.formats == package.formats
    assert compiled.package.arrangement.batch == package.arrangement.batch
    assert len(compiled.starts) == len(compiled.lowered.layers) == 2


def test_page_and_facts(folder, model):
    code, output = run("report", folder, "-i", model / "x.npz", "--samples", 9)
    assert code == 0 and output.startswith(f"{folder / 'report.html'}, report.json: 2 layers, agreement ")
    analysis = Analysis.from_json((folder / "report.json").read_text())
    assert analysis.samples == 9 and analysis.name == "net" and analysis.same_on_rtl is None and analysis.error < 0.05
    assert "<title>net on tiny</title>" in (folder / "report.html").read_text()


def test_output_goes_elsewhere(folder, model, tmp_path):
    assert run("report", folder, "-i", model / "x.npz", "-o", tmp_path / "page.html")[0] == 0
    assert (tmp_path / "page.html").is_file() and (tmp_path / "page.json").is_file()
    assert not (folder / "report.html").exists()


def test_what_is_not_what_the_network_compiles_to_is_refused(folder, model):
    header, arrays = read_file(folder / "network.npz", NETWORK_FILE)
    exponents = {} if header["formats"]["exponents"] else dict.fromkeys(recompile(folder).graph.shapes, -1)
    header["formats"]["exponents"] = exponents
    write_file(folder / "network.npz", header, arrays, NETWORK_FILE)
    with pytest.raises(PackageError, match="compile it again"):
        recompile(folder)
    code, output = run("report", folder, "-i", model / "x.npz")
    assert code == 1 and "compile it again" in output and not (folder / "report.html").exists()


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
