"""The demonstration of training: block floating point from the first step to the classified test images."""

from __future__ import annotations

import time
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from concord.compiler.calibration.calibration import largest_elements
from concord.compiler.model import Compiled, compile_graph
from concord.demo.train import Digits, load_digits
from concord.display.pictures import AMBER, BLUE, TEAL, drawing, png
from concord.display.tables import text_table
from concord.frontend import import_model
from concord.graph.ir import Graph
from concord.host import connect
from concord.host.progress import load, run_batch
from concord.networks.folder import save_package
from concord.prove.compare import TensorComparison, compare
from concord.spec.config import NpuConfig
from concord.train import Figures, Samples, Settings, Trainer, described, export_onnx
from concord.train.console import run as train_with_bar
from concord.train.console import saturated, updates_lost
from concord.utils.arrays import Array, FloatArray, Ints
from concord.utils.files import write_bytes

#: The network: two convolutions and a product.
LAYERS: tuple[dict[str, Any], ...] = (
    {"op": "conv", "channels": 8, "pad": 1},
    {"op": "relu"},
    {"op": "max_pool"},
    {"op": "conv", "channels": 16, "pad": 1},
    {"op": "relu"},
    {"op": "max_pool"},
    {"op": "flatten"},
    {"op": "dense", "outputs": 10},
)
#: Network to train on an NPU in its place: the memories of the NPU hold a whole batch of it.
DENSE_LAYERS: tuple[dict[str, Any], ...] = (
    {"op": "flatten"},
    {"op": "dense", "outputs": 64},
    {"op": "relu"},
    {"op": "dense", "outputs": 32},
    {"op": "relu"},
    {"op": "dense", "outputs": 10},
)
SETTINGS = Settings(
    epochs=16, batch=32, rate=Fraction(1, 32), schedule=((8, Fraction(1, 2)), (12, Fraction(1, 4))), seed=7
)


@dataclass(frozen=True)
class TrainingResults:
    """Results of the demonstration.

    Parameters
    ----------
    history : list of Figures
        Of the training.
    seconds : float
        It took.
    accuracy : float
        Of the NPU on the test images.
    comparison : TensorComparison
        Of emulator and RTL.
    different : list of str or None
        Parameters that the NPU has trained to other numbers than this machine; ``None`` if this machine alone has.
    """

    history: list[Figures]
    seconds: float
    accuracy: float
    comparison: TensorComparison
    different: list[str] | None = None

    @property
    def passed(self) -> bool:
        """True if the RTL agrees and no tensor differs that must not."""
        return self.comparison.passed and not self.different


def samples_of(images: FloatArray, labels: Ints) -> Samples:
    """Rows of 64 pixels as images."""
    return Samples(images.reshape(-1, 1, 8, 8), labels)


def run_training_demo(
    config: NpuConfig,
    folder: Path,
    images: int | None,
    console: Console,
    settings: Settings = SETTINGS,
    on: str | None = None,
) -> TrainingResults:
    """Train on the digits of scikit-learn, compile, and classify the test images on emulator and RTL.

    Parameters
    ----------
    config : NpuConfig
        The NPU.
    folder : Path
        Gets the network, the compiled network and the curves.
    images : int or None
        Number of test images that are run on the RTL; ``None``: all.
    console : Console
        For progress and results.
    settings : Settings
        Of the training.
    on : str or None
        What trains: ``None``, this machine; or an NPU with :func:`concord.train.npu.training_config`, ``"emulator"``,
        ``"rtl"`` or a serial port, and then this machine as well, for comparison. That is a network of dense layers.
    """
    digits: Digits = load_digits()
    test = samples_of(digits.x_test, digits.y_test)
    name, layers = ("digits_cnn", LAYERS) if on is None else ("digits_mlp", DENSE_LAYERS)
    graph, learned = described(list(layers), (1, 8, 8), name), samples_of(digits.x_train, digits.y_train)
    trainer = Trainer(graph, learned, settings, test, random=True)
    there = None if on is None else _trained_on(on, graph, learned, settings, console)
    start = time.monotonic()
    train_with_bar(trainer, None, console, [False])
    seconds = time.monotonic() - start
    here = _numbers(trainer)
    different = None if there is None else [key for key in here if not np.array_equal(here[key], there[key])]
    folder.mkdir(parents=True, exist_ok=True)
    model = folder / f"{name}.onnx"
    write_bytes(model, export_onnx(trainer.trained()))
    compiled = compile_graph(import_model(model), config)
    save_package(compiled.package, folder / f"{name}_{config.name}", model)
    few = len(test) if images is None else min(images, len(test))
    emulated = _outputs("emulator", compiled, test, len(test), console)
    computed = _outputs("rtl", compiled, test, few, console)
    (logits,) = emulated.values()
    comparison = compare({name: values[:few] for name, values in emulated.items()}, computed)
    outcome = TrainingResults(
        trainer.history, seconds, float(np.mean(largest_elements(logits) == test.y)), comparison, different
    )
    draw(outcome, folder / "training.png")
    show(outcome, trainer, few, console)
    console.print(f"written to {folder}: network, compiled network, training.png", soft_wrap=True)
    return outcome


