"""What files are that were given for an ONNX model or for samples, by contents and by name."""

import gzip
import io
import pickle
import struct
import warnings
import zipfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

from concord.frontend import import_model
from concord.frontend.load import serialized
from concord.utils import foreign
from support.frameworks import needs
from support.onnx_models import model, node


def archive(*names):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as opened:
        for name in names:
            opened.writestr(name, b"contents")
    return data.getvalue()


def npy():
    data = io.BytesIO()
    np.save(data, np.zeros(3))
    return data.getvalue()


def npz():
    data = io.BytesIO()
    np.savez(data, x=np.zeros(3))
    return data.getvalue()


HEADER = b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
FILES = {
    "net.h5": (b"\x89HDF\r\n\x1a\n" + bytes(90), "an HDF5 file, as Keras writes", "concord-npu[keras]"),
    "net.keras": (archive("metadata.json", "config.json", "model.weights.h5"), "a Keras model", "concord-npu[keras]"),
    "net.tflite": (b"\x1c\0\0\0TFL3" + bytes(90), "a TensorFlow Lite model", "concord-npu[tflite]"),
    "net.ort": (b"\x1c\0\0\0ORTM" + bytes(90), "a model in the format of ONNX Runtime", "made from"),
    "net.pt": (archive("net/data.pkl", "net/version", "net/data/0"), "a file of PyTorch (pt)", "torch.onnx.export"),
    "net.pt2": (archive("serialized_exported_program.json", "version"), "torch.export (pt2)", "torch.export.load"),
    "new.pt2": (archive("a/archive_format", "a/models/model.json"), "torch.export (pt2)", "torch.export.load"),
    "old.pth": (pickle.dumps({"a": 1}, protocol=2), "a pickle", "torch.onnx.export"),
    "net.joblib": (pickle.dumps({"a": 1}), "a pickle", "skl2onnx"),
    "estimator.pkl": (pickle.dumps(PurePosixPath).replace(b"pathlib", b"sklearn.svm"), "a pickle of scikit-learn",
                      "concord.compile(estimator)"),
    "older.pth": (pickle.dumps(0x1950A86A20F9469CFC6C, protocol=2) + pickle.dumps({}), "a file of PyTorch (pth)",
                  "concord.compile(module, example=x)"),
    "small.joblib": (zlib.compress(pickle.dumps([0] * 99)), "a compressed file (zlib)", "concord-npu[sklearn]"),
    "net.onnx.gz": (gzip.compress(b"x"), "a compressed file (gzip)", "gunzip"),
    "net.tar": (bytes(257) + b"ustar\x0000", "an archive (tar)", "take the ONNX file out of it"),
    "net.prototxt": (b'name: "net"\nlayer {\n' * 500, "a text file", "name the file of the model"),
    "notes.md": ("Größe\n".encode(), "a text file", "name the file of the model"),
    "net.safetensors": (struct.pack("<Q", len(HEADER)) + HEADER + bytes(4), "a safetensors file", "and no network"),
    "net.gguf": (b"GGUF" + bytes(40), "a GGUF file of weights", "weights and no network"),
    "x.npy": (npy(), "an array of NumPy (npy)", "another file"),
    "x.npz": (npz(), "an npz file of arrays", "another file"),
    "net.zip": (archive("net.onnx"), "an archive (zip)", "take the ONNX file out of it"),
    "half.zip": (archive("net.onnx")[:40], "a damaged archive (zip)", "again"),
    "net.xml": (b'<?xml version="1.0"?>\n<net name="x">', "an XML file", "made from"),
    "page.onnx": (b"\n<!DOCTYPE html><html>", "a web page", "download the file itself"),
    "lfs.onnx": (b"version https://git-lfs.github.com/spec/v1\noid", "a pointer of Git LFS", "git lfs pull"),
    "net.json": (b'{"model": 1}', "a JSON file", "belongs to it"),
    "nothing.onnx": (b"", "an empty file", "export the model again"),
}  # fmt: skip
#: Protocol buffers of others have nothing that ONNX has not: their names say it.
NAMED = {"frozen.pb": (b"\x0a\x0b\x12\x05input", "a TensorFlow graph (pb)", "tf2onnx"),
         "net.mlmodel": (b"\x0a\x00\x12\x02\x08\x01", "a Core ML model", "made from")}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("other", [False, True], ids=["its name", "another name"])
