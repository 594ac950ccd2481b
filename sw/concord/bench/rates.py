"""Rates of the trained networks on the board: bytes on the link against those of the data, and what limits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from concord.bench.results import Results
from concord.bench.tasks import TASKS, Task, folder, load
from concord.compiler.lower import Unsupported
from concord.compiler.model import Compiled, compile_graph
from concord.golden import half
from concord.graph.ir import Floats
from concord.rates import Rates, rates
from concord.sheet import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.link import BYTE_BITS

GROUP = "Rates on the board"
#: Samples whose values decide what an element of an input needs.
_SAMPLES = 200
#: Values that fit into a byte.
_BYTE = 256


def raw_bytes(task: Task, compiled: Compiled, inputs: Floats) -> tuple[float, float]:
    """Bytes of inputs and outputs of a sample, as narrow as they are.

    An element of an input has a byte if there are not more than 256 values, else a mantissa, and an exponent per native
    vector; states and outputs have two bytes.
    """
    graph, native = compiled.graph, compiled.image.config.native
    states = {name for pair in task.state for name in pair}
    coming = 0
    for name in graph.inputs:
        elements = int(np.prod(graph.sample_shape(name)))
        if name in states:
            coming += 2 * elements
        else:
            few = len(np.unique(half.encode(inputs[:_SAMPLES]))) <= _BYTE
            coming += elements if few else elements + -(-elements // native)
    arrangement = compiled.package.arrangement
    return coming, 2 * sum(ids.size for ids in arrangement.outputs.values()) / arrangement.batch


def measure_rates(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per network, compiled without samples; cycles are estimated."""
    data = folder()
    if data is None:
        results.skip(GROUP, "CONCORD_DATA does not name a folder with networks")
        return
    for task in TASKS:
        say(f"rates of {task.model}")
        graph, inputs, _ = load(task, data)
        try:
            compiled = compile_graph(graph, config, batch=task.batch)
        except (CapacityError, Unsupported) as error:
            results.skip(f"{GROUP}: {task.model}", str(error))
            continue
        found = rates(compiled.image, task.batch)
        results.notes[GROUP] = (
            f"Bytes of a sample in both directions, framing included, {found.at}; raw: those of the data, a byte for "
            "an element of an input with at most 256 values, else a mantissa, and an exponent per native vector; two "
            "for an output. Allowed: samples per second if these bytes were all that takes time. Computation: "
            "estimated."
        )
        results.row(GROUP, task.model, row(found, *raw_bytes(task, compiled, inputs)))


def row(found: Rates, raw_in: float, raw_out: float) -> dict[str, str]:
    """Texts of a network by column."""
    allowed = found.baud / BYTE_BITS / (raw_in + raw_out)
    return {
        "raw in": f"{raw_in:,.0f}",
        "raw out": f"{raw_out:,.0f}",
        "in": f"{found.bytes_in:,.0f}",
        "out": f"{found.bytes_out:,.0f}",
        "of raw": f"{(found.bytes_in + found.bytes_out) / (raw_in + raw_out):.2f}",
        "link, ms": f"{1e3 * found.link_seconds:.2f}",
        "computation, ms": f"{1e3 * found.compute_seconds:.3f}",
        "per second": f"{found.per_second:,.{found.per_second < 100:d}f}",
        "allowed": f"{allowed:,.{allowed < 100:d}f}",
        "limited by": found.limit,
    }