def _trained_on(on: str, graph: Graph, learned: Samples, settings: Settings, console: Console) -> dict[str, Ints]:
    """Train on an NPU; what it has come to, by parameter."""
    from concord.train.npu import NpuTrainer, training_config

    with connect(on, training_config()) as device:
        console.print(f"training on {on}, {device.config.name}")
        trainer = NpuTrainer(device, graph, learned, settings, random=True)
        train_with_bar(trainer, None, console, [False])
        return _numbers(trainer)


def _numbers(trainer: Trainer) -> dict[str, Ints]:
    """Weights, accumulators and exponents of every parameter, one after the other."""
    trainer.trained()  # an NPU has the parameters until they are read
    return {
        name: np.concatenate([array.astype(np.int64).ravel() for array in (p.weight, p.acc, p.exp)])
        for name, p in trainer.network.parameters.items()
    }


def _outputs(on: str, compiled: Compiled, samples: Samples, count: int, console: Console) -> dict[str, Array]:
    """Results of the NPU by name, ``[samples, elements]``."""
    inputs = {compiled.graph.inputs[0]: samples.inputs(slice(0, count))}
    with connect(on, compiled.image.config) as device:
        load(device, compiled.image, console)
        vectors = run_batch(device, compiled.package.pack(inputs), console, f"{count} images on {on}")
    results = compiled.package.finish(inputs, vectors)
    return {name: values.reshape(len(values), -1) for name, values in results.items()}


def show(outcome: TrainingResults, trainer: Trainer, few: int, console: Console) -> None:
    """Print the results."""
    last = outcome.history[-1]
    weights = sum(p.count for p in trainer.network.parameters.values())
    rows = (
        ("weights and biases", f"{weights}, of {trainer.settings.formats.weight.bits} bits"),
        ("time", f"{outcome.seconds:.1f} s for {len(outcome.history)} epochs"),
        ("test accuracy in training", f"{100 * (last.test_accuracy or 0):.2f} %"),
        ("test accuracy on the NPU", f"{100 * outcome.accuracy:.2f} %"),
        ("images on the RTL", str(few)),
    )
    console.print(text_table("Training in block floating point", rows=rows, header=False))
    for line in [*updates_lost(outcome.history), *saturated(outcome.history)]:
        console.print(line, soft_wrap=True)
    colour = "bold green" if outcome.comparison.passed else "bold red"
    console.print(str(outcome.comparison), style=colour, highlight=False, soft_wrap=True)
    if outcome.different is not None:
        wrong = ", ".join(outcome.different)
        text = f"trained on the NPU = trained here: {f'FAIL ({wrong})' if wrong else f'PASS ({weights} weights)'}"
        console.print(text, style="bold red" if wrong else "bold green", highlight=False, soft_wrap=True)


def draw(outcome: TrainingResults, path: Path) -> None:
    """Draw loss, accuracy, and the shares of refused and vanished updates, by epoch."""
    history = outcome.history
    epochs = [f.epoch + 1 for f in history]
    counted = [max(f.counts.elements, 1) for f in history]
    accuracies = (
        ("training", BLUE, [100 * (f.accuracy or 0) for f in history]),
        ("test", AMBER, [100 * (f.test_accuracy or 0) for f in history]),
    )
    updates = (
        ("refused", AMBER, [100 * f.counts.refused / n for f, n in zip(history, counted, strict=True)]),
        ("vanished", TEAL, [100 * f.counts.vanished / n for f, n in zip(history, counted, strict=True)]),
    )
    panels = (
        ("Loss", (("training", BLUE, [f.loss for f in history]), ("test", AMBER, [f.test_loss for f in history]))),
        ("Accuracy in %", accuracies),
        ("Updates in %", updates),
    )
    with drawing() as plt:
        figure, places = plt.subplots(1, 3, figsize=(13.5, 3.9), layout="constrained")
        network = "Digits CNN" if outcome.different is None else "Dense layers on digits, trained on the NPU"
        title = f"{network}, weights of 8 bits, no float copy: {100 * outcome.accuracy:.2f} % on the NPU"
        figure.suptitle(title, weight="bold", x=0.01, ha="left")
        for axes, (name, lines) in zip(places, panels, strict=True):
            for label, colour, values in lines:
                axes.plot(epochs, values, color=colour, label=label, marker="o", markersize=3)
            axes.set(title=name, xlabel="epoch")
            axes.grid(axis="y")
            axes.legend()
        write_bytes(path, png(figure))
