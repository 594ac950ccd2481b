"""Rates of the trained networks on the board: bytes on the link against those of the data, and what limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import Compiled, compile_graph, expecting
from concord.golden import binary16
from concord.graph.ir import Graph
from concord.host.rates import Rates, rates, spoken
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray
from concord_bench.results import Results
from concord_bench.tasks import TASKS, Task, folder, load

GROUP = "Rates on the board"
#: Samples whose values decide what an element of an input needs.
_SAMPLES = 200
#: Samples by which the rate is estimated.
EXPECTED = 16
#: Values that fit into a byte.
_BYTE = 256


def raw_bytes(task: Task, compiled: Compiled, inputs: FloatArray) -> tuple[float, float]:
    """Bytes of inputs and outputs of a sample, as narrow as they are.

    An element of an input has a byte if there are not more than 256 values; else a mantissa, and an exponent per native
    vector, if all vectors that it is in agree on the exponent, and two bytes if they do not: then results depend on all
    bits of binary16. States and outputs have two bytes.
    """
    graph, native = compiled.graph, compiled.image.config.native
    states = {name for pair in task.state for name in pair}
    feeds = {feed.port: feed for feed in compiled.image.feeding.feeds}
    coming = 0
    for name in graph.inputs:
        elements = int(np.prod(graph.sample_shape(name)))
        few = len(np.unique(binary16.encode(inputs[:_SAMPLES]))) <= _BYTE
        if name not in states and few:
            coming += elements
        elif name in states or (name in feeds and feeds[name].in_vectors(native) is None):
            coming += 2 * elements
        else:
            coming += elements + -(-elements // native)
    arrangement = compiled.package.arrangement
    return coming, 2 * sum(ids.size for ids in arrangement.outputs.values()) / arrangement.batch


def measure_rates(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per network, compiled without samples; cycles are those of the hardware."""
    data = folder()
    if data is None:
        results.skip(GROUP, "CONCORD_DATA does not name a folder with networks")
        return
    for task in TASKS:
        say(f"rates of {task.model}")
        try:
            compiled, inputs, rates = rates_of(task, config, data)
        except (CapacityError, Unsupported) as error:
            results.skip(f"{GROUP}: {task.model}", str(error))
            continue
        results.notes[GROUP] = note(rates)
        results.row(GROUP, task.model, row(rates, *raw_bytes(task, compiled, inputs)))


def rates_of(task: Task, config: NpuConfig, data: Path) -> tuple[Compiled, FloatArray, Rates]:
    """A network compiled without samples, its recorded inputs, and its rates with inputs like these.

    Raises
    ------
    CapacityError, Unsupported
        If the NPU cannot compute the network.
    """
    graph, inputs, _ = load(task, data)
    compiled = compile_graph(graph, config, batch=task.batch)
    return compiled, inputs, rates(expecting(compiled, _inputs(graph, inputs)).image, task.batch)


def note(rates: Rates) -> str:
    """Note about the columns, with clock, bit rate and latencies of a row."""
    slow = rates.at_default or rates
    return (
        f"Samples per second that a user gets {rates.at}: in a batch of many, and one at a time, with flags read after "
        f"each. A reply is held back, {1e3 * rates.reply_seconds:g} ms besides its bytes with the serial driver set to "
        f"low latency, and {1e3 * slow.reply_seconds:g} ms as it is installed; both are assumed, not measured on a "
        "board (driver.md); requests are sent ahead of replies as far as the device has room. Bytes of a sample in "
        "both directions, framing included, and requests, one of many; raw: those of the data, a byte for an element "
        "of an input, or of a channel, with at most 256 values, else a mantissa, and an exponent per native vector, or "
        "two bytes where the windows that an element is in have other exponents; two for an output and for a state. "
        "Line: time of the bytes; replies: time in which they are waited for. Computation: while bytes travel. Alone: "
        "from the first byte to the last one of a single run. Core: what computation alone would allow."
    )


def _inputs(graph: Graph, inputs: FloatArray) -> dict[str, FloatArray]:
    """Some samples by input; other inputs are states, which have many values."""
    count = min(len(inputs), EXPECTED)
    many = np.random.default_rng(0)
    inputs_of = {name: many.normal(0, 1, (count, *graph.sample_shape(name))) for name in graph.inputs}
    return inputs_of | {graph.inputs[0]: inputs[:count]}


def row(rates: Rates, raw_in: float, raw_out: float) -> dict[str, str]:
    """Texts of a network by column: first what a user gets, then what it is made up of."""
    slow = rates.at_default or rates
    return {
        "in a batch": spoken(rates.per_second),
        "one at a time": spoken(rates.single_per_second),
        "batch, as installed": spoken(slow.per_second),
        "one, as installed": spoken(slow.single_per_second),
        "limited by": rates.limit,
        "raw in": f"{raw_in:,.0f}",
        "raw out": f"{raw_out:,.0f}",
        "in": f"{rates.bytes_in:,.0f}",
        "out": f"{rates.bytes_out:,.0f}",
        "of raw": f"{(rates.bytes_in + rates.bytes_out) / (raw_in + raw_out):.2f}",
        "requests": f"{rates.requests / rates.batch:.2f}",
        "line, ms": f"{1e3 * rates.wire_seconds:.2f}",
        "replies, ms": f"{1e3 * rates.wait_seconds:.2f}",
        "computation, ms": f"{1e3 * rates.compute_seconds:.3f}",
        "alone, ms": f"{1e3 * rates.latency_seconds:.2f}",
        "core, per second": spoken(1 / rates.compute_seconds),
    }
