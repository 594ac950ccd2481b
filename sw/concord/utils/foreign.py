"""Recognition of files and objects that were given for something else, and how to make ONNX of them."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

ONNX = "an ONNX model"
#: Bytes of a file that are looked at, beside the names in an archive.
_HEAD = 1 << 12

_TORCH = (
    "load it where it was made, and give the module to concord.compile(module, example=x), or export it with "
    'torch.onnx.export(module, (x,), "net.onnx"); weights alone must be loaded into their module first'
)
_KERAS = (
    "load it with Keras and KERAS_BACKEND=torch (pip install 'concord-npu[keras]'), and give the model to "
    'concord.compile(model), or export it: model.export("net.onnx", format="onnx")'
)
_TFLITE = (
    "give it to concord compile or concord.compile, which make ONNX of it (pip install 'concord-npu[tflite]'); the "
    "folder that they write has that as model.onnx"
)
_TF2ONNX = "convert it with the package tf2onnx: python -m tf2onnx.convert"
_SKLEARN = (
    "load it where it was made, and give the estimator to concord.compile(estimator) (pip install "
    "'concord-npu[sklearn]'), or export it with the package skl2onnx"
)
_WEIGHTS = f"it holds weights and no network: load them into the network that they belong to; then {_TORCH}"


@dataclass(frozen=True)
class Foreign:
    """Something that is no ONNX model.

    Parameters
    ----------
    kind : str
        What it is, with an article.
    remedy : str
        How to get an ONNX model.
    """

    kind: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.kind}; {self.remedy}"


#: Beginnings of files, and the byte from which they stand.
_BEGINNINGS = (
    (0, b"\x89HDF\r\n\x1a\n", Foreign("an HDF5 file, as Keras writes", _KERAS)),
    (4, b"TFL3", Foreign("a TensorFlow Lite model", _TFLITE)),
    (4, b"ORTM", Foreign("a model in the format of ONNX Runtime", "take the ONNX model that it was made from")),
    (0, b"GGUF", Foreign("a GGUF file of weights", _WEIGHTS)),
    (0, b"\x93NUMPY", Foreign("an array of NumPy (npy)", "the network is another file")),
    (0, b"version https://git-lfs", Foreign("a pointer of Git LFS, not the file itself", "run git lfs pull")),
    (0, b"\x1f\x8b", Foreign("a compressed file (gzip)", "unpack it with gunzip")),
    (0, b"\x78\x9c", Foreign("a compressed file (zlib), as joblib writes pickles", _SKLEARN)),
    (257, b"ustar", Foreign("an archive (tar)", "take the ONNX file out of it")),
    (0, b"\x7fELF", Foreign("a program", "take the ONNX model that it was made from")),
    (0, b"PK\x05\x06", Foreign("an empty archive", "export the model again")),
)
#: Beginning of pickles of PyTorch before version 1.6: a number.
_OLD_TORCH = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19"
#: Keys of fields that follow the version in an ONNX file: producer, domain, graph, operator sets, comment.
_BEHIND_VERSION = (b"\x12", b"\x1a", b"\x22", b"\x28", b"\x32", b"\x3a", b"\x42")
#: Words in names of archives.
_MEMBERS = (
    (
        "serialized_exported_program",
        Foreign("a program of torch.export (pt2)", f"load it with torch.export.load; then {_TORCH}"),
    ),
    (
        "/models/model.json",
        Foreign("a program of torch.export (pt2)", f"load it with torch.export.load; then {_TORCH}"),
    ),
    ("model.weights.h5", Foreign("a Keras model", _KERAS)),
    ("data.pkl", Foreign("a file of PyTorch (pt)", _TORCH)),
    (".npy", Foreign("an npz file of arrays", "the network is another file")),
)
#: Kinds of files that are known by the end of the name alone.
_ENDINGS = {
    ".pb": Foreign("a TensorFlow graph (pb)", f"{_TF2ONNX} --saved-model FOLDER --output net.onnx"),
    ".tflite": _BEGINNINGS[1][2],
    ".h5": _BEGINNINGS[0][2],
    ".hdf5": _BEGINNINGS[0][2],
    ".keras": Foreign("a Keras model", _KERAS),
    ".pt": Foreign("a file of PyTorch (pt)", _TORCH),
    ".pth": Foreign("a file of PyTorch (pth)", _TORCH),
    ".pt2": _MEMBERS[0][1],
    ".safetensors": Foreign("a safetensors file", _WEIGHTS),
    ".joblib": Foreign("a pickle of scikit-learn (joblib)", _SKLEARN),
    ".pkl": Foreign("a pickle", f"load it where it was made; of PyTorch, {_TORCH}; of scikit-learn, {_SKLEARN}"),
    ".mlmodel": Foreign("a Core ML model", "take the model that it was made from"),
    ".xml": Foreign("an XML file, as OpenVINO writes", "take the model that it was made from"),
}


def kind_of(path: Path) -> str:
    """Kind of a file, with an article, as far as that can be told."""
    if (foreign := of_file(path)) is not None:
        return foreign.kind
    with path.open("rb") as file:
        head = file.read(3)
    if path.suffix.lower() == ".onnx" or (head[:1] == b"\x08" and head[1:2] < b"\x20" and head[2:] in _BEHIND_VERSION):
        return ONNX
    return named.kind if (named := by_name(path)) is not None else "something else"


def of_file(path: Path) -> Foreign | None:
    """Kind of a file by its contents; ``None`` if it may be ONNX, or nothing is known of it."""
    if path.is_dir():
        if (path / "network.npz").exists():
            return Foreign("the folder of a compiled network", "it is compiled already, and can be run")
        if (path / "saved_model.pb").exists():
            return Foreign("a TensorFlow SavedModel", f"{_TF2ONNX} --saved-model {path} --output net.onnx")
        return Foreign("a folder", "name the file of the model")
    with path.open("rb") as file:
        head = file.read(_HEAD)
        return _of_contents(head, file, path.stat().st_size)


def of_bytes(data: bytes) -> Foreign | None:
    """Kind of a file, of which the contents are given; ``None`` if they may be ONNX, or nothing is known of them."""
    return _of_contents(data[:_HEAD], BytesIO(data), len(data))


def by_name(path: Path) -> Foreign | None:
    """Kind of a file that is no ONNX by the end of its name; ``None`` if that says nothing."""
    return _ENDINGS.get(path.suffix.lower())


def _of_contents(head: bytes, file: Any, size: int) -> Foreign | None:
    if not head:
        return Foreign("an empty file", "export the model again")
    for start, text, foreign in _BEGINNINGS:
        if head[start : start + len(text)] == text:
            return foreign
    if head.startswith(b"PK"):
        return _of_archive(file)
    if head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= size - 8:
        return _ENDINGS[".safetensors"]
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return _of_pickle(head)
    return _of_text(head)


def _of_pickle(head: bytes) -> Foreign:
    """Kind of a pickle, by the names in it: it is not unpickled, which would run what its author wrote."""
    if _OLD_TORCH in head[:32]:
        return _ENDINGS[".pth"]
    return _ENDINGS[".joblib" if b"sklearn." in head else ".pkl"]


def _of_archive(file: Any) -> Foreign:
    try:
        names = zipfile.ZipFile(file).namelist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return Foreign("a damaged archive (zip)", "copy or export it again")
    for word, foreign in _MEMBERS:
        if any(word in name or word in f"/{name}" for name in names):
            return foreign
    return Foreign("an archive (zip)", "take the ONNX file out of it")


def _of_text(head: bytes) -> Foreign | None:
    """A web page, XML or JSON; ONNX files begin with bytes that are no text."""
    text = head.lstrip().lower()
    if text.startswith((b"<!doctype html", b"<html")):
        return Foreign("a web page", "download the file itself")
    if text.startswith(b"<?xml"):
        return _ENDINGS[".xml"]
    if text.startswith((b'{"', b"{\n", b"{ ", b"{\r")):
        return Foreign("a JSON file", "take the ONNX model that belongs to it")
    try:
        words = head[:-3] if len(head) == _HEAD else head
        if all(c.isprintable() or c.isspace() for c in words.decode("utf-8")):
            return Foreign("a text file", "name the file of the model")
    except UnicodeDecodeError:
        pass
    return None


#: Frameworks whose objects :mod:`concord.frameworks` exports; a model of Keras may be one of PyTorch, too.
_FRAMEWORKS = frozenset({"keras", "sklearn", "torch"})
#: By top package of the classes of an object: what it is, and how to get ONNX.
_PACKAGES: dict[str, Callable[[str], Foreign]] = {
    "torch": lambda kind: Foreign(f"an object of PyTorch ({kind})", _TORCH),
    "sklearn": lambda kind: Foreign(f"an estimator of scikit-learn ({kind})", _SKLEARN),
    "keras": lambda kind: Foreign(f"a Keras model ({kind})", _KERAS),
    "tensorflow": lambda kind: Foreign(f"an object of TensorFlow ({kind})", _KERAS),
    "onnx_ir": lambda kind: Foreign(f"an object of onnx_ir ({kind})", "give onnx_ir.to_proto(model)"),
    "onnxscript": lambda kind: Foreign(f"an object of onnxscript ({kind})", "give model.to_model_proto()"),
    "onnxruntime": lambda kind: Foreign(f"an object of ONNX Runtime ({kind})", "give the file that it was made from"),
    "onnx": lambda kind: Foreign(f"an onnx.{kind}", "give an onnx.ModelProto: onnx.helper.make_model(graph)"),
    "numpy": lambda kind: Foreign(f"an array of NumPy ({kind})", "data are given as calibrate= or to run"),
    "xgboost": lambda kind: Foreign(
        f"a model of XGBoost ({kind})", "trees have no matrix products: they are not supported"
    ),
    "lightgbm": lambda kind: Foreign(
        f"a model of LightGBM ({kind})", "trees have no matrix products: they are not supported"
    ),
}


def is_tflite(data: bytes) -> bool:
    """True if the contents of a file, or their first bytes, are those of a TensorFlow Lite model."""
    return data[4:8] == b"TFL3"


def tflite_contents(model: Any) -> bytes | None:
    """The contents of a TensorFlow Lite file, of its name or of themselves; ``None`` of everything else."""
    if isinstance(model, bytes | bytearray | memoryview):
        return bytes(model) if is_tflite(bytes(model[:8])) else None
    if not isinstance(model, str | PathLike) or not Path(model).is_file():
        return None
    with Path(model).open("rb") as file:
        head = file.read(8)
        return head + file.read() if is_tflite(head) else None


def require_tflite(name: str) -> None:
    """``ValueError`` if what reads TensorFlow Lite files is not installed: how to install it."""
    if find_spec("tflite") is None:
        raise ValueError(f"{name} is a TensorFlow Lite model: pip install 'concord-npu[tflite]', which reads it")


def framework_of(model: Any) -> str:
    """Top package of an object that is a module, estimator or program of another framework; empty if it is none."""
    top = _top_package(model)
    return top if top in _FRAMEWORKS else ""


def _top_package(model: Any) -> str:
    """The first top package in the order of base classes that something is known of; empty if there is none."""
    tops = (base.__module__.partition(".")[0] for base in type(model).__mro__)
    return next((top for top in tops if top in _PACKAGES), "")


def of_object(model: Any) -> Foreign:
    """Kind of an object that is neither a file, nor bytes, nor an ``onnx.ModelProto``."""
    kind = type(model).__name__
    if top := _top_package(model):
        return _PACKAGES[top](kind)
    return Foreign(f"of the type {kind}", "give the name of an ONNX file, its bytes or an onnx.ModelProto")
