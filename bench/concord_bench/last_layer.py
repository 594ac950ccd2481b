"""``python -m concord_bench.last_layer``: a frozen network learns kinds of clothes that it has never seen, on the NPU.

A network that knows seven kinds of clothes is compiled up to its last layer, which gives features. The last layer gets
three more classes and learns from a few pictures of each. Features and learning are two programs of one small NPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from concord.cli.common import FILE, readable, wide_console
from concord.compiler.model import compile_graph
from concord.frontend import import_model
from concord.graph import execute
from concord.graph.ir import Graph
from concord.graph.last_layer import joined, split_last_layer, with_classes
from concord.graph.ops.linear import DenseAttributes
from concord.host.emulated import EmulatedDevice
from concord.spec.boards import link_of
from concord.spec.config import NpuConfig
from concord.spec.config_file import read_config
from concord.spec.memmap import Region
from concord.train import Samples, Settings, described, export_onnx
from concord.train.npu import NpuTrainer
from concord.train.trainer import order_of
from concord.utils.files import write_bytes
from concord_bench.results import Results
from concord_bench.tasks import folder

#: The NPU.
CONFIG = read_config(Path(str(files("concord_bench") / "last_layer.toml")))
#: The greatest weight that it has an exponent for.
WEIGHT_MAX = CONFIG.wgt.q_max * 2.0**CONFIG.wgt_exp_max
#: The frozen network, and the kinds of clothes that it knows; those after them are new.
LAYERS: tuple[dict[str, Any], ...] = (
    {"op": "conv", "channels": 16, "stride": 2, "pad": 1}, {"op": "relu"},
    {"op": "conv", "channels": 32, "stride": 2, "pad": 1}, {"op": "relu"},
    {"op": "conv", "channels": 64, "pad": 1}, {"op": "relu"},
    {"op": "global_average"}, {"op": "flatten"}, {"op": "dense", "outputs": 7},
)  # fmt: skip
KNOWN, CLASSES = 7, 10
#: Pictures have bytes; the network reads 0 to 2.
SCALE = 1 / 128
SETTINGS = Settings(epochs=40, batch=16, rate=Fraction(1, 64), momentum=Fraction(0))

Pixels = NDArray[np.uint8]
Labels = NDArray[np.int64]


class CountingDevice(EmulatedDevice):
    """An emulator that counts: cycles, and bytes that would travel over a link, without their frames."""

    def __init__(self, config: NpuConfig):
        super().__init__(config)
        self.cycles = self.sent = self.received = 0

    def _read(self, region: Region, addr: int, count: int) -> bytes:
        data = super()._read(region, addr, count)
        self.received += len(data)
        return data

    def _write(self, region: Region, addr: int, data: bytes) -> None:
        self.sent += len(data)
        super()._write(region, addr, data)

    def wait(self, timeout: float | None = None) -> None:
        """Wait for the end of a run, and add its cycles."""
        super().wait(timeout)
        self.cycles += self.runs()[-1].cycles

    @property
    def counts(self) -> tuple[int, int, int]:
        """Cycles, bytes to the device, and bytes from it."""
        return self.cycles, self.sent, self.received


@dataclass(frozen=True)
class Learned:
    """A last layer that has learned.

    Parameters
    ----------
    last : Graph
        With the new weights.
    steps : int
        Of the training.
    cycles, sent, received : int
        Of one step, of a whole batch.
    image_bytes : int
        Of the program and the memories as they are at the beginning.
    """

    last: Graph
    steps: int
    cycles: int
    sent: int
    received: int
    image_bytes: int


def trained_network(x: Pixels, y: Labels, epochs: int = 5, seed: int = 1) -> Graph:
    """The frozen network, trained with PyTorch in float32 on the kinds that it is to know.

    Weights are kept within :data:`WEIGHT_MAX` after every step.
    """
    import torch
    from torch import nn

    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(),
        nn.Conv2d(32, 64, 3, 1, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, KNOWN),
    )  # fmt: skip
    pictures, labels = torch.tensor(x * SCALE, dtype=torch.float32), torch.tensor(y)
    steps = epochs * -(-len(x) // 64)
    optimiser = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 4e-3, total_steps=steps)
    for step in range(steps):
        if step % (steps // epochs) == 0:
            order = torch.randperm(len(x))
        rows = order[step % (steps // epochs) * 64 :][:64]
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(pictures[rows]), labels[rows]).backward()
        optimiser.step()
        schedule.step()
        with torch.no_grad():
            for part in net:
                if hasattr(part, "weight"):
                    part.weight.clamp_(-WEIGHT_MAX, WEIGHT_MAX)
    graph, products = described(LAYERS, (1, 28, 28), "clothes"), [part for part in net if hasattr(part, "weight")]
    for index, node in enumerate(graph.nodes):
        if "weight" in node.attrs:
            values = products.pop(0).state_dict()
            graph.nodes[index] = node.with_attrs(**{name: value.double().numpy() for name, value in values.items()})
    return graph


def results_of(graph: Graph, device: EmulatedDevice, x: NDArray[Any]) -> NDArray[np.float64]:
    """Compile a network for a device, load it, and compute its results of a batch."""
    compiled = compile_graph(graph, device.config)
    device.load(compiled.image)
    return np.asarray(compiled.run(device, {graph.inputs[0]: x})[graph.outputs[0]])


def learned(device: CountingDevice, last: Graph, samples: Samples, settings: Settings) -> Learned:
    """Let a last layer learn from features on a device."""
    sent = device.sent
    trainer = NpuTrainer(device, last, samples, settings)
    image_bytes = device.sent - sent
    trainer.step()  # parameters and factors travel with the first one
    before = device.counts
    trainer.step()
    cycles, sent, received = (now - then for now, then in zip(device.counts, before, strict=True))
    steps = 2
    while not trainer.finished:
        trainer.step()
        steps += 1
    return Learned(trainer.trained(), steps, cycles, sent, received, image_bytes)


def learned_in_float32(last: Graph, samples: Samples, settings: Settings) -> Graph:
    """Train the last layer in float32 with the steps that the NPU takes, to compare with."""
    node = last.nodes[0]
    dense = node.attributes(DenseAttributes)
    x, y = samples.x.astype(np.float32), samples.y
    weight, bias = dense.weight.astype(np.float32), dense.bias.astype(np.float32)
    rate, targets = np.float32(settings.rate), np.eye(len(bias), dtype=np.float32)[y]
    for epoch in range(settings.epochs):
        order = order_of(settings.seed, epoch, len(x))
        for rows in np.split(order, range(settings.batch, len(x), settings.batch)):
            scores = x[rows] @ weight.T + bias
            shares = np.exp(scores - scores.max(axis=1, keepdims=True))
            gradient = (shares / shares.sum(axis=1, keepdims=True) - targets[rows]) / np.float32(len(rows))
            weight -= rate * gradient.T @ x[rows]
            bias -= rate * gradient.sum(axis=0)
    changed = last.copy()
    changed.nodes[0] = node.with_attrs(weight=weight.astype(float), bias=bias.astype(float))
    return changed


def some_of_each(y: Labels, count: int, seed: int) -> Labels:
    """Rows of so many samples of every class, drawn with a seed."""
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.permutation(np.flatnonzero(y == label))[:count] for label in np.unique(y)])


def shares(scores: NDArray[Any], y: Labels) -> tuple[float, float, float]:
    """Accuracy on known classes, on new ones, and on all."""
    right, old = scores.argmax(axis=1) == y, y < KNOWN
    return float(right[old].mean()), float(right[~old].mean()), float(right.mean())


@dataclass(frozen=True)
class Clothes:
    """Pictures to learn from and to judge by."""

    x: Pixels
    y: Labels
    x_test: Pixels
    y_test: Labels

    @classmethod
    def read(cls, tests: int) -> Clothes:
        """Pictures of ``CONCORD_DATA``, so many of them to judge by."""
        root = folder()
        if root is None:
            raise ValueError("CONCORD_DATA must name the folder with the pictures")
        with np.load(root / "data" / "train_fashion.npz") as data:
            return cls(
                data["x_train"], data["y_train"].astype(np.int64), data["x_test"][:tests],
                data["y_test"][:tests].astype(np.int64),
            )  # fmt: skip


def measure(network: Graph, clothes: Clothes, counts: Sequence[int], seeds: int, results: Results) -> None:
    """Learn the new classes from some samples of each class, drawn with several seeds, and note what comes of it."""
    features, last = split_last_layer(network)
    last, tests = with_classes(last, CLASSES), clothes.x_test * SCALE
    exact_tests = _exact(features, tests)
    with CountingDevice(CONFIG) as device:
        before = shares(results_of(joined(features, last), device, tests), clothes.y_test)
        _note(results, "before", [before])
        for count in counts:
            there, floats = [], []
            for seed in range(1, seeds + 1):
                rows = some_of_each(clothes.y, count, seed)
                x, y = clothes.x[rows] * SCALE, clothes.y[rows]
                layer = learned(device, last, Samples(results_of(features, device, x), y), SETTINGS)
                there.append(shares(results_of(joined(features, layer.last), device, tests), clothes.y_test))
                reference = learned_in_float32(last, Samples(_exact(features, x), y), SETTINGS)
                floats.append(shares(_exact(reference, exact_tests), clothes.y_test))
            steps = {"steps": f"{layer.steps:,}"}
            _note(results, f"{count} of each, NPU", there, steps)
            _note(results, f"{count} of each, float32", floats, steps)
        results_of(features, device, tests[:1])
        picture = device.counters()["CYCLES"] or 0
    _note_times(results, layer, picture)


def _exact(graph: Graph, x: NDArray[Any]) -> NDArray[np.float64]:
    """Results of a graph in double precision."""
    return np.asarray(execute.run(graph, {graph.inputs[0]: x})[graph.outputs[0]])


def _note(
    results: Results, name: str, accuracies: list[tuple[float, float, float]], steps: dict[str, str] | None = None
) -> None:
    """A line of the table, with means."""
    texts = {"steps": "0"} | (steps or {})
    for what, share in zip(("known", "new", "all"), np.mean(accuracies, axis=0), strict=True):
        texts[what] = f"{100 * share:.1f} %"
    results.row("Last layer: accuracy", name, texts)


def _note_times(results: Results, layer: Learned, picture: int) -> None:
    """Cycles, and times at the clock and on the link of the board."""
    group, link, seconds = "Last layer: times", link_of(CONFIG.board), 1 / CONFIG.clock_hz
    results.add(group, "features of a picture", picture, "cycles")
    results.add(group, "features of a picture", 1000 * picture * seconds, "ms")
    results.add(group, f"step of {SETTINGS.batch} samples", layer.cycles, "cycles")
    results.add(group, f"step of {SETTINGS.batch} samples", 1000 * layer.cycles * seconds, "ms")
    for name, count in (("to the NPU", layer.sent), ("from the NPU", layer.received)):
        results.add(group, f"step, {name}", count, "bytes")
    travels = (layer.sent + layer.received) / link.bytes_per_second
    results.add(group, f"step, bytes on the link ({link.text})", 1000 * travels, "ms")
    results.add(group, "program and memories, once", layer.image_bytes, "bytes")


@click.command()
@click.option(
    "--network", default=Path("build/last_layer/clothes.onnx"), show_default=True, type=FILE,
    help="ONNX file of the frozen network; it is trained with PyTorch if it is not there.",
)  # fmt: skip
@click.option("--samples", default="5,10,20", show_default=True, help="Samples of each class, several numbers.")
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(min=1), help="Choices of samples.")
@click.option("--tests", default=5000, show_default=True, type=click.IntRange(min=1), help="Pictures to judge by.")
@readable
def main(network: Path, samples: str, seeds: int, tests: int) -> None:
    """Let a frozen network learn kinds of clothes that it has never seen, on the NPU (the emulator).

    The pictures are those of the folder CONCORD_DATA.
    """
    counts, console = [int(text) for text in samples.split(",")], wide_console()
    clothes, results = Clothes.read(tests), Results(f"Last layer on {CONFIG.name}")
    if not network.exists():
        with console.status("training the network that will be frozen"):
            known = clothes.y < KNOWN
            network.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(network, export_onnx(trained_network(clothes.x[known], clothes.y[known])))
    with console.status("learning"):
        measure(import_model(network), clothes, counts, seeds, results)
    results.show(console)


if __name__ == "__main__":
    main()
