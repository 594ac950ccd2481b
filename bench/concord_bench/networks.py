"""Trained networks: accuracy against double precision, cycles of the RTL, and whether every bit agrees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import Compiled, compile_graph
from concord.graph import execute
from concord.graph.cost import macs
from concord.graph.ir import Graph
from concord.host import connect
from concord.host.device import Device
from concord.host.rates import spoken
from concord.networks.calibrated import choose_formats
from concord.program.allocator import CapacityError
from concord.report.difference import first_difference
from concord.spec.config import NpuConfig
from concord.spec.formats import MANT_MIN
from concord.spec.memmap import RegionId
from concord.spec.presets import with_mantissas
from concord.utils.arrays import FloatArray
from concord_bench.rates import rates_of
from concord_bench.results import Results
from concord_bench.tasks import TASKS, Labels, Task, calibration, folder, load, run

#: Runs of which every bit is compared between emulator and RTL.
ON_RTL = 2
#: Name of the table of networks.
NETWORKS = "Networks"
#: Note on the scores.
SCORES = (
    "Scores are accuracies on all recorded samples; of the autoencoder the area under the ROC curve, of silero the "
    "share of chunks decided as in double precision. Formats are chosen without labels, with about 100 other samples; "
    "those of silero with chunks from all over the recording that is measured."
)
#: Mantissas whose scores are compared.
WIDTHS = range(8, MANT_MIN - 1, -1)


@dataclass(frozen=True)
class Measured:
    """Score and speed of a network on an NPU.

    Parameters
    ----------
    exact, score : float
        Its score in double precision and on the NPU.
    cycles : float
        Cycles of the RTL per sample.
    busy, weights : float
        Shares of the multipliers and of the matrix memory in use, in percent.
    verdict : str
        Whether emulator and RTL gave the same bits.
    """

    exact: float
    score: float
    cycles: float
    busy: float
    weights: float
    verdict: str


def _compiled(
    graph: Graph, config: NpuConfig, samples: dict[str, FloatArray], batch: int, mantissas: dict[str, int] | None = None
) -> Compiled:
    """A network with the formats that calibration has chosen, and with narrower weights of some layers."""
    return choose_formats(graph, config, samples, mantissas=mantissas, batch=batch).chosen.compiled


def _exact(task: Task, graph: Graph, inputs: FloatArray) -> FloatArray:
    """Results in double precision."""
    return run(task, graph, partial(execute.run, graph), inputs)[1][graph.outputs[0]]


def _emulated(task: Task, compiled: Compiled, inputs: FloatArray) -> FloatArray:
    """Results of the emulator."""
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        return run(task, compiled.graph, partial(compiled.run, device), inputs)[1][compiled.graph.outputs[0]]


def _score(
    task: Task,
    graph: Graph,
    few: dict[str, FloatArray],
    inputs: FloatArray,
    labels: Labels,
    config: NpuConfig,
    mantissas: dict[str, int] | None = None,
) -> str:
    compiled = _compiled(graph, config, few, task.batch, mantissas)
    return f"{task.score(_emulated(task, compiled, inputs), inputs, labels):.4f}"


def measure_widths(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """Two rows per network: its score on NPUs like ``config`` with other mantissas, and with narrower weights on it."""
    group, data = "Accuracy by mantissa width", folder()
    if data is None:
        results.skip(group, "CONCORD_DATA does not name a folder with networks")
        return
    narrow = f"Accuracy by width of the weights, activations of {config.act_mant} bits"
    results.notes[group] = SCORES
    results.notes[narrow] = "As before, on one NPU: all layers with weights of so many bits (`--mantissa LAYER=m`)."
    for task in TASKS:
        say(f"widths of {task.model}")
        graph, inputs, labels = load(task, data)
        few = calibration(task, graph, data)

        exact = {"float": f"{task.score(_exact(task, graph, inputs), inputs, labels):.4f}"}
        score = partial(_score, task, graph, few, inputs, labels)
        try:
            layers = compile_graph(graph, config, batch=task.batch).lowered.layers
            names = [layer.name for layer in layers if layer.weights]
            npus = {f"m={mant}": score(with_mantissas(config, mant)) for mant in WIDTHS}
            weights = {f"m={mant}": score(config, dict.fromkeys(names, mant)) for mant in WIDTHS[1:]}
        except (CapacityError, Unsupported) as error:
            results.skip(f"{task.model}, other widths", str(error))
            continue
        results.row(group, task.model, exact | npus)
        results.row(narrow, task.model, exact | {f"m={WIDTHS[0]}": npus[f"m={WIDTHS[0]}"]} | weights)


def measure_networks(device: Device, config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per network; ``device`` is the RTL.

    Columns: score in double precision and on the NPU, samples per second that a user gets in a batch over the link, and
    that the core computes at the clock of the preset, cycles per sample, share of the multipliers in use, share of the
    matrix memory, and whether emulator and RTL gave the same bits.
    """
    data = folder()
    if data is None:
        results.skip(NETWORKS, "CONCORD_DATA does not name a folder with networks")
        return
    results.notes[NETWORKS] = (
        f"{SCORES} In a batch: samples per second over the link, with the serial driver set to low latency, as in the "
        f"table of rates on the board. Cycles are those of one sample; core: per second at {config.clock_hz / 1e6:g} "
        "MHz."
    )
    for task in TASKS:
        say(f"network {task.model}")
        try:
            measured = measure_network(task, device, config, data)
            link = rates_of(task, config, data)[2]
        except (CapacityError, Unsupported) as error:
            results.skip(task.model, str(error))
            continue
        row = {
            "float": f"{measured.exact:.4f}",
            f"m={config.act_mant}": f"{measured.score:.4f}",
            "in a batch": spoken(link.per_second),
            "core, per second": spoken(config.clock_hz / measured.cycles),
            "cycles": f"{measured.cycles:,.0f}",
            "MAC slots": f"{measured.busy:.1f} %",
            "weights": f"{measured.weights:.0f} %",
            "RTL": measured.verdict,
        }
        results.row(NETWORKS, task.model if task.batch == 1 else f"{task.model} x {task.batch}", row)


def measure_network(task: Task, device: Device, config: NpuConfig, data: Path) -> Measured:
    """Compile a network with calibrated formats and run it: all samples on the emulator, a few on ``device``.

    Parameters
    ----------
    task : Task
        The network and its samples.
    device : Device
        The RTL.
    config : NpuConfig
        What the RTL is made from.
    data : Path
        Folder with networks and data.

    Raises
    ------
    CapacityError, Unsupported
        If the NPU cannot compute the network.
    """
    graph, inputs, labels = load(task, data)
    compiled = _compiled(graph, config, calibration(task, graph, data), task.batch)
    want, got = _exact(task, graph, inputs), _emulated(task, compiled, inputs)
    few = ON_RTL * task.batch
    device.load(compiled.image)
    step_inputs, outputs = run(task, graph, partial(compiled.run, device), inputs[:few])
    cycles = (device.counters()["CYCLES"] or 0) / task.batch
    weights = sum(part.count for part in compiled.image.segments if part.region is RegionId.MATRIX)
    verdict = "same"
    if not np.array_equal(outputs[graph.outputs[0]], got[:few]):
        verdict = f"DIFFERS behind {first_difference(compiled, step_inputs, device) or 'the last layer'}"
    return Measured(
        exact=task.score(want, inputs, labels),
        score=task.score(got, inputs, labels),
        cycles=cycles,
        busy=100 * macs(graph) / (config.macs * cycles),
        weights=100 * weights / (config.matrix_depth * config.rows),
        verdict=verdict,
    )
