"""Measures emulator and derived software in a process of its own, so that the caller can hold it to one core.

``python -m concord_bench.worker CONFIG ROUNDS`` takes a configuration and the rounds by size of the batch as JSON, and
prints inferences per second as JSON, by group and name.
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

from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import Compiled, compile_graph
from concord.derive.backends.python_file import write_numpy
from concord.derive.model import derive_package
from concord.derive.modules import module_of
from concord.emulator.fused import installed
from concord.host.emulated import EmulatedDevice
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord_bench import tasks
from concord_bench.software import CNN, DERIVED, EMULATOR, FAST, PERCEPTRON, convolutions, perceptron

Speeds = dict[str, dict[str, float]]
Inputs = dict[str, Any]
#: Rounds by size of the batch for ResNet-8.
_IMAGES = {512: 5}


def speeds(config: NpuConfig, rounds: dict[int, int]) -> Speeds:
    """Inferences per second of emulator and derived NumPy file, in this process."""
    groups: Speeds = {}
    for name, graph in ((PERCEPTRON, perceptron()), (CNN, convolutions())):
        compiled = compile_graph(graph, config)
        x = np.random.default_rng(2).random((max(rounds), *graph.sample_shape("x")))
        for group, values in _emulator(compiled, name, {"x": x}, rounds).items():
            groups.setdefault(group, {}).update(values)
        if name == PERCEPTRON:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "twin.py"
                write_numpy(derive_package(compiled.package), file)
                groups[DERIVED] = _best(module_of(file).run, name, {"x": x}, rounds)
    for group, values in _images(config).items():
        groups[group].update(values)
    return groups


def _images(config: NpuConfig) -> Speeds:
    """Images of ResNet-8 per second, where network and data are there and it fits."""
    data = tasks.folder()
    if data is None:
        return {}
    (task,) = (task for task in tasks.TASKS if task.model == "ic_resnet8")
    graph, x, _ = tasks.load(task, data)
    try:
        compiled = compile_graph(graph, config)
    except (Unsupported, CapacityError):
        return {}
    return _emulator(compiled, "ResNet-8", {graph.inputs[0]: np.resize(x, (max(_IMAGES), *x.shape[1:]))}, _IMAGES)


def _emulator(compiled: Compiled, name: str, inputs: Inputs, rounds: dict[int, int]) -> Speeds:
    """Speeds of the emulator, with the kernels of NumPy and with the compiled ones."""
    groups: Speeds = {}
    for group, use in {EMULATOR: False, FAST: True}.items():
        if use and not installed():
            continue
        with EmulatedDevice(compiled.image.config, workers=1, compiled=use) as device:
            device.load(compiled.image)
            groups[group] = _best(_run(compiled, device), name, inputs, rounds)
    return groups


def _best(run: Callable[[Any], Any], name: str, inputs: Inputs, rounds: dict[int, int]) -> dict[str, float]:
    """Inferences per second by name and size of the batch; the first run does not count."""
    speeds = {}
    for batch, count in rounds.items():
        some = {port: values[:batch] for port, values in inputs.items()}
        run(some)
        speeds[f"{name}, batch {batch}"] = batch / min(_seconds(run, some) for _ in range(count))
    return speeds


def _run(compiled: Compiled, device: EmulatedDevice) -> Callable[[Any], Any]:
    return lambda inputs: compiled.run(device, inputs)


def _seconds(run: Callable[[Any], Any], batch: Any) -> float:
    """Time of the processor, so that other processes do not count."""
    start = time.process_time()
    run(batch)
    return time.process_time() - start


if __name__ == "__main__":
    made_of, rounds_of = map(json.loads, sys.argv[1:])
    print(json.dumps(speeds(NpuConfig.from_dict(made_of), {int(batch): count for batch, count in rounds_of.items()})))
