"""The command line: what it prints, and that mistakes give one message and no traceback."""

import subprocess
import sys
import warnings
import zipfile
from itertools import pairwise

import numpy as np
import onnx
import pytest

from concord.demo.train import TrainSettings, export_onnx
from concord.examples import softmax
from concord.frontend import import_model
from concord.graph import execute
from concord.host import LinkError
from concord.host.serial_port import LatencyWarning
from concord.image import Image
from concord.networks.folder import load_package
from concord.spec.presets import PRESETS, TINY
from support.commands import run, two_products

TEXT = "set_shape 2, 1\nv_rd wide, 0, row=1\n  v_relu\n  v_wr wide, 2, row=1\nhalt\n"


def layers(*widths):
    """Random weights and biases as the demonstration exports them."""
    rng = np.random.default_rng(0)
    return [(rng.normal(0, 1 / np.sqrt(a), (b, a)), rng.normal(0, 0.2, b)) for a, b in pairwise(widths)]


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.casm"
    path.write_text(TEXT)
    return path


@pytest.fixture
def image(tmp_path):
    path = tmp_path / "softmax.image"
    softmax(TINY).image().save(path)
    return path


def test_presets_names_all():
    code, output = run("presets")
    assert code == 0
    for name, config in PRESETS.items():
        assert name in output and f"{config.fingerprint:016x}" in output


def test_asm_and_disasm_are_inverse(program, tmp_path):
    words, text = tmp_path / "words.hex", tmp_path / "text.casm"
    assert run("asm", program, "-o", words) == (0, "")
    assert run("disasm", words, "-o", text) == (0, "")
    assert run("asm", text) == (0, words.read_text())
    assert run("disasm", words)[1] == text.read_text()


def test_disasm_reads_images(image):
    code, output = run("disasm", image)
    assert code == 0 and "v_redmax" in output and output.endswith("halt\n")


def test_inspect(image):
    code, output = run("inspect", image)
    assert code == 0
    for text in ("tiny", f"{TINY.fingerprint:016x}", "softmax", "float32", "matrix", "program"):
        assert text in output


@pytest.mark.parametrize(
    ("content", "message"),
    [("v_rd narrow, 0\nhalt\n", "line 2: "), ("nonsense\n", "line 1: mnemonic must be one of")],
)
def test_asm_reports_the_line(tmp_path, content, message):
    path = tmp_path / "bad.casm"
    path.write_text(content)
    code, output = run("asm", path)
    assert code == 1 and output.startswith(f"Error: {message}") and "Traceback" not in output


def test_bad_files_are_named(program, tmp_path):
    code, output = run("inspect", program)
    assert code == 1 and output.startswith(f"Error: {program} must be a compiled network or an image, not a text file")
    assert "concord compile makes one of an ONNX model: concord compile MODEL.onnx -o NAME" in output
    assert "word 1 must be hexadecimal, not 'set_shape'" in run("disasm", program)[1]
    assert run("asm", tmp_path / "absent")[0] == 2


def test_damaged_image_is_refused(image):
    data = bytearray(image.read_bytes())
    with zipfile.ZipFile(image) as members:
        first, second = members.infolist()[:2]
    data[(first.header_offset + second.header_offset) // 2] ^= 0xFF  # in the contents: zip ignores times, for instance
    image.write_bytes(bytes(data))
    code, output = run("inspect", image)
    assert code == 1 and output.startswith("Error: ") and output.count("\n") == 1


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"z": np.zeros((1, 10))}, "inputs must have the names ['x'], not ['z']"),
        ({"x": np.zeros((2, 9))}, "x must have shape [batch, 10], not [2, 9]"),
        (None, "x.npz must be an npz file of arrays, not a text file"),
    ],
)
def test_run_checks_inputs(image, tmp_path, arrays, message):
    given = tmp_path / "x.npz"
    given.write_text("text") if arrays is None else np.savez(given, **arrays)
    code, output = run("run", image, "--input", given, "--output", tmp_path / "y.npz")
    assert code == 1 and message in output


def test_run_on_the_emulator(image, tmp_path):
    example = softmax(TINY)
    x = example.samples(3)
    given, result = tmp_path / "x.npz", tmp_path / "y.npz"
    np.savez(given, x=x)
    code, output = run("run", image, "--input", given, "--output", result)
    assert code == 0 and "y (3, 10)" in output
    assert example.error(np.load(result)["y"], x) < example.tolerance


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("y.txt", "output must be an npz file and end in .npz, not "),
        ("y", "output must be an npz file and end in .npz, not "),
        ("x.npz/y.npz", "x.npz must be a folder, to write "),
    ],
)
def test_where_results_go_is_checked_before_the_run(image, tmp_path, monkeypatch, name, message):
    monkeypatch.setattr("concord.cli.run.connected", lambda *_: pytest.fail("must not run"))
    np.savez(tmp_path / "x.npz", x=softmax(TINY).samples(1))
    before = sorted(tmp_path.iterdir())
    code, output = run("run", image, "--input", tmp_path / "x.npz", "--output", tmp_path / name)
    assert code == 1 and message in output and output.count("\n") == 1
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("target", "hint"), [("emulater", "; did you mean emulator?"), ("RTL", "rtl?"), ("x", "'x'\n")]
)
def test_run_names_the_devices_there_are(image, tmp_path, target, hint):
    np.savez(tmp_path / "x.npz", x=softmax(TINY).samples(1))
    code, output = run("run", image, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", "--on", target)
    wanted = f"target must be emulator, rtl or a serial port as in /dev/ttyUSB0, not {target!r}"
    assert code == 1 and wanted in output and hint in output


def test_run_refuses_an_unknown_device(image, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 10)))
    code, output = run("run", image, "--input", tmp_path / "x.npz", "--output", tmp_path / "y.npz", "--on", "/dev/none")
    assert code == 1 and "/dev/none" in output


