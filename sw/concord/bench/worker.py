"""Measures emulator and derived software in a process of its own, so that the caller can hold it to one core.

``python -m concord.bench.worker CONFIG`` takes a configuration as JSON and prints inferences per second as JSON, by
group and name.
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

from concord.bench import tasks
from concord.bench.software import CNN, DERIVED, EMULATOR, FAST, PERCEPTRON, SHARED, convolutions, perceptron
from concord.compiler.lowering.lower import Unsupported
from concord.compiler.model import Compiled, compile_graph
from concord.derive.backends.numpy_file import write_numpy
from concord.derive.model import derive_package
from concord.derive.modules import module_of
from concord.emulator.fused import installed
from concord.emulator.workers import available
from concord.host.emulated import EmulatedDevice
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig

Speeds = dict[str, dict[str, float]]
BATCH = 4096
#: Rounds by size of the batch: what else the machine does disturbs short ones more.
ROUNDS = {BATCH: 20, 1: 400}
#: Images of a batch of ResNet-8, and rounds.
_IMAGES, _IMAGE_ROUNDS = 512, 5


def speeds(config: NpuConfig) -> Speeds:
    """Inferences per second of emulator and derived NumPy file, in this process."""
    found: Speeds = {}
    for name, graph in ((PERCEPTRON, perceptron()), (CNN, convolutions())):
        compiled = compile_graph(graph, config)
        x = np.random.default_rng(2).random((BATCH, *graph.sample_shape("x")))

        def best(run: Callable[[Any], Any], name: str = name, x: Any = x) -> dict[str, float]:
            run({"x": x})
            times = {n: min(_seconds(run, {"x": x[:n]}) for _ in range(rounds)) for n, rounds in ROUNDS.items()}
            return {f"{name}, batch {n}": n / seconds for n, seconds in times.items()}

        for group, use in {EMULATOR: False, **({FAST: True} if installed() else {})}.items():
            with EmulatedDevice(config, workers=1, compiled=use) as device:
                device.load(compiled.image)
                found.setdefault(group, {}).update(best(_run(compiled, device)))
        if name == PERCEPTRON:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "twin.py"
                write_numpy(derive_package(compiled.package), file)
                found[DERIVED] = best(module_of(file).run)
    return found | _images(config)


def _images(config: NpuConfig) -> Speeds:
    """Images of ResNet-8 per second of all processors, by the clock, where network and data are there and it fits."""
    data = tasks.folder()
    if data is None or not installed():
        return {}
    (task,) = (task for task in tasks.TASKS if task.model == "ic_resnet8")
    graph, x, _ = tasks.load(task, data)
    try:
        compiled = compile_graph(graph, config)
    except (Unsupported, CapacityError):
        return {}
    with EmulatedDevice(config, compiled=True) as device:
        device.load(compiled.image)
        run, batch = _run(compiled, device), {graph.inputs[0]: np.resize(x, (_IMAGES, *x.shape[1:]))}
        run(batch)
        times = []
        for _ in range(_IMAGE_ROUNDS):
            start = time.perf_counter()
            run(batch)
            times.append(time.perf_counter() - start)
    return {SHARED: {f"ResNet-8, batch {_IMAGES}, {available()} processors": _IMAGES / min(times)}}


def _run(compiled: Compiled, device: EmulatedDevice) -> Callable[[Any], Any]:
    return lambda inputs: compiled.run(device, inputs)


def _seconds(run: Callable[[Any], Any], batch: Any) -> float:
    """Time of the processor, so that other processes do not count."""
    start = time.process_time()
    run(batch)
    return time.process_time() - start


if __name__ == "__main__":
    print(json.dumps(speeds(NpuConfig.from_dict(json.loads(sys.argv[1])))))
