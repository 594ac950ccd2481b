"""Train the demonstration network on the handwritten digits bundled with scikit-learn and export it as ONNX.

Needs the ``demo`` extra. The seed, the split and the optimiser are fixed, and the settings are stored in the model, so
a second run reuses the file if nothing has changed.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from concord.utils.arrays import FloatArray, Ints

#: Greatest pixel value of the data set; images are scaled to 0..1.
PIXEL_MAX = 16.0
SETTINGS_KEY = "concord.train"


@dataclass(frozen=True)
class TrainSettings:
    """Everything that decides the trained network.

    Parameters
    ----------
    hidden : tuple of int
        Widths of the hidden layers.
    seed : int
        Seed of the split and of the training.
    epochs : int
        Passes over the training images.
    decay : float
        L2 penalty on the weights.
    test_images, calibration_images : int
        Sizes of the two stratified splits that are kept from training.
    """

    hidden: tuple[int, ...] = (64, 32)
    seed: int = 7
    epochs: int = 120
    decay: float = 1e-3
    test_images: int = 450
    calibration_images: int = 150


#: Of the demonstration.
SETTINGS = TrainSettings()


@dataclass(frozen=True)
class Digits:
    """The handwritten digits, split: images are rows of 64 values in 0..1."""

    x_train: FloatArray
    y_train: Ints
    x_calibration: FloatArray
    y_calibration: Ints
    x_test: FloatArray
    y_test: Ints


def load_digits(settings: TrainSettings = SETTINGS) -> Digits:
    """Return the data set in a stratified split that depends on the seed alone."""
    from sklearn.datasets import load_digits as load
    from sklearn.model_selection import train_test_split

    x, y = load(return_X_y=True)
    x, y = x / PIXEL_MAX, y.astype(np.int64)
    x, x_test, y, y_test = train_test_split(
        x, y, test_size=settings.test_images, stratify=y, random_state=settings.seed
    )
    x, x_cal, y, y_cal = train_test_split(
        x, y, test_size=settings.calibration_images, stratify=y, random_state=settings.seed
    )
    return Digits(x, y, x_cal, y_cal, x_test, y_test)


def train(digits: Digits, settings: TrainSettings) -> list[tuple[FloatArray, FloatArray]]:
    """Return weights (outputs by inputs) and biases of the layers of the trained network."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPClassifier

    model = MLPClassifier(
        hidden_layer_sizes=settings.hidden,
        alpha=settings.decay,
        learning_rate_init=2e-3,
        batch_size=64,
        max_iter=settings.epochs,
        random_state=settings.seed,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a fixed number of passes is meant
        model.fit(digits.x_train, digits.y_train)
    return [(w.T.copy(), b.copy()) for w, b in zip(model.coefs_, model.intercepts_, strict=True)]


def export_onnx(layers: list[tuple[FloatArray, FloatArray]], settings: TrainSettings, path: Path) -> None:
    """Write the network: Flatten, then Gemm and Relu in turn, the last layer without Relu."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes = [helper.make_node("Flatten", ["image"], ["flat"], name="flatten", axis=1)]
    constants = []
    value = "flat"
    for k, (weight, bias) in enumerate(layers, 1):
        constants += [
            numpy_helper.from_array(weight.astype(np.float32), f"fc{k}.weight"),
            numpy_helper.from_array(bias.astype(np.float32), f"fc{k}.bias"),
        ]
        last = k == len(layers)
        out = "logits" if last else f"fc{k}_out"
        nodes.append(helper.make_node("Gemm", [value, f"fc{k}.weight", f"fc{k}.bias"], [out], name=f"fc{k}", transB=1))
        value = out
        if not last:
            nodes.append(helper.make_node("Relu", [out], [f"relu{k}_out"], name=f"relu{k}"))
            value = f"relu{k}_out"
    graph = helper.make_graph(
        nodes,
        "digits_mlp",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", layers[-1][0].shape[0]])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="concord")
    model.ir_version = 10
    helper.set_model_props(model, {SETTINGS_KEY: json.dumps(asdict(settings))})
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)


def is_current(path: Path, settings: TrainSettings) -> bool:
    """True if ``path`` holds a network trained with exactly these settings."""
    import onnx

    if not path.exists():
        return False
    props = {item.key: item.value for item in onnx.load(path).metadata_props}
    return props.get(SETTINGS_KEY) == json.dumps(asdict(settings))


def ensure_model(path: Path, digits: Digits, settings: TrainSettings = SETTINGS) -> bool:
    """Trains and exports unless ``path`` is current; True if it was trained now."""
    if is_current(path, settings):
        return False
    export_onnx(train(digits, settings), settings, path)
    return True
