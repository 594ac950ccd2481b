"""Trained networks and what they are measured on.

Networks and data lie in the folder that the environment variable ``CONCORD_DATA`` names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.compiler.calibration.calibration import largest_elements
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Graph
from concord.utils.arrays import FloatArray

Labels = npt.NDArray[Any]
#: Inputs by name -> outputs by name.
Forward = Callable[[dict[str, FloatArray]], dict[str, FloatArray]]
#: Samples that formats are chosen with, if there are as many: at least these, evenly spread over what there is.
CALIBRATION = 100


@dataclass(frozen=True)
class Task:
    """A trained network with recorded inputs.

    Parameters
    ----------
    model, data : str
        Files without their suffixes.
    inputs : callable
        Arrays of the data file, the one with the samples -> inputs of the network, samples along the first axis.
    score : callable
        (results, inputs, labels) -> share of correct samples, or another measure between 0 and 1.
    batch : int
        Samples per run of the program.
    samples, calibration : str
        Arrays of the data file: what is measured, and what formats are chosen with.
    labels : callable
        Arrays of the data file -> what ``score`` compares with.
    state : tuple of pairs
        Names of an input and an output: the samples are a stream, and each reads what the one before left, the first
        one zeros.
    """

    model: str
    data: str
    inputs: Callable[[Any, FloatArray], FloatArray]
    score: Callable[[FloatArray, FloatArray, Labels], float]
    batch: int = 1
    samples: str = "x"
    calibration: str = "x_calib"
    labels: Callable[[Any], Labels] = lambda data: np.asarray(data["y"])
    state: tuple[tuple[str, str], ...] = ()


def top_one(results: FloatArray, _: FloatArray, labels: Labels) -> float:
    """Share of samples whose largest output is the label."""
    return float(np.mean(largest_elements(results) == labels))


def area_under_curve(results: FloatArray, inputs: FloatArray, labels: Labels) -> float:
    """Area under the ROC curve of the mean squared error of reconstruction per clip."""
    scores = ((results - inputs) ** 2).reshape(len(labels), -1).mean(axis=1)
    wrong, right = scores[labels == 1], scores[labels == 0]
    pairs = wrong[:, None] - right[None]
    return float(np.mean((pairs > 0) + 0.5 * (pairs == 0)))


def binary_accuracy(results: FloatArray, _: FloatArray, labels: Labels) -> float:
    """Share of samples whose probability is on the right side of one half."""
    return float(np.mean((results.reshape(-1) > 0.5) == labels))


def _windows(_: Any, clips: FloatArray) -> FloatArray:
    """Five consecutive frames each, flattened."""
    count = clips.shape[1] - 4
    return np.concatenate([clips[:, k : k + count] for k in range(5)], axis=2).reshape(-1, 5 * clips.shape[2])


def _scaled(data: Any, x: FloatArray) -> FloatArray:
    """The numbers that codes stand for."""
    return np.asarray((x - data["zero_point"]) * np.float64(data["scale"]))


def _plain(_: Any, x: FloatArray) -> FloatArray:
    return x


def _chunks(_: Any, pcm: FloatArray) -> FloatArray:
    """512 samples of sound each, after the last 64 of the chunk before."""
    sound = np.concatenate([np.zeros(64), pcm / 32768])
    return np.stack([sound[512 * k : 512 * k + 576] for k in range(len(pcm) // 512)])


_digits = partial(Task, data="digits", score=top_one, calibration="x_train")

TASKS = (
    Task("ic_resnet8", "ic_cifar10", _scaled, top_one),
    Task("kws_dscnn", "kws_mfcc_int8", _scaled, top_one),
    Task("vww_mobilenetv1_025", "vww_coco", _scaled, top_one),
    Task("ad_fc_autoencoder", "ad_toycar", _windows, area_under_curve, batch=4),
    Task("sww_dscnn1d", "sww_logmel", _scaled, top_one),
    Task("kws_lstm118", "kws_mfcc_f32", _scaled, top_one),
    Task("kws_gru154", "kws_mfcc_f32", lambda d, x: _scaled(d, x)[:, ::2], top_one),
    Task("kws_crnn", "kws_mfcc_f32", lambda d, x: _scaled(d, x)[:, None], top_one),
    Task("mnist_cnn", "mnist", _scaled, top_one),
    _digits("digits_mlp", inputs=_scaled),
    _digits("digits_cnn", inputs=lambda d, x: _scaled(d, x)[:, None]),
    _digits("digits_lstm64", inputs=_scaled),
    _digits("digits_gru64", inputs=_scaled),
    _digits("digits_transformer", inputs=_scaled),
    Task("silero_vad_16k", "silero_speech", _chunks, binary_accuracy, samples="pcm", calibration="pcm",
         labels=lambda d: d["ref_prob"] > 0.5, state=(("state", "stateN"),)),
    Task("silero_vad_16k_core", "silero_speech", _plain, binary_accuracy, samples="core_spec", calibration="core_spec",
         labels=lambda d: d["core_ref_prob"] > 0.5, state=(("h", "hn"), ("c", "cn"))),
)  # fmt: skip


def folder() -> Path | None:
    """Folder of networks and data, if that is known."""
    path = Path(os.environ.get("CONCORD_DATA", ""))
    return path if (path / "models").is_dir() else None


def load(task: Task, data: Path) -> tuple[Graph, FloatArray, Labels]:
    """The network of a task, its inputs and labels."""
    with np.load(data / "data" / f"{task.data}.npz") as arrays:
        graph, labels = import_model(data / "models" / f"{task.model}.onnx"), task.labels(arrays)
        return graph, _inputs(task, arrays, task.samples), labels


def _inputs(task: Task, arrays: Any, name: str) -> FloatArray:
    return task.inputs(arrays, arrays[name].astype(np.float64))


def run(
    task: Task, graph: Graph, forward: Forward, inputs: FloatArray
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Compute all samples, at once or, if they are a stream, one after the other.

    Parameters
    ----------
    forward : callable
        Inputs by name -> outputs by name, samples along the first axis.
    inputs : array
        Of the task.

    Returns
    -------
    inputs, outputs : dict
        By name, with the states that every sample has read.
    """
    if not task.state:
        (name,) = graph.inputs
        return {name: inputs}, forward({name: inputs})
    (name,) = set(graph.inputs) - {read for read, _ in task.state}
    state = {read: np.zeros((1, *graph.sample_shape(read))) for read, _ in task.state}
    step_inputs, results = [], []
    for sample in inputs:
        step_inputs.append({name: sample[None], **state})
        results.append(forward(step_inputs[-1]))
        state = {read: results[-1][left] for read, left in task.state}
    return _joined(step_inputs), _joined(results)


def _joined(parts: list[dict[str, FloatArray]]) -> dict[str, FloatArray]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def calibration(task: Task, graph: Graph, data: Path) -> dict[str, FloatArray]:
    """Inputs that formats are chosen with: none of those that are measured, but some of a stream.

    States of a stream are as in double precision.
    """
    with np.load(data / "data" / f"{task.data}.npz") as arrays:
        inputs = _inputs(task, arrays, task.calibration)
    every = max(1, len(inputs) // CALIBRATION)
    if not task.state:
        inputs, every = inputs[::every], 1
    step_inputs, _ = run(task, graph, partial(execute.run, graph), inputs)
    return {name: values[::every] for name, values in step_inputs.items()}
