"""Measures emulator and derived software in a process of its own, so that the caller can hold it to one core.

``python -m concord.bench.worker CONFIG`` takes a configuration as JSON and prints inferences per second as JSON.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from concord.bench.software import perceptron
from concord.compiler.model import compile_graph
from concord.derive.backends.numpy_file import write_numpy
from concord.derive.model import derive_package
from concord.derive.modules import module_of
from concord.host import connect
from concord.spec.config import NpuConfig

BATCH = 4096
#: Rounds by size of the batch: what else the machine does disturbs short ones more.
ROUNDS = {BATCH: 20, 1: 400}


def speeds(config: NpuConfig) -> dict[str, dict[int, float]]:
    """Inferences per second of ``emulator`` and derived NumPy file, ``twin``, by size of the batch, in this process."""
    graph = perceptron()
    compiled = compile_graph(graph, config)
    x = np.random.default_rng(2).random((BATCH, *graph.sample_shape("x")))

    def best(run: Callable[[Any], Any]) -> dict[int, float]:
        return {n: n / min(_seconds(run, {"x": x[:n]}) for _ in range(rounds)) for n, rounds in ROUNDS.items()}

    with tempfile.TemporaryDirectory() as folder, connect("emulator", config) as device:
        file = Path(folder) / "twin.py"
        write_numpy(derive_package(compiled.package), file)
        device.load(compiled.image)
        return {"emulator": best(lambda inputs: compiled.run(device, inputs)), "twin": best(module_of(file).run)}


def _seconds(run: Callable[[Any], Any], batch: Any) -> float:
    """Time of the processor, so that other processes do not count."""
    start = time.process_time()
    run(batch)
    return time.process_time() - start


if __name__ == "__main__":
    print(json.dumps(speeds(NpuConfig.from_dict(json.loads(sys.argv[1])))))
