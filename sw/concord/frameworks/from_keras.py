"""Models of Keras 3: with the backend ``torch`` they are modules of PyTorch; others are exported by Keras."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from concord.frameworks.exported import finished, first_line, quiet

_REMEDY = (
    "save it, and load it where KERAS_BACKEND=torch is set before Keras is imported "
    "(pip install 'concord-npu[keras]'), "
    'or export it where it was made: model.export("net.onnx", format="onnx")'
)


def exported_keras(model: Any, example: Any = None) -> bytes:
    """The contents of an ONNX file of a model of Keras.

    Parameters
    ----------
    model : keras.Model
        Built, so that its inputs have shapes; with the backend ``torch`` no other package is needed.
    example : array, tuple or mapping of arrays, optional
        Inputs ``[samples, *shape]`` of a model that leaves more open than the batch.

    Raises
    ------
    ValueError
        If it cannot be exported.
    """
    import keras

    kind = type(model).__name__
    source = f"Keras {keras.__version__} on {keras.config.backend()}: {kind}"
    if not isinstance(model, keras.Model):
        raise ValueError(f"model must be a keras.Model, not a {kind}; put it into keras.Sequential, with keras.Input")
    if keras.config.backend() == "torch":
        from concord.frameworks.from_torch import call_of, evaluated, exported_program

        names = [tensor.name for tensor in getattr(model, "inputs", None) or ()]
        if isinstance(example, Mapping):
            example = tuple(example[name] for name in names if name in example)
        arguments, _ = call_of(model, _inputs(model) if example is None else example)
        with evaluated(model):
            proto = exported_program(model, ([*arguments],) if len(arguments) > 1 else arguments, names=names)
        return finished(proto, f"{source}, exported by torch.export in evaluation mode")
    import onnx

    with TemporaryDirectory() as folder:
        try:
            with quiet():
                model.export(Path(folder) / "net.onnx", format="onnx", verbose=False)
        except Exception as error:  # of several packages, most of which are missing as a rule
            raise ValueError(
                f"{kind} cannot be exported on {keras.config.backend()}: {first_line(error)}; {_REMEDY}"
            ) from error
        return finished(onnx.load(Path(folder) / "net.onnx"), f"{source}, exported by Keras")


def _inputs(model: Any) -> Any:
    """An example of zeros, of the shapes that the model has."""
    inputs = getattr(model, "inputs", None)
    if not inputs:
        raise ValueError(
            "model must be built, so that its inputs have shapes: call it once, begin it with keras.Input, or give "
            "example=x"
        )
    shapes = [tuple(tensor.shape[1:]) for tensor in inputs]
    if any(size is None for shape in shapes for size in shape):
        raise ValueError(f"inputs {shapes} of the model must be fixed but for the batch; give example=x")
    return tuple(np.zeros((1, *shape), np.float32) for shape in shapes)
