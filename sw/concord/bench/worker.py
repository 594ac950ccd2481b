"""Measures the speed of the emulator in a process of its own, so that the caller can hold it to one core.

``python -m concord.bench.worker CONFIG`` takes a configuration as JSON and prints inferences per second as JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from concord.bench.software import perceptron
from concord.compiler.model import compile_graph
from concord.host import connect
from concord.spec.config import NpuConfig

BATCH = 4096
#: Rounds by size of the batch: what else the machine does disturbs short ones more.
ROUNDS = {BATCH: 20, 1: 400}


def speeds(config: NpuConfig) -> dict[int, float]:
    """Inferences per second by size of the batch, best of many rounds, in this process."""
    graph = perceptron()
    compiled = compile_graph(graph, config)
    x = np.random.default_rng(2).random((BATCH, *graph.sample_shape("x")))
    with connect("emulator", config) as device:
        device.load(compiled.image)

        def run(batch: Any) -> Any:
            return compiled.run(device, {"x": batch})

        best = {n: min(_seconds(run, x[:n]) for _ in range(rounds)) for n, rounds in ROUNDS.items()}
    return {batch: batch / seconds for batch, seconds in best.items()}


def _seconds(run: Callable[[Any], Any], batch: Any) -> float:
    """Time of the processor, so that other processes do not count."""
    start = time.process_time()
    run(batch)
    return time.process_time() - start


if __name__ == "__main__":
    print(json.dumps(speeds(NpuConfig.from_dict(json.loads(sys.argv[1])))))
