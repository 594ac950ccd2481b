"""Flags by layer and in words: after a run, on the command line and from Python."""

import numpy as np
import pytest

import concord
from concord.examples.softmax import softmax
from concord.host import connect
from concord.networks.folder import load_package
from concord.program.flags import diagnose_flags, not_finite
from concord.spec.formats import Flag
from concord.spec.isa import Op, decode
from concord.spec.presets import TINY
from support.commands import run
from support.onnx_expressions import given, model_of, op
from support.onnx_models import model, node


def chains(image):
    """Addresses of all v_rd."""
    return [pc for pc, word in enumerate(image.program) if decode(word)[0].op is Op.V_RD]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A product and a function that goes on on both sides, compiled for inputs of -1 to 1."""
    where = tmp_path_factory.mktemp("flags")
    shifted = op.Add(op.MatMul(given(1, 4), np.eye(4), name="first"), np.full(4, 2.0))
    proto = model_of(op.Sigmoid(op.Sqrt(shifted), name="second"))
    (where / "net.onnx").write_bytes(proto.SerializeToString())
    code, output = run("compile", where / "net.onnx", "--preset", "tiny", "--input-range", "-1,1")
    assert code == 0, output
    for name, scale in (("small", 1.0), ("large", 40.0)):
        np.savez(where / f"{name}.npz", x=np.linspace(-scale, scale, 24).reshape(6, 4))
    return where


def test_a_run_within_the_tables_says_so(folder, tmp_path):
    code, output = run("run", folder / "net", "-i", folder / "small.npz", "-o", tmp_path / "y.npz", "--strict")
    assert code == 0 and output.endswith("no flags were raised\n")


def test_a_run_ends_with_its_flags(folder, tmp_path):
    code, output = run("run", folder / "net", "-i", folder / "large.npz", "-o", tmp_path / "y.npz")
    assert code == 0 and (tmp_path / "y.npz").exists()
    last = output[output.index("Flags that were raised") :]
    assert "first" in last and "TABLE_CLAMPED" in last and "--input-range" in last
    words = " ".join(last.split())
    assert "of sqrt+sigmoid" in words and "on both sides" in words


def test_strict_writes_nothing(folder, tmp_path):
    """An image by itself knows nothing of the inputs of the network, so this is about tables."""
    target = tmp_path / "y.npz"
    ports = load_package(folder / "net").arrangement.pack({"x": np.load(folder / "large.npz")["x"]})
    np.savez(tmp_path / "ports.npz", **ports)
    code, output = run("run", folder / "net" / "npu.image", "-i", tmp_path / "ports.npz", "-o", target, "--strict")
    assert code == 3 and not target.exists()
    assert "TABLE_CLAMPED" in output and "INPUT_RANGE" not in output and f"{target}: not written" in output


def test_inputs_unlike_those_it_was_compiled_for(folder, tmp_path):
    """Told with the other flags; with --strict, before anything runs."""
    target = tmp_path / "y.npz"
    code, output = run("run", folder / "net", "-i", folder / "large.npz", "-o", target)
    last = " ".join(output[output.index("Flags that were raised") :].split())
    assert code == 0 and target.exists()
    assert "input x" in last and "INPUT_RANGE" in last and "TABLE_CLAMPED" in last
    assert "values from -40 to" in last and "compiled for" in last and "(given)" in last
    target.unlink()
    code, output = run("run", folder / "net", "-i", folder / "large.npz", "-o", target, "--strict")
    assert code == 3 and not target.exists() and "INPUT_RANGE" in output and "TABLE_CLAMPED" not in output


def test_inputs_from_python(folder):
    net = concord.load(folder / "net")
    (flag,) = net.package.input_flags({"x": np.full((2, 4), 40.0)})
    assert (flag.where, flag.flag, flag.address) == ("input x", "INPUT_RANGE", None)
    with pytest.warns(concord.FlagWarning, match="input x: INPUT_RANGE, values from 40 to 40"):
        net.run(np.full((2, 4), 40.0))
    with concord.connect("emulator", net) as device:
        with pytest.raises(concord.FlagError) as caught:
            net.run(np.full((2, 4), 40.0), device, strict=True)
        assert [one.flag for one in caught.value.flags] == ["INPUT_RANGE"] and device.counters()["CYCLES"] == 0
    net.run(np.full((2, 4), 0.5), strict=True)
    with pytest.raises(ValueError, match="must have the shape"):
        net.package.input_flags({"x": np.zeros((2, 5))})
    with pytest.raises(ValueError, match="inputs must be"):
        net.package.input_flags({"z": np.zeros((2, 4))})


def test_flags_from_python_are_those_of_the_last_run(folder):
    net = load_package(folder / "net")
    with connect("emulator", net.config) as device:
        device.load(net.image)
        with np.load(folder / "large.npz") as arrays:
            net.run(device, dict(arrays))
        (one,) = net.flags(device.flags())
        assert (one.layer, one.flag) == ("first", "TABLE_CLAMPED") and one.instruction.startswith("v_rd")
        assert device.flags() == {one.address: (Flag.TABLE_CLAMPED,)}
        with np.load(folder / "small.npz") as arrays:
            net.run(device, dict(arrays))
        assert net.flags(device.flags()) == []


def test_an_image_without_layers_has_instructions_and_tables():
    """Its exponential is constant below, its reciprocal nowhere."""
    image = softmax(TINY).image()
    records = [one for pc in chains(image) for one in diagnose_flags(image, {pc: (Flag.TABLE_CLAMPED,)})]
    assert all(one.layer == "" and one.where.startswith(f"{one.address}: v_rd") for one in records)
    assert [one.meaning for one in records if "table" in one.meaning] == [
        "values were cut off: the table of exp covers -16 to 0, the function goes on above",
        "values were cut off: the table of recip covers 1 to 10, the function goes on on both sides",
    ]


def test_the_command_shows_instructions_of_an_image(tmp_path):
    softmax(TINY).image().save(tmp_path / "softmax.npz")
    np.savez(tmp_path / "x.npz", x=np.linspace(-60_000, 60_000, 10)[None])
    code, output = run("run", tmp_path / "softmax.npz", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--strict")
    assert code == 3 and "HALF_OVERFLOW" in output and "v_rd wide" in output


@pytest.mark.parametrize("flag", list(Flag))
def test_every_flag_has_words(folder, flag):
    net = load_package(folder / "net")
    (one,) = diagnose_flags(net.image, {chains(net.image)[0]: (flag,)})
    assert one.flag == flag.name and one.meaning and one.advice and one.layer == "first"
    assert flag.name in one.text and "first" in one.text


def test_results_that_are_not_finite():
    y = np.array([[1.0, np.inf], [np.nan, 0.0], [0.0, 0.0]])
    (one,) = not_finite({"y": y, "z": np.zeros((3, 2))})
    assert (one.layer, one.flag) == ("result y", "NOT_FINITE") and one.meaning.startswith("2 of 3 samples")


@pytest.mark.parametrize("root", ["Sqrt", "Pow"])
def test_roots_of_negative_numbers_on_the_host(tmp_path, root):
    """Floats have NaN there, and the host 0."""
    exponent = np.array(0.5, dtype=np.float32)
    nodes = [node("MatMul", ["x", "w"], ["a"], name="first"), node("Softmax", ["a"], ["s"], axis=-1)]
    nodes += [node("Sub", ["s", "half"], ["d"])]
    nodes += [node(root, ["d"] if root == "Sqrt" else ["d", "power"], ["y"], name="root")]
    constants = {"w": np.eye(4, dtype=np.float32), "half": np.full(4, 0.5, dtype=np.float32)}
    constants |= {} if root == "Sqrt" else {"power": exponent}
    (tmp_path / "net.onnx").write_bytes(model(nodes, {"x": (1, 4)}, constants=constants).SerializeToString())
    net = concord.compile(tmp_path / "net.onnx", preset="tiny")
    x = np.array([[4.0, 0.0, 0.0, 0.0], [0.0, 4.0, 0.0, 0.0]])
    with pytest.warns(concord.FlagWarning, match="root: DOMAIN, sqrt reads negative numbers in 2 of 2 samples"):
        assert (net.run(x)["y"].reshape(2, 4)[0, 1:] == 0).all()
    with pytest.raises(concord.FlagError):
        net.run(x, strict=True)
    net.save(tmp_path / "net")
    np.savez(tmp_path / "x.npz", x=x)
    code, output = run("run", tmp_path / "net", "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz", "--strict")
    assert code == 3 and "DOMAIN" in output and not (tmp_path / "y.npz").exists()


def test_vectors_that_a_normalisation_was_not_made_for():
    """One that was compiled with samples loses far quieter vectors, and that is told."""
    ones = {"s": np.ones(32, dtype=np.float32), "b": np.zeros(32, dtype=np.float32)}
    proto = model([node("LayerNormalization", ["x", "s", "b"], ["y"], axis=-1)], {"x": (1, 32)}, constants=ones)
    rng = np.random.default_rng(0)
    net = concord.compile(proto, preset="ecp5-85f", calibrate=rng.normal(0, 1, (40, 32)), quick=True)
    x = rng.normal(0, 1, (8, 32))
    net.run(x, strict=True)
    with pytest.raises(concord.FlagError, match=r"input x: INPUT_RANGE, about .* times as small as the samples"):
        net.run(x / 30, strict=True)
    x[::2] /= 300  # among others, which the rule for inputs takes for a mixture
    with pytest.raises(concord.FlagError, match=r"TABLE_CLAMPED, .* a normalisation met vectors far quieter") as caught:
        net.run(x, strict=True)
    assert {flag.flag for flag in caught.value.flags} == {"TABLE_CLAMPED"}
