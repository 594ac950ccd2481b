"""The demonstration from training to the comparison with the RTL."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from rich import box
from rich.console import Console
from rich.table import Table

from concord.calibration import Evidence, choose_formats, emulate
from concord.compiler.formats import relative_error
from concord.demo.compare import Comparison, Outputs, compare
from concord.demo.report import LayerFigures, Report, TensorFigures, draw
from concord.demo.train import Digits, ensure_model, load_digits
from concord.golden.blocks import quantize
from concord.golden.half import decode, encode
from concord.host import connect
from concord.image import Image
from concord.mlp import INPUT, OUTPUT, CompiledMlp, compile_mlp
from concord.network import Network
from concord.onnx_import import import_onnx
from concord.packing import to_vectors
from concord.progress import load, run_batch
from concord.spec.config import NpuConfig

Floats = npt.NDArray[np.float64]
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """Everything the demonstration found out."""

    digits: Digits
    compiled: CompiledMlp
    evidence: Evidence
    emulated: Outputs
    comparison: Comparison
    cycles: float

    @property
    def network(self) -> Network:
        """The network in double precision."""
        return self.compiled.network

    @property
    def float_accuracy(self) -> float:
        """Share of test images that double precision gets right."""
        return float(np.mean(self.network(self.digits.x_test).argmax(axis=1) == self.digits.y_test))

    @property
    def predictions(self) -> npt.NDArray[np.int64]:
        """What the NPU says to the test images."""
        return np.asarray(self.emulated[OUTPUT].argmax(axis=1))

    @property
    def accuracy(self) -> float:
        """Share of test images that the NPU gets right."""
        return float(np.mean(self.predictions == self.digits.y_test))

    @property
    def utilisation(self) -> float:
        """Multiply-accumulates of the network per multiply-accumulate the NPU could have done in that time."""
        return self.network.macs / (self.cycles * self.compiled.config.macs)


def run_demo(config: NpuConfig, folder: Path, images: int, console: Console) -> bool:
    """Run the demonstration and return whether emulator and RTL agree.

    Parameters
    ----------
    config : NpuConfig
        The NPU.
    folder : Path
        Gets the model, the image and the picture.
    images : int
        Test images that are run on the RTL.
    console : Console
        For progress and results.
    """
    step = _Steps(console)
    digits = step("data", load_digits, lambda d: f"{len(d.x_train)} training, {len(d.x_test)} test images")
    model = folder / "digits_mlp.onnx"
    step("training", lambda: ensure_model(model, digits), lambda new: f"{model}{'' if new else ' (unchanged)'}")
    network = step("import", lambda: import_onnx(model), lambda n: f"{len(n.layers)} layers, {n.macs} MACs")
    evidence = step(
        "formats",
        lambda: choose_formats(network, config, emulate, digits.x_calibration, digits.y_calibration),
        lambda e: f"{e.chosen.label} is best of {len(e.candidates)} on {len(digits.x_calibration)} calibration images",
    )
    compiled = compile_mlp(network, config, evidence.chosen.formats)
    path = folder / f"digits_mlp_{config.name}.image"
    step("compile", lambda: compiled.image.save(path), lambda _: f"{path}, {len(compiled.words)} instructions")
    emulated = step(
        "emulator", lambda: emulate(compiled.tapped, digits.x_test), lambda _: f"{len(digits.x_test)} images"
    )
    count = min(images, len(digits.x_test))
    computed, cycles = _run_rtl(compiled.tapped, digits.x_test[:count], console)
    comparison = compare({name: values[:count] for name, values in emulated.items()}, computed)
    outcome = Outcome(digits, compiled, evidence, emulated, comparison, cycles)
    picture = folder / "report.png"
    step("picture", lambda: draw(report(outcome), picture), lambda _: str(picture))
    show(outcome, console)
    return comparison.passed


class _Steps:
    """Runs one step after the other and says what came of each, and how long it took."""

    def __init__(self, console: Console):
        self.console = console

    def __call__(self, name: str, action: Callable[[], T], result: Callable[[T], str]) -> T:
        start = time.monotonic()
        with self.console.status(f"{name} ..."):
            value = action()
        self.console.print(
            f"[bold]{name:<10}[/bold] {result(value)} [dim]({time.monotonic() - start:.1f} s)[/dim]", soft_wrap=True
        )
        return value


def _run_rtl(image: Image, x: Floats, console: Console) -> tuple[dict[str, npt.NDArray[Any]], float]:
    """Outputs of the RTL, and the cycles of one inference."""
    console.print("[bold]RTL       [/bold] Verilator simulation, driven over the host link")
    with connect("rtl", image.config) as device:
        load(device, image, console)
        outputs = run_batch(device, {INPUT: x}, console, f"{len(x)} images")
        return outputs, float(device.counters()["CYCLES"] or 0)


def show(outcome: Outcome, console: Console) -> None:
    """Print the evidence for the formats, the error of the layers, and the results."""
    console.print(outcome.evidence.table())
    layers = Table(title="Layers", box=box.SIMPLE_HEAD, title_justify="left")
    for column in ("layer", "size", "input stored with", "error of its output"):
        layers.add_column(column)
    for layer, narrow, figures in zip(
        outcome.network.layers, outcome.compiled.formats, _layer_figures(outcome), strict=True
    ):
        error = f"{100 * relative_error(figures.computed, figures.reference):.2f} %"
        layers.add_row(layer.name, f"{layer.inputs} x {layer.outputs}", str(narrow), error)
    console.print(layers)
    results = Table(title="Results", box=box.SIMPLE_HEAD, title_justify="left", show_header=False)
    for label, value in _headline(outcome):
        results.add_row(label, value)
    console.print(results)
    colour = "bold green" if outcome.comparison.passed else "bold red"
    console.print(str(outcome.comparison), style=colour, highlight=False, soft_wrap=True)


def _headline(outcome: Outcome) -> tuple[tuple[str, str], ...]:
    config = outcome.compiled.config
    return (
        ("accuracy in double precision", f"{100 * outcome.float_accuracy:.2f} %"),
        (f"accuracy on the NPU (BFP{config.act_mant})", f"{100 * outcome.accuracy:.2f} %"),
        ("cycles per inference", f"{outcome.cycles:.0f}"),
        (f"MAC utilisation ({config.macs} MAC/cycle)", f"{100 * outcome.utilisation:.1f} %"),
    )


def _layer_figures(outcome: Outcome) -> tuple[LayerFigures, ...]:
    """Outputs of all layers against double precision; those in between as they are stored for the next layer."""
    references = outcome.network.trace(outcome.digits.x_test)
    stored = [values for name, values in outcome.emulated.items() if name != "input"]
    return tuple(
        LayerFigures(layer.name, reference, np.asarray(values, dtype=np.float64))
        for layer, reference, values in zip(outcome.network.layers, references, stored, strict=True)
    )


def _tensor_figures(outcome: Outcome) -> tuple[TensorFigures, ...]:
    """Where the values of the tensors that are stored narrow lie in the window of the mantissa."""
    config = outcome.compiled.config
    inputs = [outcome.digits.x_test, *outcome.network.trace(outcome.digits.x_test)[:-1]]
    names = ["input", *(layer.name for layer in outcome.network.layers[:-1])]
    figures = []
    for name, values, narrow in zip(names, inputs, outcome.compiled.formats, strict=True):
        vectors = to_vectors(encode(values), config)
        dynamic = quantize(vectors, config.act).exp
        exponent = dynamic if narrow.exponent is None else np.full(len(vectors), narrow.exponent)
        codes = np.abs(decode(vectors)) * 2.0 ** -np.asarray(exponent, dtype=np.float64)[:, None]
        figures.append(TensorFigures(name, str(narrow), codes[codes > 0], config.act_mant))
    return tuple(figures)


def report(outcome: Outcome) -> Report:
    """What goes into the picture."""
    widths = [outcome.network.inputs, *(layer.outputs for layer in outcome.network.layers)]
    comparison = outcome.comparison
    verdict = f"PASS ({comparison.values} values)" if comparison.passed else "FAIL"
    return Report(
        title=f"Concord on {outcome.compiled.config.name}: handwritten digits, {'-'.join(map(str, widths))} perceptron",
        headline=(*_headline(outcome), ("emulator = RTL", verdict)),
        labels=outcome.digits.y_test,
        predictions=outcome.predictions,
        layers=_layer_figures(outcome),
        tensors=_tensor_figures(outcome),
    )
