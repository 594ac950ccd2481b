"""Data sets larger than memory: files are converted part by part, with the bytes that whole arrays give."""

import tracemalloc
import zipfile

import numpy as np
import pytest

from concord.datasets.convert import HEADER, Converter
from concord.datasets.files import FileConverter
from concord.image import Image
from concord.image.ports import Port
from concord.spec.memmap import RegionId
from concord.spec.presets import TINY
from concord.utils.npz import NpzReader
from support.commands import run, two_products
from support.onnx_models import model, node

RNG = np.random.default_rng(7)
#: Elements of a port of the network below: 20 inputs in vectors of 8.
_RUN = 24


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """A network that computes three samples in a run."""
    folder = two_products(tmp_path_factory.mktemp("net"))
    code, text = run("compile", folder / "net.onnx", "--preset", "ecp5-25f", "--batch", 3, "-o", folder / "net")
    assert code == 0, text
    return Converter.load(folder / "net")


def whole(converter, kind, path, result):
    """The same with arrays that are in memory, as :func:`numpy.savez` writes them."""
    with np.load(path) as file:
        arrays, several = dict(file), {}
    if kind != "to_natural":
        arrays = converter.to_native(arrays)
    if kind != "to_native":
        arrays, several = converter.to_natural(arrays)
    np.savez(result, **arrays)
    return {name: values.shape for name, values in arrays.items()}, several


def both(converter, kind, path, tmp_path, elements):
    """Bytes of the result part by part, after they were compared with those of whole arrays."""
    want = whole(converter, kind, path, tmp_path / "whole.npz")
    with (tmp_path / "parts.npz").open("wb") as file:
        found = getattr(FileConverter(converter, tmp_path, elements), kind)(path, file)
    assert found == want
    assert (tmp_path / "parts.npz").read_bytes() == (tmp_path / "whole.npz").read_bytes()
    return tmp_path / "parts.npz"


@pytest.mark.parametrize("samples", [1, 7, 12, 13, 24])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_parts_have_the_bytes_of_the_whole(network, tmp_path, samples, save):
    x = np.asfortranarray(RNG.normal(0, 3, (samples, 20))) if samples % 2 else RNG.normal(0, 3, (samples, 20))
    text = np.asfortranarray(RNG.choice(["a", "bc"], (samples, 2)))
    save(tmp_path / "x.npz", label=np.arange(samples), x=x.astype(np.float32), names=text, one=np.float64(3))
    for elements in (1, 2 * 3 * _RUN, 1 << 18):  # a run, two runs, everything
        native = both(network, "to_native", tmp_path / "x.npz", tmp_path, elements).rename(tmp_path / "native.npz")
        both(network, "to_natural", native, tmp_path, elements)
        both(network, "quantise", tmp_path / "x.npz", tmp_path, elements)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["native.npz", "parts.npz", "whole.npz", "x.npz"]