def test_contents_say_what_a_file_is(name, other, tmp_path):
    data, kind, remedy = FILES[name]
    path = tmp_path / ("net.onnx" if other else name)
    path.write_bytes(data)
    for read in (serialized, import_model, lambda path: import_model(path.read_bytes())):
        with pytest.raises(ValueError, match=r"must be an ONNX model, not ") as caught:
            read(path)
        assert kind in str(caught.value) and remedy in str(caught.value)
    assert kind in foreign.kind_of(path)


@pytest.mark.parametrize("name", NAMED)
def test_names_say_what_a_file_is(name, tmp_path):
    data, kind, remedy = NAMED[name]
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(ValueError, match="must be an ONNX model, not ") as caught:
        serialized(path)
    assert kind in str(caught.value) and remedy in str(caught.value)


def test_folders(tmp_path):
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"\x08\x01")
    with pytest.raises(ValueError, match=r"not a TensorFlow SavedModel; .*--saved-model"):
        serialized(tmp_path / "saved")
    with pytest.raises(ValueError, match="not a folder; name the file of the model"):
        serialized(tmp_path)


@pytest.mark.parametrize("name", ["net.onnx", "net.pb", "net.pt", "net"])
def test_an_onnx_model_is_taken_whatever_its_name_is(name, tmp_path):
    proto = model([node("Relu", ["x"], ["y"])], {"x": (1, 4)})
    path = tmp_path / name
    path.write_bytes(proto.SerializeToString())
    assert import_model(path).outputs == import_model(str(path)).outputs == import_model(serialized(path)).outputs
    assert foreign.kind_of(path) == "an ONNX model" and foreign.of_bytes(path.read_bytes()) is None


def test_what_is_damaged_is_said_to_be_invalid(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(b"\x08\x08\x12\x03ab")
    with pytest.raises(ValueError, match=r"net\.onnx must be valid ONNX"):
        serialized(path)


class Estimator:
    """As scikit-learn has them."""


Estimator.__module__ = "sklearn.neural_network._multilayer_perceptron"


class Program:
    """What exporters return."""

    def __init__(self, proto):
        self.model_proto = proto


def test_objects(tmp_path):
    proto = model([node("Relu", ["x"], ["y"])], {"x": (1, 4)})
    for given in (proto, Program(proto), proto.SerializeToString(), bytearray(proto.SerializeToString())):
        assert serialized(given) == proto.SerializeToString()
    assert import_model(Program(proto)).outputs == ["y"]
    cases = [
        (Estimator(), r"model must be an ONNX model, not an estimator of scikit-learn \(Estimator\); .*skl2onnx"),
        (proto.graph, r"not an onnx\.GraphProto; give an onnx\.ModelProto"),
        (np.zeros(3), "not an array of NumPy"),
        (None, "not of the type NoneType; give the name of an ONNX file, its bytes or an onnx.ModelProto"),
        (Program(3), "not of the type Program"),
        (Path, "not of the type type"),
    ]
    for given, message in cases:
        for read in (serialized, import_model):
            with pytest.raises(TypeError, match=message):
                read(given)


@needs("sklearn")
def test_estimators():
    from sklearn import neural_network as neural

    with pytest.raises(TypeError, match=r"not an estimator of scikit-learn \(MLPClassifier\); .*skl2onnx"):
        serialized(neural.MLPClassifier())


def of_pytorch():
    """A module, and what PyTorch makes of it: a script and a program."""
    import torch

    net, x = torch.nn.Sequential(torch.nn.Linear(3, 2)), torch.zeros(1, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch, net, torch.jit.trace(net, x), torch.export.export(net, (x,))


@needs("torch")
def test_objects_of_pytorch():
    for given in of_pytorch()[1:]:
        with pytest.raises(
            TypeError, match=r"not an object of PyTorch \(\w+\); .*concord\.compile\(module, example=x\), or export"
        ):
            serialized(given)


@needs("torch")
def test_files_of_pytorch(tmp_path):
    torch, net, script, program = of_pytorch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.save(net.state_dict(), tmp_path / "net.pt")
        script.save(tmp_path / "script.pt")
        torch.export.save(program, tmp_path / "net.pt2")
    for name in ("net.pt", "script.pt", "net.pt2"):
        with pytest.raises(ValueError, match=r"torch\.onnx\.export"):
            serialized(tmp_path / name)