def test_images_survive_the_round_trip(image):
    assert Image.load(image).program == softmax(TINY).image().program


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "net.onnx"
    export_onnx(layers(64, 8, 3), TrainSettings(), path)
    return path


def test_tensors_in_a_file_beside_the_model(tmp_path):
    """The folder does not need them any more."""
    source = two_products(tmp_path)
    apart = source / "apart.onnx"
    options = {"save_as_external_data": True, "location": "w.bin", "size_threshold": 0}
    onnx.save_model(onnx.load(source / "net.onnx"), apart, **options)
    results = []
    for model in (source / "net.onnx", apart):
        folder = model.with_suffix("")
        assert run("compile", model, "--preset", "tiny")[0] == 0
        if model == apart:
            (source / "w.bin").unlink()
        code, output = run("run", folder, "-i", source / "x.npz", "-o", source / "y.npz")
        assert code == 0, output
        with np.load(source / "y.npz") as found:
            results.append(found["y"])
    assert np.array_equal(*results)


def test_compile_and_run(model, tmp_path):
    code, output = run("compile", model, "--preset", "tiny")
    folder = tmp_path / "net"
    assert code == 0 and output.startswith(f"{folder}: 2 layers, ")
    assert "dynamic exponent" in run("inspect", folder)[1]
    assert "v_rd narrow" in run("disasm", folder)[1]
    x = np.random.default_rng(1).normal(0, 1, (5, 64))
    graph = import_model(model)
    (name,), (result,) = graph.inputs, graph.outputs
    np.savez(tmp_path / "x.npz", **{name: x.reshape(5, *graph.sample_shape(name))})
    assert run("run", folder, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz")[0] == 0
    reference = execute.run(graph, {name: x.reshape(5, *graph.sample_shape(name))})[result]
    assert np.abs(np.load(tmp_path / "y.npz")[result] - reference).max() < 0.05 * np.abs(reference).max()


@pytest.mark.slow
def test_compile_chooses_formats_by_samples(model, tmp_path):
    graph = import_model(model)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(1).normal(0, 1, (20, *graph.sample_shape(graph.inputs[0]))))
    folder = tmp_path / "other"
    code, output = run("compile", model, "--preset", "tiny", "--calibrate", tmp_path / "x.npz", "-o", folder)
    assert code == 0 and "Formats on the calibration data" in output and "static exponents, one bit tighter" in output
    assert load_package(folder).image.metadata["name"] == graph.name


def test_compile_for_a_board(model, tmp_path):
    assert run("compile", model, "--board", "icebreaker", "-o", tmp_path / "net")[0] == 0
    assert load_package(tmp_path / "net").config == PRESETS["up5k"]


def test_a_damaged_network_is_refused(model, tmp_path):
    run("compile", model, "--preset", "tiny", "-o", tmp_path / "net")
    (tmp_path / "net" / "network.npz").write_bytes(b"no archive")
    assert run("inspect", tmp_path / "net")[1].startswith(f"Error: {tmp_path / 'net' / 'network.npz'} is damaged")
    (tmp_path / "net" / "model.onnx").unlink()
    assert run("inspect", tmp_path / "net")[1] == (
        f"Error: {tmp_path / 'net'} must be a compiled network: model.onnx is missing; compile the network again\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("net.onnx", "--preset", "tiny", "--calibrate", "z.npz"), "data must have the arrays"),
        (("z.npz",), "z.npz must be an ONNX model, not an npz file of arrays; the network is another file"),
        (("large.onnx", "--preset", "tiny"), "does not fit into tiny: matrix memory has 256 words"),
    ],
)
def test_compile_says_what_is_wrong(model, tmp_path, arguments, message):
    np.savez(tmp_path / "z.npz", z=np.zeros(3))
    export_onnx(layers(64, 64, 3), TrainSettings(), tmp_path / "large.onnx")
    code, output = run("compile", *(tmp_path / a if "." in a else a for a in arguments))
    assert code == 1 and message in output and "Traceback" not in output


@pytest.mark.parametrize(("passed", "code"), [(True, 0), (False, 1)])
def test_demo_tells_by_its_exit_code(monkeypatch, tmp_path, passed, code):
    given = []

    def run_demo(*arguments):
        given.extend(arguments[:3])
        return passed

    monkeypatch.setattr("concord.demo.run.run_demo", run_demo)
    assert run("demo", "--preset", "tiny", "--output", tmp_path, "--images", 3) == (code, "")
    assert given == [TINY, tmp_path, 3]


@pytest.mark.slow
def test_demo_that_does_not_fit_is_one_message(tmp_path):
    code, output = run("demo", "--preset", "tiny", "--output", tmp_path)
    assert code == 1 and "Traceback" not in output
    assert "Error: does not fit into tiny: matrix memory has 256 words, but" in output


@pytest.mark.slow
def test_the_package_runs_as_the_command_does():
    done = subprocess.run([sys.executable, "-m", "concord", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("concord, version")


@pytest.mark.filterwarnings("always")
def test_a_warning_is_one_line_without_its_place(monkeypatch, tmp_path, image):
    def slow(*_, **__):
        warnings.warn("replies wait", LatencyWarning, stacklevel=1)
        raise LinkError("nobody answers")

    monkeypatch.setattr("concord.cli.run.connected", slow)
    port = Image.load(image).inputs[0]
    np.savez(tmp_path / "x.npz", **{port.name: np.zeros((1, *port.shape))})
    shown = warnings.showwarning
    code, output = run("run", image, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--on", "COM7")
    assert code == 1 and output == "warning: replies wait\nError: nobody answers\n"
    assert warnings.showwarning is shown
