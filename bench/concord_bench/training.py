"""Processor time of training: steps of the integer trainer and of PyTorch in float32, measured in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from concord.graph.ir import Graph
from concord.spec.config import NpuConfig
from concord.train import Samples, Settings, Trainer, described
from concord.utils.extras import install_command
from concord_bench.results import Results
from concord_bench.tasks import TASKS, folder, load

#: Steps that are timed of each, and steps before them.
STEPS, WARM = 15, 2
#: Networks of :data:`concord_bench.tasks.TASKS`, and samples of a step.
NETWORKS = {"digits_mlp": 64, "digits_cnn": 64, "digits_lstm64": 64, "kws_dscnn": 32, "ic_resnet8": 32}
_CNN: list[dict[str, Any]] = [
    {"op": "conv", "channels": 8, "pad": 1}, {"op": "relu"}, {"op": "max_pool"},
    {"op": "conv", "channels": 16, "pad": 1}, {"op": "relu"}, {"op": "max_pool"},
    {"op": "flatten"}, {"op": "dense", "outputs": 10},
]  # fmt: skip
_NOTE = (
    "Milliseconds of processor time of a step on one thread, median of {steps}: forward, backward and "
    "update with momentum. Steps of both take turns. The same networks, weights at the start and batches; "
    "PyTorch {torch} in float32."
)


@dataclass(frozen=True)
class Timed:
    """A network with samples for one step.

    Parameters
    ----------
    name : str
        For the table.
    graph : Graph
        The network.
    samples : Samples
        As many as a step has.
    """

    name: str
    graph: Graph
    samples: Samples


def networks(data: Path) -> Iterator[Timed]:
    """A CNN on MNIST, and trained networks of the folder."""
    with np.load(data / "data" / "mnist.npz") as arrays:
        x, y = arrays["x"][:64].reshape(64, 1, 28, 28), arrays["y"][:64].astype(np.int64)
    yield Timed("mnist, 8 and 16 channels", described(_CNN, (1, 28, 28)), Samples(x, y, 1 / 256))
    for task in TASKS:
        if task.model in NETWORKS:
            graph, x, y = load(task, data)
            count = NETWORKS[task.model]
            yield Timed(task.model, graph, Samples(np.asarray(x[:count]), np.asarray(y[:count]).astype(np.int64)))


def integer_step(timed: Timed) -> Callable[[], object]:
    """A step of the integer trainer."""
    settings = Settings(epochs=1 << 30, batch=len(timed.samples), rate=Fraction(1, 64))
    return Trainer(timed.graph, timed.samples, settings, random=not np.any(_weights(timed.graph))).step


def float_step(timed: Timed) -> Callable[[], object]:
    """Step of a training in float32 on PyTorch."""
    import torch

    from concord_bench.float_reference import FloatReference

    torch.set_num_threads(1)
    reference = FloatReference(timed.graph)
    if not np.any(_weights(timed.graph)):
        for parameter in reference.parameters():
            torch.nn.init.uniform_(parameter, -0.1, 0.1)
    optimiser = torch.optim.SGD(reference.parameters(), lr=1 / 64, momentum=0.9)
    x = torch.from_numpy(timed.samples.inputs(slice(None)).astype(np.float32))
    y = torch.from_numpy(timed.samples.y)

    def step() -> object:
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(reference(x), y)
        loss.backward()
        optimiser.step()
        return loss

    return step


def _weights(graph: Graph) -> Any:
    return next(node.attrs["weight"] for node in graph.nodes if "weight" in node.attrs)


def in_turns(steps: list[Callable[[], object]], count: int = STEPS) -> list[float]:
    """Seconds of processor time of each kind of step, the median of many; they take turns on one thread."""
    seconds: list[list[float]] = [[] for _ in steps]
    with threadpool_limits(1):
        for turn in range(WARM + count):
            for step, times in zip(steps, seconds, strict=True):
                begun = time.process_time()
                step()
                if turn >= WARM:
                    times.append(time.process_time() - begun)
    return [median(times) for times in seconds]


def measure_training(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """A row per network; without PyTorch only the times of the integer trainer."""
    del config  # training is the same for every NPU
    group, data = "Training, time of a step", folder()
    if data is None:
        results.skip(group, "CONCORD_DATA names no folder with networks and data")
        return
    there = find_spec("torch") is not None
    if there:
        import torch

        results.notes[group] = _NOTE.format(steps=STEPS, torch=torch.__version__)
    else:
        results.skip(f"{group}, PyTorch", f"PyTorch is not installed: {install_command('torch')}")
    for timed in networks(data):
        say(timed.name)
        medians = in_turns([make(timed) for make in ([integer_step, float_step] if there else [integer_step])])
        texts = {"batch": str(len(timed.samples)), "integers, ms": f"{1000 * medians[0]:.1f}"}
        if there:
            texts |= {"float32, ms": f"{1000 * medians[1]:.1f}", "ratio": f"{medians[0] / medians[1]:.2f}"}
        results.row(group, timed.name, texts)