@pytest.mark.slow
def test_elements_in_several_blocks_are_counted_over_all_parts(tmp_path):
    (tmp_path / "net").mkdir()
    weight = RNG.normal(0, 0.3, (4, 2, 3, 3)).astype(np.float32)
    nodes = [node("Conv", ["x", "w"], ["y"], name="conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1])]
    proto = model(nodes, {"x": (1, 2, 6, 6)}, constants={"w": weight})
    (tmp_path / "net.onnx").write_bytes(proto.SerializeToString())
    assert run("compile", tmp_path / "net.onnx", "--preset", "ecp5-25f", "-o", tmp_path / "net")[0] == 0
    np.savez(tmp_path / "x.npz", x=RNG.normal(0, 1, (5, 2, 6, 6)) * 2.0 ** RNG.integers(-6, 3, (5, 2, 6, 6)))
    converter = Converter.load(tmp_path / "net")
    assert whole(converter, "quantise", tmp_path / "x.npz", tmp_path / "whole.npz")[1]["x"] > 5
    both(converter, "quantise", tmp_path / "x.npz", tmp_path, 1)


def wide(samples):
    """An image with a wide port, and a data set for it."""
    converter = Converter(Image(TINY, (2,), (), (Port("v", RegionId.WIDE, 0, (32, 6)),), ()))
    return converter, {"v": RNG.normal(size=(samples, 32, 6)), "label": np.zeros((samples, 300))}


def test_no_samples(tmp_path):
    converter, arrays = wide(0)
    np.savez(tmp_path / "x.npz", **arrays)
    with (tmp_path / "out.npz").open("wb") as file, pytest.raises(ValueError, match="v must have at least one sample"):
        FileConverter(converter, tmp_path).to_native(tmp_path / "x.npz", file)


@pytest.mark.slow
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_memory_does_not_grow_with_the_data(tmp_path, save, order):
    def peaks(samples):
        converter, arrays = wide(samples)
        arrays = {name: np.array(values, order=order) for name, values in arrays.items()}
        save(tmp_path / "x.npz", **arrays)
        files = FileConverter(converter, tmp_path, 8 * 32 * 8)
        for kind, given in (("to_native", "x"), ("to_natural", "native"), ("quantise", "x")):
            with (tmp_path / f"{'native' if kind == 'to_native' else 'out'}.npz").open("wb") as file:
                tracemalloc.start()
                getattr(files, kind)(tmp_path / f"{given}.npz", file)
                yield tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
        tracemalloc.start()
        whole(converter, "quantise", tmp_path / "x.npz", tmp_path / "whole.npz")
        yield tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()

    *few, little = peaks(64)
    *many, much = peaks(640)
    assert much > 5 * little, "arrays that are in memory show in this measure"
    for one, other in zip(few, many, strict=True):
        assert other < 1.5 * one, "ten times the data"


def damaged(path, name):
    """Turn a bit of an array's last byte over."""
    with zipfile.ZipFile(path) as file:
        info = file.getinfo(name + ".npy")
    data = bytearray(path.read_bytes())
    start = info.header_offset + 30 + len(info.filename) + int.from_bytes(data[info.header_offset + 28 :][:2], "little")
    data[start + info.compress_size - 1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["v", "label"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_damage_is_told_and_nothing_written(tmp_path, name, order):
    converter, arrays = wide(20)
    np.savez(tmp_path / "x.npz", **{key: np.array(values, order=order) for key, values in arrays.items()})
    damaged(tmp_path / "x.npz", name)
    converter.image.save(tmp_path / "npu.image")
    code, text = run("data", "to-native", tmp_path / "npu.image", tmp_path / "x.npz", "-o", tmp_path / "out.npz")
    assert code == 1 and f"x.npz must be an npz file of arrays of numbers: Bad CRC-32 for file '{name}.npy'" in text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["npu.image", "x.npz"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no array", "magic string"),
        (b"\x93NUMPY\x03\x00", "must have version 1.0 or 2.0 of the format npy, not \\(3, 0\\)"),
        (None, "is shorter or longer than an array \\(3, 4\\) of float64"),
        (np.array([{}]), "must hold numbers or texts, not Python's objects"),
    ],
)
def test_members_that_are_no_arrays(tmp_path, data, message):
    path = tmp_path / "x.npz"
    np.savez(path, v=np.zeros((3, 4)) if data is None or isinstance(data, bytes) else data)
    if data is None or isinstance(data, bytes):
        with zipfile.ZipFile(path) as file:
            old = file.read("v.npy")
        with zipfile.ZipFile(path, "w") as file:
            file.writestr("v.npy", old[:-8] if data is None else data)
    with pytest.raises(ValueError, match=f"x.npz must be an npz file of arrays of numbers: .*{message}"):
        NpzReader(path, tmp_path)
    (tmp_path / "text").write_text("text")
    with pytest.raises(ValueError, match="text must be an npz file of arrays, not a text file"):
        NpzReader(tmp_path / "text", tmp_path)


def test_errors_say_which_part(tmp_path):
    converter, arrays = wide(20)
    arrays["v"][13, 5, 2] = np.inf
    np.savez(tmp_path / "x.npz", **arrays)
    text = r"^in samples 12 to 15, counted from 12: v must hold finite numbers within .*, not inf at \[1, 5, 2\]"
    with (tmp_path / "out.npz").open("wb") as file, pytest.raises(ValueError, match=text):
        FileConverter(converter, tmp_path, 4 * 32 * 8).to_native(tmp_path / "x.npz", file)
    np.savez(tmp_path / "x.npz", v=np.zeros((20, 32, 7)))
    with (tmp_path / "out.npz").open("wb") as file, pytest.raises(ValueError, match=r"not \[20, 32, 7\]"):
        FileConverter(converter, tmp_path, 4 * 32 * 8).to_native(tmp_path / "x.npz", file)
    np.savez(tmp_path / "x.npz", v=np.zeros((20, 32, 6)))
    with (tmp_path / "out.npz").open("wb") as file, pytest.raises(ValueError, match=f"have the array '{HEADER}'"):
        FileConverter(converter, tmp_path).to_natural(tmp_path / "x.npz", file)
