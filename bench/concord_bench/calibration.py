"""Calibration of trained networks, with a search and without: how long it takes, and what it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from concord.compiler.calibration.formats import Evidence
from concord.compiler.lowering.lowered import Unsupported
from concord.graph import execute
from concord.graph.ir import Graph
from concord.networks.calibrated import calibration_of, choose_formats
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray
from concord_bench.results import Results
from concord_bench.tasks import TASKS, Task, calibration, folder, load, run

GROUP = "Calibration"
_NOTE = (
    "`concord compile --calibrate` with the samples of the bench, and with `--quick`: processor seconds, and the error "
    "of what the NPU computes and the agreement with double precision on other samples, at most 400. Those of silero "
    "are of the same recording."
)
#: Samples that are measured at most.
OTHERS = 400


def others(task: Task, graph: Graph, inputs: FloatArray, made_with: dict[str, FloatArray]) -> dict[str, FloatArray]:
    """Inputs by name that formats were not chosen with, evenly spread; states of a stream as in double precision.

    Parameters
    ----------
    task : Task
        The network and its samples.
    graph : Graph
        The network.
    inputs : array
        What is measured.
    made_with : dict
        What formats were chosen with.
    """
    every = max(1, len(inputs) // OTHERS) if not task.state else 1
    natural, _ = run(task, graph, partial(execute.run, graph), inputs[::every])
    (name,) = set(graph.inputs) - {read for read, _ in task.state}
    known = {sample.tobytes() for sample in made_with[name]}
    new = np.array([sample.tobytes() not in known for sample in natural[name]])
    kept = np.flatnonzero(new)
    kept = kept[:: max(1, len(kept) // OTHERS)][:OTHERS]
    return {name: values[kept] for name, values in natural.items()}


def measure_calibration(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per network: candidates, seconds and what is left, with a search and without."""
    data = folder()
    if data is None:
        results.skip(GROUP, "CONCORD_DATA does not name a folder with networks")
        return
    results.notes[GROUP] = _NOTE
    for task in TASKS:
        say(f"calibration of {task.model}")
        graph, inputs, _ = load(task, data)
        few = calibration(task, graph, data)
        judge = calibration_of(graph, others(task, graph, inputs, few), batch=task.batch)
        row = {"samples": f"{len(next(iter(few.values())))}"}
        try:
            for quick in (False, True):
                begun = time.process_time()
                evidence = choose_formats(graph, config, few, batch=task.batch, quick=quick)
                took = time.process_time() - begun
                left = judge.judge("", evidence.chosen.compiled)
                row |= _columns(evidence, took, left.error, left.agreement, quick)
        except (CapacityError, Unsupported) as error:
            results.skip(f"{task.model}, calibration", str(error))
            continue
        results.row(GROUP, task.model, row)


def _columns(evidence: Evidence, took: float, error: float, agreement: float, quick: bool) -> dict[str, str]:
    suffix = ", quick" if quick else ""
    return {
        **({} if quick else {"candidates": f"{len(evidence.candidates)}"}),
        f"seconds{suffix}": f"{took:.1f}",
        f"error{suffix}": f"{100 * error:.2f} %",
        f"agreement{suffix}": f"{100 * agreement:.2f} %",
    }
