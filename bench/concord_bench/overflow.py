"""Needs of accumulators of trained networks: bits on recorded samples, and for every input in their range."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import Compiled
from concord.graph.ir import Graph
from concord.networks.calibrated import choose_formats
from concord.overflow import analyse_machine
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray
from concord_bench.results import Results
from concord_bench.tasks import TASKS, Task, calibration, folder, load

#: Networks that are measured: those of MLPerf Tiny, and a recurrent one.
MODELS = ("ic_resnet8", "vww_mobilenetv1_025", "kws_dscnn", "ad_fc_autoencoder", "kws_lstm118")
#: Samples of each network.
SAMPLES = 100


@dataclass(frozen=True)
class CompiledNetwork:
    """A network with formats chosen for calibration samples.

    Parameters
    ----------
    task : Task
    graph : Graph
    inputs : array
        What it is measured on.
    samples : dict of arrays
        Calibration samples by input.
    compiled : Compiled
    """

    task: Task
    graph: Graph
    inputs: FloatArray
    samples: dict[str, FloatArray]
    compiled: Compiled


def compiled_networks(
    config: NpuConfig, data: Path, results: Results, say: Callable[[str], None]
) -> Iterator[CompiledNetwork]:
    """The networks that are measured, compiled one after the other; notes those that are not for ``config``."""
    for task in (task for task in TASKS if task.model in MODELS):
        say(task.model)
        graph, inputs, _ = load(task, data)
        samples = calibration(task, graph, data)
        try:
            compiled = choose_formats(graph, config, samples, batch=task.batch).chosen.compiled
        except (CapacityError, Unsupported) as error:
            results.skip(f"{task.model} on {config.name}", str(error))
            continue
        yield CompiledNetwork(task, graph, inputs, samples, compiled)


def measure_overflow(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per network: how many products there are, and the least widths that are free of overflow."""
    group, data = "Overflow: bits that accumulators need", folder()
    if data is None:
        results.skip(group, "CONCORD_DATA does not name a folder with networks")
        return
    results.notes[group] = (
        f"{SAMPLES} recorded samples, formats chosen with about 100 others; the hardware accumulates in "
        f"{config.acc_bits} bits and keeps {config.acc_width}. Observed: what the samples need, while adding and of "
        "outputs. Bound: what every input needs that is within the range of the samples. CPU is that of all threads."
    )
    for network in compiled_networks(config, data, results, lambda model: say(f"overflow of {model}")):
        start = time.process_time()
        (name,) = network.graph.inputs
        analysis = analyse_machine(network.compiled.package, {name: network.inputs[:SAMPLES]}, name=network.task.model)
        taken = time.process_time() - start
        texts = {"products": f"{sum(layer.stage('product').total for layer in analysis.layers):,}"}
        for checked, title in (("intermediate", "adding"), ("output", "outputs")):
            texts[f"observed, {title}"] = str(analysis.needed(checked))
            texts[f"bound, {title}"] = str(analysis.bound(checked))
        results.row(group, network.task.model, texts | {"CPU": f"{taken:.1f} s"})
