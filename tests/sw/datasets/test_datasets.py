"""Data sets in the NPU's native form and back."""

import numpy as np
import pytest

from concord.datasets.convert import HEADER, Converter, DataError
from concord.host import connect
from concord.image import Image, Port
from concord.image.words import to_bytes, unpack_words
from concord.networks.folder import load_image, load_package
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from support.commands import run, two_products
from support.onnx_models import model, node

RNG = np.random.default_rng(3)


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A compiled network whose inputs are in one place each."""
    folder = two_products(tmp_path_factory.mktemp("net"))
    code, text = run("compile", folder / "net.onnx", "--preset", "ecp5-25f", "-o", folder / "net")
    assert code == 0, text
    return folder


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """A compiled convolution whose windows overlap."""
    folder = tmp_path_factory.mktemp("windows")
    weight = RNG.normal(0, 0.3, (4, 2, 3, 3)).astype(np.float32)
    proto = model(
        [node("Conv", ["x", "w"], ["y"], name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
        {"x": (1, 2, 6, 6)},
        constants={"w": weight},
    )
    (folder / "net.onnx").write_bytes(proto.SerializeToString())
    code, text = run("compile", folder / "net.onnx", "--preset", "ecp5-25f", "-o", folder / "net")
    assert code == 0, text
    return folder / "net"


def words_of(converter, port, samples):
    """What the driver writes for the first sample."""
    values = converter.arrangement.pack(samples)[port.name][0]
    config = converter.image.config
    layout = config.wide_word if port.region == RegionId.WIDE else config.narrow_word
    return unpack_words(layout, to_bytes(port.encode(values, config), layout.nbytes))


@pytest.mark.slow
def test_native_is_what_the_driver_writes(network, windows):
    for folder, shape in ((network / "net", (20,)), (windows, (2, 6, 6))):
        converter = Converter.load(folder)
        samples = {"x": RNG.normal(0, 3, (5, *shape))}
        native = converter.to_native(samples)
        (port,) = converter.image.inputs
        words = words_of(converter, port, samples)
        assert port.region is RegionId.NARROW
        np.testing.assert_array_equal(native["x.mant"][0], words["mant"])
        np.testing.assert_array_equal(native["x.exp"][0], words["exp"])


def test_there_and_back(network):
    converter = Converter.load(network / "net")
    samples = {"x": RNG.normal(0, 3, (7, 20)), "label": np.arange(7)}
    native = converter.to_native(samples)
    natural, several = converter.to_natural(native)
    assert not several
    assert natural["label"].tolist() == list(range(7))
    error = np.abs(natural["x"] - samples["x"])
    blocks = np.pad(np.abs(samples["x"]), ((0, 0), (0, 4))).reshape(7, 3, 8).max(axis=-1)
    assert (error > 0).any() and (error <= np.repeat(blocks, 8, axis=1)[:, :20] * 2.0**-7).all()
    again = converter.to_native(natural)
    for name, values in native.items():
        np.testing.assert_array_equal(again[name], values)


def test_networks_have_the_same_results_with_it(network):
    package = load_package(network / "net")
    samples = {"x": RNG.normal(0, 3, (4, 20))}
    converter = Converter.load(network / "net")
    quantised, _ = converter.to_natural(converter.to_native(samples))
    with connect("emulator", package.config) as device:
        device.load(package.image)
        np.testing.assert_array_equal(package.run(device, samples)["y"], package.run(device, quantised)["y"])


def test_overlapping_windows(windows):
    converter = Converter.load(windows)
    samples = {"x": RNG.normal(0, 1, (2, 2, 6, 6)) * 2.0 ** RNG.integers(-6, 3, (2, 2, 6, 6))}
    native = converter.to_native(samples)
    natural, several = converter.to_natural(native)
    order = converter.arrangement.inputs["x"]
    (vectors, _) = order.shape
    assert 0 < several["x"] < samples["x"].size
    for run_, element in ((0, 0), (0, 17), (1, 40), (1, 71)):
        places = [divmod(int(at), 8) for at in np.flatnonzero(order.reshape(-1) == element)]
        exps = [native["x.exp"][run_, vector] for vector, _ in places]
        values = {
            float(native["x.mant"][run_, vector, lane]) * 2.0**exp
            for (vector, lane), exp in zip(places, exps, strict=True)
            if exp == min(exps)
        }
        assert {float(natural["x"][run_].reshape(-1)[element])} == values
    assert vectors == native["x.exp"].shape[1]


def test_outputs(network):
    converter = Converter.load(network / "net")
    (port,) = converter.image.outputs
    bits = RNG.integers(0, 0x7C00, (3, port.vectors(converter.image.config), 8)).astype(np.uint16)
    natural, _ = converter.to_natural({HEADER: converter.header(3, ["y"]), "y": bits})
    want = converter.arrangement.unpack({"y": bits.view(np.float16).astype(float)}, 3)["y"]
    np.testing.assert_array_equal(natural["y"], want)


def test_wide_ports_of_images():
    port = Port("v", RegionId.WIDE, 0, (3, 6))
    converter = Converter(Image(TINY, (2,), (), (port,), ()))
    values = np.round(RNG.normal(size=(2, 3, 6)), 3)
    native = converter.to_native({"v": values})
    assert native["v"].shape == (2, 6, 4) and native["v"].dtype == np.uint16
    assert not native["v"].reshape(2, 3, 8)[..., 6:].any()
    natural, _ = converter.to_natural(native)
    np.testing.assert_array_equal(natural["v"], values.astype(np.float16).astype(float))


@pytest.mark.slow
def test_samples_that_do_not_fill_a_run(tmp_path):
    folder = two_products(tmp_path)
    code, text = run("compile", folder / "net.onnx", "--preset", "ecp5-25f", "--batch", 3, "-o", folder / "net")
    assert code == 0, text
    converter = Converter.load(folder / "net")
    samples = {"x": RNG.integers(-9, 9, (4, 20)).astype(float)}
    native = converter.to_native(samples)
    assert len(native["x.exp"]) == 2
    np.testing.assert_array_equal(converter.to_natural(native)[0]["x"], samples["x"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({HEADER: None}, "must be of the native form and have the array 'concord'"),
        ({HEADER: np.array("{}")}, "must be of the native form"),
        ({HEADER: np.array('{"fingerprint": "0", "samples": 4, "ports": []}')}, "must be for an NPU with fingerprint"),
        ({HEADER: np.array('{"fingerprint": "0", "samples": -4, "ports": []}')}, "must be counted from one on, not -4"),
        ({HEADER: np.array('{"fingerprint": "0", "samples": 0, "ports": []}')}, "must be counted from one on, not 0"),
        ({"x.exp": None}, r"must have the arrays \['x.exp'\]"),
        ({"x.mant": np.full((4, 3, 8), 128)}, "mantissas of 'x' must be within ±127"),
        ({"x.exp": np.full((4, 3), 40)}, r"exponents of 'x' must be in -15\.\.9"),
        ({"x.exp": np.zeros((4, 2), int)}, r"array 'x.exp' must have shape \(4, 3\) .* not \(4, 2\)"),
        ({"x.exp": np.zeros((3, 3), int)}, r"array 'x.exp' must have shape \(4, 3\) .* of 4 samples\), not \(3, 3\)"),
        ({"x.mant": np.zeros((5, 3, 8), int), "x.exp": np.zeros((5, 3), int)}, r"of 4 samples\), not \(5, 3, 8\)"),
        ({"x.mant": np.zeros((4, 3, 8))}, "must have integers by run and vector, not float64"),
    ],
)
def test_what_is_no_native_form(network, change, message):
    converter = Converter.load(network / "net")
    arrays = converter.to_native({"x": np.zeros((4, 20))}) | change
    with pytest.raises(DataError, match=message):
        converter.to_natural({name: values for name, values in arrays.items() if values is not None})


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({}, "data must have the inputs"),
        ({"x": np.zeros((4, 20)), "x.exp": np.zeros(3)}, r"must not be called \['x.exp'\]"),
        ({"x": np.zeros((4, 21))}, "must have the shape"),
        ({"x": np.zeros((0, 20))}, "must have at least one sample"),
        ({"x": np.full((4, 20), np.nan)}, "must hold finite numbers"),
    ],
)
def test_samples_that_do_not_fit(network, arrays, message):
    with pytest.raises(ValueError, match=message):
        Converter.load(network / "net").to_native(arrays)


def test_commands(network, windows, tmp_path):
    native, natural, quantised = (tmp_path / f"{name}.npz" for name in ("native", "natural", "quantised"))
    net, samples = network / "net", network / "xy.npz"
    npu = load_image(net).config.name
    code, text = run("data", "to-native", net, samples, "-o", native)
    first, second = text.splitlines()
    assert code == 0 and first == f"{samples}: in the native form of {npu}, as its memories hold them"
    assert second.startswith(f"{native}: y (300,), x.mant (300, ") and ", x.exp (300, " in second
    code, text = run("data", "to-natural", net, native, "-o", natural)
    first, second = text.splitlines()
    assert code == 0 and first == f"{native}: from the native form of {npu} to the shapes of {net}"
    assert second == f"{natural}: y (300,), x (300, 20)"
    code, text = run("data", "quantise", network / "net", network / "xy.npz", "-o", quantised)
    assert code == 0 and text == (
        f"{samples}: rounded as {npu} rounds its inputs, shapes unchanged\n{quantised}: y (300,), x (300, 20)\n"
    )
    with np.load(natural) as one, np.load(quantised) as other:
        np.testing.assert_array_equal(one["x"], other["x"])
    samples = tmp_path / "x.npz"
    np.savez(samples, x=RNG.normal(size=(2, 2, 6, 6)))
    code, text = run("data", "quantise", windows, samples, "-o", quantised)
    assert code == 0 and "of 144 elements are in several blocks" in text
    code, text = run("data", "to-native", windows, samples, "-o", tmp_path / "x.txt")
    assert code == 1 and "must be an npz file" in text
