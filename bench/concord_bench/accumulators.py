"""Accumulators of few bits: what trained networks need, whether a bit of a result changes, and cells by width."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from concord.compiler.model import Compiled
from concord.host import connect
from concord.overflow import analyse_machine
from concord.overflow.accumulator import AccumulatorError, choose_accumulator
from concord.overflow.required import CountedWidths
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray
from concord_bench.overflow import SAMPLES, compiled_networks
from concord_bench.results import Results
from concord_bench.tasks import folder

#: Bits of the accumulator.
BITS = 44


def measure_accumulators(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """One row per network: bits of the evaluation samples, and how many of their results change; cells by width."""
    cells_by_width(results)
    group, data = f"Accumulators of {BITS} bits", folder()
    if data is None:
        results.skip(group, "CONCORD_DATA does not name a folder with networks")
        return
    if config.serial or config.full_bits <= BITS:
        results.skip(group, f"{config.name} has no narrower accumulator")
        return
    results.notes[group] = (
        f"What `compile --calibrate --accumulator {BITS}` makes of {config.name}, whose sums have up to "
        f"{config.full_bits} bits. Observed: of the first {SAMPLES} evaluation samples, on the grid of the new "
        "configuration. Changed: of all evaluation samples, those with a bit that is not that of the full accumulator."
    )
    for network in compiled_networks(config, data, results, lambda model: say(f"accumulator of {model}")):
        try:
            chosen = choose_accumulator(network.graph, network.compiled, BITS, CountedWidths(network.samples))
        except AccumulatorError as error:
            results.skip(f"{network.task.model}, {BITS} bits", str(error))
            continue
        (name,) = network.graph.inputs
        inputs = network.inputs[: len(network.inputs) // network.task.batch * network.task.batch]
        samples = {name: inputs[:SAMPLES]}
        (want, _), (got, flags) = (_results(which, {name: inputs}) for which in (network.compiled, chosen.compiled))
        changed = np.zeros(len(inputs), dtype=np.bool_)
        for output, values in want.items():
            changed |= (values.view(np.uint64) != got[output].view(np.uint64)).reshape(len(inputs), -1).any(axis=1)
        new = chosen.compiled.image.config
        results.row(
            group,
            network.task.model,
            {
                "grid": f"2^{-new.acc_frac}",
                "least exponents": f"{new.wgt_exp_min}, {new.act_exp_min}",
                "observed": str(analyse_machine(chosen.compiled.package, samples).needed("intermediate")),
                "any input": str(max(need.bound for need in chosen.needs)),
                "samples": f"{len(inputs):,}",
                "changed": f"{changed.sum():,}",
                "flags": ", ".join(flags) or "none",
            },
        )


def cells_by_width(results: Results, folder: Path = Path("build/area")) -> None:
    """Add the tables that ``python -m concord_rtl.build area`` has counted."""
    files = sorted(folder.glob("*/accumulators.json"))
    if not files:
        results.skip(
            "Cells by width", f"no accumulators.json in {folder}/*: python -m concord_rtl.build area --board ulx3s-85f"
        )
    for path in files:
        summary = json.loads(path.read_text(encoding="utf-8"))
        group = f"Cells by width of the accumulator: {summary['of']}"
        for row in summary["widths"]:
            texts = {name: f"{count:,}" for name, count in row["cells"].items()}
            clock = {"MHz": f"{row['mhz']:.2f}"} if "mhz" in row else {}
            slowest = {"slowest unit": row["slowest"]} if "slowest" in row else {}
            results.row(group, f"{row['bits']} bits", texts | clock | slowest)


def _results(compiled: Compiled, inputs: Mapping[str, FloatArray]) -> tuple[dict[str, FloatArray], list[str]]:
    """Results as contiguous float64, and the layers that raise ACC_OVERFLOW."""
    with connect("emulator", compiled.image.config) as device:
        device.load(compiled.image)
        outputs = compiled.run(device, inputs)
        flags = [flag.layer for flag in compiled.package.flags(device.flags()) if flag.flag == "ACC_OVERFLOW"]
    return {name: np.ascontiguousarray(values, dtype=np.float64) for name, values in outputs.items()}, flags
