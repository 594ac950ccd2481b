"""Trained networks: accuracy against double precision, cycles of the RTL, and whether every bit agrees.

Networks and data lie in the folder that the environment variable ``CONCORD_DATA`` names.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.bench.results import Results
from concord.compiler.formats import choose_formats, emulate
from concord.compiler.lower import Unsupported
from concord.compiler.model import Compiled
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.cost import macs
from concord.graph.ir import Floats, Graph
from concord.host.device import Device
from concord.sheet import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.memmap import RegionId
from concord.spec.presets import with_mantissas

Labels = npt.NDArray[np.int64]
#: Runs of which every bit is compared between emulator and RTL.
ON_RTL = 2
#: Samples that formats are chosen with, from the first on.
CALIBRATION = 100
#: Mantissas whose scores are compared.
WIDTHS = range(8, 2, -1)


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
    """

    model: str
    data: str
    inputs: Callable[[Any], Floats]
    score: Callable[[Floats, Floats, Labels], float]
    batch: int = 1
    calibration: Callable[[Any], Floats] | None = None


def top_one(results: Floats, _: Floats, labels: Labels) -> float:
    """Share of samples whose largest output is the label."""
    return float(np.mean(results.reshape(len(results), -1).argmax(axis=1) == labels))


def area_under_curve(results: Floats, inputs: Floats, labels: Labels) -> float:
    """Area under the ROC curve of the mean squared error of reconstruction per clip."""
    scores = ((results - inputs) ** 2).reshape(len(labels), -1).mean(axis=1)
    wrong, right = scores[labels == 1], scores[labels == 0]
    pairs = wrong[:, None] - right[None]
    return float(np.mean((pairs > 0) + 0.5 * (pairs == 0)))


def _windows(data: Any) -> Floats:
    """Five consecutive frames each, flattened."""
    clips = data["x"].astype(np.float64)
    count = clips.shape[1] - 4
    return np.concatenate([clips[:, k : k + count] for k in range(5)], axis=2).reshape(-1, 5 * clips.shape[2])


def _plain(data: Any) -> Floats:
    return np.asarray(data["x"].astype(np.float64))


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
)


def folder() -> Path | None:
    """Where networks and data lie, if that is known."""
    path = Path(os.environ.get("CONCORD_DATA", ""))
    return path if (path / "models").is_dir() else None


def load(task: Task, data: Path) -> tuple[Graph, Floats, Labels]:
    """The network of a task, its inputs and labels."""
    with np.load(data / "data" / f"{task.data}.npz") as arrays:
        return import_model(data / "models" / f"{task.model}.onnx"), task.inputs(arrays), arrays["y"]


def samples(task: Task, inputs: Floats, data: Path) -> Floats:
    """Samples that formats are chosen with: those of the task, or the first inputs."""
    if task.calibration is None:
        return inputs[:CALIBRATION]
    with np.load(data / "data" / f"{task.data}.npz") as arrays:
        return task.calibration(arrays)


def compiled_for(graph: Graph, config: NpuConfig, calibration: Floats, batch: int = 1) -> Compiled:
    """A network with the formats that calibration has chosen."""
    return choose_formats(graph, config, {graph.inputs[0]: calibration}, batch=batch).chosen.compiled


def measure_widths(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per network: its score in double precision, and on NPUs like ``config`` with other mantissas."""
    group, data = "Accuracy by mantissa width", folder()
    if data is None:
        results.skip(group, "CONCORD_DATA does not name a folder with networks")
        return
    for task in TASKS:
        say(f"widths of {task.model}")
        graph, inputs, labels = load(task, data)
        (given,), result, few = graph.inputs, graph.outputs[0], samples(task, inputs, data)
        scores = {"float": task.score(execute.run(graph, {given: inputs})[result], inputs, labels)}
        try:
            for mant in WIDTHS:
                compiled = compiled_for(graph, with_mantissas(config, mant), few, task.batch)
                scores[f"m={mant}"] = task.score(emulate(compiled, {given: inputs})[result], inputs, labels)
        except (CapacityError, Unsupported) as error:
            results.skip(f"{task.model}, other widths", str(error))
            continue
        results.row(group, task.model, {name: f"{score:.4f}" for name, score in scores.items()})


def measure_networks(device: Device, config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per network; ``device`` is the RTL.

    Columns: score in double precision and on the NPU, cycles per sample, share of the multipliers in use, samples per
    second at the clock of the preset, share of the matrix memory, and whether emulator and RTL gave the same bits.
    """
    group, data = "Networks", folder()
    if data is None:
        results.skip(group, "CONCORD_DATA does not name a folder with networks")
        return
    for task in TASKS:
        say(f"network {task.model}")
        graph, inputs, labels = load(task, data)
        try:
            compiled = compiled_for(graph, config, samples(task, inputs, data), task.batch)
        except (CapacityError, Unsupported) as error:
            results.skip(task.model, str(error))
            continue
        name = task.model if task.batch == 1 else f"{task.model} x {task.batch}"
        results.row(group, name, _figures(task, compiled, inputs, labels, device, config))


def _figures(
    task: Task, compiled: Compiled, inputs: Floats, labels: Labels, device: Device, config: NpuConfig
) -> dict[str, str]:
    graph = compiled.graph
    (given,), result = graph.inputs, graph.outputs[0]
    want = execute.run(graph, {given: inputs})[result]
    got = emulate(compiled, {given: inputs})[result]
    device.load(compiled.image)
    few = ON_RTL * task.batch
    same = np.array_equal(compiled.run(device, {given: inputs[:few]})[result], got[:few])
    cycles = (device.counters()["CYCLES"] or 0) / task.batch
    weights = sum(part.count for part in compiled.image.segments if part.region is RegionId.MATRIX)
    return {
        "float": f"{task.score(want, inputs, labels):.4f}",
        f"m={config.act_mant}": f"{task.score(got, inputs, labels):.4f}",
        "cycles": f"{cycles:,.0f}",
        "MAC slots": f"{100 * macs(graph) / (config.macs * cycles):.1f} %",
        "per second": f"{config.clock_hz / cycles:,.0f}",
        "weights": f"{100 * weights / (config.matrix_depth * config.rows):.0f} %",
        "RTL": "same" if same else "DIFFERS",
    }
