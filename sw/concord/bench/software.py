"""Figures that need no RTL: the emulator's speed, and what synthesis reported."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from concord.bench.results import Results
from concord.host import connect
from concord.mlp import INPUT, compile_mlp
from concord.onnx_import import Dense, Network
from concord.spec.config import NpuConfig

#: Widths of the perceptron of the demonstration.
WIDTHS = (64, 64, 32, 10)
BATCH = 4096
ROUNDS = 5


def perceptron(widths: tuple[int, ...] = WIDTHS) -> Network:
    """A perceptron with random weights."""
    rng = np.random.default_rng(1)
    layers = []
    for k, (inputs, outputs) in enumerate(pairwise(widths), 1):
        weight, bias = rng.normal(0, np.sqrt(2 / inputs), (outputs, inputs)), rng.normal(0, 0.1, outputs)
        layers.append(Dense(f"fc{k}", weight, bias, "Relu" if k < len(widths) - 1 else None))
    return Network("perceptron", tuple(layers))


def emulator_speed(config: NpuConfig, results: Results) -> None:
    """Inferences per second of one core, best of a few rounds, in a batch and one by one."""
    network = perceptron()
    x = np.random.default_rng(2).random((BATCH, network.inputs))
    with connect("emulator", config) as device:
        device.load(compile_mlp(network, config).image)
        name = f"perceptron {'-'.join(map(str, WIDTHS))}"
        for batch in (BATCH, 1):
            best = min(_seconds(device.run, {INPUT: x[:batch]}) for _ in range(ROUNDS))
            results.add("Emulator, one core", f"{name}, batch {batch}", batch / best, "inferences/s")


def _seconds(run: Callable[[Any], Any], batch: Any) -> float:
    """Time of the processor, so that other processes do not count."""
    start = time.process_time()
    run(batch)
    return time.process_time() - start


def synthesis(config: NpuConfig, results: Results, folder: Path = Path("build")) -> None:
    """Clock and resources of every bitstream in ``folder``."""
    reports = sorted(folder.glob("*/report.json"))
    if not reports:
        results.skip("Place and route", f"no report.json in {folder}/*: run `make bitstream`")
    for path in reports:
        summary = json.loads(path.read_text(encoding="utf-8"))
        group = f"Place and route: {summary['preset']} on {summary['board']}"
        for clock in summary["clocks"]:
            results.add(group, f"clock {clock['clock']}", clock["mhz"], f"MHz (target {clock['target_mhz']:g})")
        for name, entry in summary["utilisation"].items():
            results.add(group, name, entry["used"], f"of {entry['available']} ({entry['percent']} %)")
