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

from concord.compiler.formats import largest_elements
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Floats, Graph

Labels = npt.NDArray[Any]
#: Inputs by name -> outputs by name.
Step = Callable[[dict[str, Floats]], dict[str, Floats]]
#: Samples that formats are chosen with: the first ones; at least as many of a stream, evenly spread.
CALIBRATION = 100


@dataclass(frozen=True)
class Task:
    """A trained network with recorded inputs.

    Parameters
    ----------
    model, data : str
        Files without their suffixes.
    inputs : callable
        Arrays of the data file -> inputs of the network, samples along the first axis.
    score : callable
        (results, inputs, labels) -> share of correct samples, or another measure between 0 and 1.
    batch : int
        Samples per run of the program.
    calibration : callable, optional
        Arrays of the data file -> other inputs, with which formats are chosen; else that is done with the first inputs.
    labels : callable
        Arrays of the data file -> what ``score`` compares with.
    state : tuple of pairs
        Names of an input and an output: the samples are a stream, and each reads what the one before left, the first
        one zeros.
    """

    model: str
    data: str
    inputs: Callable[[Any], Floats]
    score: Callable[[Floats, Floats, Labels], float]
    batch: int = 1
    calibration: Callable[[Any], Floats] | None = None
    labels: Callable[[Any], Labels] = lambda data: np.asarray(data["y"])
    state: tuple[tuple[str, str], ...] = ()


def top_one(results: Floats, _: Floats, labels: Labels) -> float:
    """Share of samples whose largest output is the label."""
    return float(np.mean(largest_elements(results) == labels))


def area_under_curve(results: Floats, inputs: Floats, labels: Labels) -> float:
    """Area under the ROC curve of the mean squared error of reconstruction per clip."""
    scores = ((results - inputs) ** 2).reshape(len(labels), -1).mean(axis=1)
    wrong, right = scores[labels == 1], scores[labels == 0]
    pairs = wrong[:, None] - right[None]
    return float(np.mean((pairs > 0) + 0.5 * (pairs == 0)))


def decided(results: Floats, _: Floats, labels: Labels) -> float:
    """Share of samples whose probability is on the right side of one half."""
    return float(np.mean((results.reshape(-1) > 0.5) == labels))


def _windows(data: Any) -> Floats:
    """Five consecutive frames each, flattened."""
    clips = data["x"].astype(np.float64)
    count = clips.shape[1] - 4
    return np.concatenate([clips[:, k : k + count] for k in range(5)], axis=2).reshape(-1, 5 * clips.shape[2])


def _plain(data: Any) -> Floats:
    return np.asarray(data["x"].astype(np.float64))


def _chunks(data: Any) -> Floats:
    """512 samples of sound each, behind the last 64 of the chunk before."""
    sound = np.concatenate([np.zeros(64), data["pcm"] / 32768])
    return np.stack([sound[512 * k : 512 * k + 576] for k in range(len(data["ref_prob"]))])


def _digits(data: Any) -> Floats:
    return _plain(data) / 16


TASKS = (
    Task("ic_resnet8", "ic_cifar10", _plain, top_one),
    Task("kws_dscnn", "kws_mfcc_int8", lambda d: (_plain(d) - d["zero_point"]) * d["scale"], top_one),
    Task("vww_mobilenetv1_025", "vww_coco", lambda d: _plain(d) / 255, top_one),
    Task("ad_fc_autoencoder", "ad_toycar", _windows, area_under_curve, batch=4),
    Task("sww_dscnn1d", "sww_logmel", _plain, top_one),
    Task("kws_lstm118", "kws_mfcc_f32", _plain, top_one),
    Task("kws_gru154", "kws_mfcc_f32", lambda d: _plain(d)[:, ::2], top_one),
    Task("kws_crnn", "kws_mfcc_f32", lambda d: _plain(d)[:, None], top_one),
    Task("mnist_cnn", "mnist", _plain, top_one),
    Task("digits_mlp", "digits", _digits, top_one),
    Task("digits_cnn", "digits", lambda d: _digits(d)[:, None], top_one),
    Task("digits_lstm64", "digits", _digits, top_one),
    Task("digits_gru64", "digits", _digits, top_one),
    Task("digits_transformer", "digits", _digits, top_one, calibration=lambda d: d["x_train"][:300] / 16),
    Task("silero_vad_16k", "silero_speech", _chunks, decided, labels=lambda d: d["ref_prob"] > 0.5,
         state=(("state", "stateN"),)),
    Task("silero_vad_16k_core", "silero_speech", lambda d: d["core_spec"].astype(np.float64), decided,
         labels=lambda d: d["core_ref_prob"] > 0.5, state=(("h", "hn"), ("c", "cn"))),
)  # fmt: skip


def folder() -> Path | None:
    """Where networks and data lie, if that is known."""
    path = Path(os.environ.get("CONCORD_DATA", ""))
    return path if (path / "models").is_dir() else None


def load(task: Task, data: Path) -> tuple[Graph, Floats, Labels]:
    """The network of a task, its inputs and labels."""
    with np.load(data / "data" / f"{task.data}.npz") as arrays:
        return import_model(data / "models" / f"{task.model}.onnx"), task.inputs(arrays), task.labels(arrays)


def run(task: Task, graph: Graph, step: Step, inputs: Floats) -> tuple[dict[str, Floats], dict[str, Floats]]:
    """Compute all samples, at once or, if they are a stream, one after the other.

    Parameters
    ----------
    step : callable
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
        return {name: inputs}, step({name: inputs})
    (name,) = set(graph.inputs) - {read for read, _ in task.state}
    state = {read: np.zeros((1, *graph.sample_shape(read))) for read, _ in task.state}
    given, found = [], []
    for sample in inputs:
        given.append({name: sample[None], **state})
        found.append(step(given[-1]))
        state = {read: found[-1][left] for read, left in task.state}
    return _joined(given), _joined(found)


def _joined(parts: list[dict[str, Floats]]) -> dict[str, Floats]:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def calibration(task: Task, graph: Graph, inputs: Floats, data: Path) -> dict[str, Floats]:
    """Inputs that formats are chosen with: those of the task, the first ones, or some of a whole stream.

    States of a stream are as in double precision.
    """
    few = inputs[: None if task.state else CALIBRATION]
    if task.calibration is not None:
        with np.load(data / "data" / f"{task.data}.npz") as arrays:
            few = task.calibration(arrays)
    given, _ = run(task, graph, partial(execute.run, graph), few)
    every = max(1, len(few) // CALIBRATION) if task.state else 1
    return {name: values[::every] for name, values in given.items()}
