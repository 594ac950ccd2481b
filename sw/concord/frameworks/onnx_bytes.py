"""The one way from what a user has to the contents of an ONNX file."""

from __future__ import annotations

from os import PathLike
from typing import Any

from concord.frameworks.exported import SOURCE
from concord.frontend.load import serialized
from concord.utils import foreign


def onnx_bytes(model: Any, example: Any = None, samples: Any = None) -> bytes:
    """The contents of an ONNX file with a network.

    Parameters
    ----------
    model : str, Path, bytes, ModelProto, or an object of another framework
        The network: of ONNX, or a TensorFlow Lite file or its contents. The type of an object says which framework it
        is of; nothing else is imported.
    example : array, tuple of arrays, or mapping of str to array, optional
        What the network is called with, ``[samples, *shape]`` by input. A module of PyTorch needs it; the first sample
        is taken.
    samples : array, or mapping of str to array, optional
        Taken where an example is needed and there is none.

    Raises
    ------
    TypeError
        If the model is none of these: what it is, and how to export it.
    ValueError
        If it cannot be exported, an extra is not installed, or a file is no ONNX: with what to do.
    """
    match foreign.framework_of(model):
        case "keras":
            from concord.frameworks.from_keras import exported_keras

            return exported_keras(model, example)
        case "sklearn":
            from concord.frameworks.from_sklearn import exported_sklearn

            return exported_sklearn(model)
        case "torch":
            from concord.frameworks.from_torch import exported_torch

            return exported_torch(model, example, samples)
    if example is not None:
        raise ValueError(
            f"example must be left out, as the model says what its inputs are, not {type(example).__name__}"
        )
    if (data := foreign.tflite_contents(model)) is not None:
        return _exported_tflite(data, str(model) if isinstance(model, str | PathLike) else "the model")
    return serialized(model)


def _exported_tflite(data: bytes, name: str) -> bytes:
    foreign.require_tflite(name)
    from concord.frameworks.from_tflite import exported_tflite

    return exported_tflite(data, name)


def source_of(model: bytes) -> str:
    """Origin of a model in words: from which framework and how it was exported, or who wrote the file."""
    import onnx

    if foreign.is_tflite(model):
        return "TensorFlow Lite"
    proto = onnx.load_model_from_string(model)
    for item in proto.metadata_props:
        if item.key == SOURCE:
            return str(item.value)
    producer = " ".join(filter(None, (proto.producer_name, proto.producer_version)))
    return f"ONNX of {producer}" if producer else "ONNX"
