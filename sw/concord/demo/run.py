"""The demonstration from training to the comparison with the RTL."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console

from concord.compiler.calibration.calibration import largest_elements, relative_error
from concord.compiler.calibration.formats import Evidence
from concord.compiler.model import Compiled
from concord.demo.report import LayerFigures, Report, TensorFigures, draw
from concord.demo.tensors import every_tensor
from concord.demo.train import Digits, ensure_model, load_digits
from concord.display.tables import text_table
from concord.frontend import import_model
from concord.golden.binary16 import decode, encode
from concord.golden.blocks import quantize
from concord.graph import execute
from concord.graph.cost import macs
from concord.graph.ir import Graph, Node
from concord.graph.ops.linear import DenseAttributes
from concord.host import connect
from concord.image.packing import to_vectors
from concord.networks.calibrated import choose_formats
from concord.networks.folder import save_package
from concord.prove.compare import Outputs, TensorComparison, compare
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.utils.arrays import FloatArray, Ints

T = TypeVar("T")


@dataclass(frozen=True)
class DemoResults:
    """Everything the demonstration found out.

    Parameters
    ----------
    digits : Digits
        The data.
    compiled : Compiled
        The network with the formats that were chosen.
    evidence : Evidence
        Why they were.
    reference, emulated : mapping of str to array
        On the test images, by tensor, ``[images, elements]``: double precision, and the NPU.
    comparison : TensorComparison
        Of emulator and RTL.
    cycles : float
        Of one inference.
    """

    digits: Digits
    compiled: Compiled
    evidence: Evidence
    reference: dict[str, FloatArray]
    emulated: Outputs
    comparison: TensorComparison
    cycles: float

    @property
    def graph(self) -> Graph:
        """The network in double precision."""
        return self.compiled.graph

    @property
    def products(self) -> list[Node]:
        """Matrix products of the network: one per layer."""
        return [node for node in self.graph.nodes if node.op == "Dense"]

    @property
    def float_accuracy(self) -> float:
        """Share of test images that double precision gets right."""
        return float(np.mean(largest_elements(self.reference[self.graph.outputs[0]]) == self.digits.y_test))

    @property
    def predictions(self) -> Ints:
        """Classes of the test images by the NPU."""
        return largest_elements(self.emulated[self.graph.outputs[0]])

    @property
    def accuracy(self) -> float:
        """Share of test images that the NPU gets right."""
        return float(np.mean(self.predictions == self.digits.y_test))

    @property
    def utilisation(self) -> float:
        """Multiply-accumulates of the network per multiply-accumulate the NPU could have done in that time."""
        return macs(self.graph) / (self.cycles * self.compiled.image.config.macs)


def run_demo(config: NpuConfig, folder: Path, images: int, console: Console) -> bool:
    """Run the demonstration and return whether emulator and RTL agree.

    Parameters
    ----------
    config : NpuConfig
        The NPU.
    folder : Path
        Gets the model, the compiled network and the picture.
    images : int
        Number of test images that are run on the RTL.
    console : Console
        For progress and results.
    """
    step = _Steps(console)
    digits = step("data", load_digits, lambda d: f"{len(d.x_train)} training, {len(d.x_test)} test images")
    model = folder / "digits_mlp.onnx"
    step("training", lambda: ensure_model(model, digits), lambda new: f"{model}{'' if new else ' (unchanged)'}")
    graph = step("import", lambda: import_model(model), lambda g: f"{len(g.nodes)} nodes, {macs(g)} MACs")
    evidence = step(
        "formats",
        lambda: choose_formats(graph, config, _inputs(graph, digits.x_calibration)),
        lambda e: f"{e.chosen.label} best of {len(e.candidates)} on {len(digits.x_calibration)} calibration images",
    )
    compiled, path = evidence.chosen.compiled, folder / f"digits_mlp_{config.name}"
    count = f"{len(compiled.image.program)} instructions"
    step("compile", lambda: save_package(compiled.package, path, model), lambda _: f"{path}, {count}")
    inputs = _inputs(graph, digits.x_test)
    emulated = step("emulator", lambda: _emulate(compiled, inputs, console), lambda _: f"{len(digits.x_test)} images")
    few = min(images, len(digits.x_test))
    computed, cycles = _run_rtl(compiled, _inputs(graph, digits.x_test[:few]), console)
    comparison = compare({name: values[:few] for name, values in emulated.items()}, computed)
    reference = {
        name: values.reshape(len(values), -1) for name, values in execute.run(graph, inputs, keep="all").items()
    }
    outcome = DemoResults(digits, compiled, evidence, reference, emulated, comparison, cycles)
    picture = folder / "report.png"
    step("picture", lambda: draw(report(outcome), picture), lambda _: str(picture))
    show(outcome, console)
    return comparison.passed


class _Steps:
    """Runs one step after the other, and prints the result and the time of each."""

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


def _inputs(graph: Graph, images: FloatArray) -> dict[str, FloatArray]:
    """Rows of pixels as the input of the network."""
    (name,) = graph.inputs
    return {name: images.reshape(len(images), *graph.sample_shape(name))}


def _emulate(compiled: Compiled, inputs: dict[str, FloatArray], console: Console) -> Outputs:
    """Tensors of the emulator."""
    with connect("emulator", compiled.image.config) as device:
        return every_tensor(compiled, inputs, device, console)


def _run_rtl(compiled: Compiled, inputs: dict[str, FloatArray], console: Console) -> tuple[Outputs, float]:
    """Tensors of the RTL, and the cycles of one inference."""
    console.print("[bold]RTL       [/bold] Verilator simulation, driven over the host link")
    with connect("rtl", compiled.image.config) as device:
        outputs = every_tensor(compiled, inputs, device, console)
        return outputs, float(device.counters()["CYCLES"] or 0)


def show(outcome: DemoResults, console: Console) -> None:
    """Print the evidence for the formats, the error of the layers, and the results."""
    console.print(outcome.evidence.table())
    error = "error of the result"
    layers = text_table("Layers", ("layer", "size", "result stored as", error), right=[error])
    for node, form, figures in zip(outcome.products, _forms(outcome), _layer_figures(outcome), strict=True):
        outputs, inputs = node.attributes(DenseAttributes).weight.shape
        error = f"{100 * relative_error(figures.computed, figures.reference):.2f} %"
        layers.add_row(node.name, f"{inputs} x {outputs}", form, error)
    console.print(layers)
    console.print(text_table("Results", rows=_headline(outcome), header=False))
    colour = "bold green" if outcome.comparison.passed else "bold red"
    console.print(str(outcome.comparison), style=colour, highlight=False, soft_wrap=True)


def _headline(outcome: DemoResults) -> tuple[tuple[str, str], ...]:
    config = outcome.compiled.image.config
    return (
        ("accuracy in double precision", f"{100 * outcome.float_accuracy:.2f} %"),
        (f"accuracy on the NPU (BFP{config.act_mant})", f"{100 * outcome.accuracy:.2f} %"),
        ("cycles per inference", f"{outcome.cycles:.0f}"),
        (f"MAC utilisation ({config.macs} MAC/cycle)", f"{100 * outcome.utilisation:.1f} %"),
    )


def _forms(outcome: DemoResults) -> list[str]:
    """Formats in which the results of the layers are stored."""
    compiled = outcome.compiled
    return [
        facts["output"] if compiled.plan.copy(layer.target.root, Mem.NARROW) else "binary16"
        for layer, facts in zip(compiled.lowered.layers, compiled.image.metadata["layers"], strict=True)
    ]


def _layer_figures(outcome: DemoResults) -> tuple[LayerFigures, ...]:
    """Results of all layers against double precision; those in between as they are stored for the next layer."""
    return tuple(
        LayerFigures(layer.name, outcome.reference[layer.tensor], outcome.emulated[layer.tensor])
        for layer in outcome.compiled.lowered.layers
    )


def _tensor_figures(outcome: DemoResults) -> tuple[TensorFigures, ...]:
    """Places of the values of the tensors that are stored narrow in the window of the mantissa."""
    config, layers = outcome.compiled.image.config, outcome.compiled.lowered.layers
    (image,) = outcome.graph.inputs
    tensors = [(image, image, "dynamic exponent")]
    tensors += [(layer.name, layer.tensor, form) for layer, form in zip(layers, _forms(outcome), strict=True)]
    figures = []
    for name, tensor, form in tensors:
        if form == "binary16":
            continue
        vectors = to_vectors(encode(outcome.reference[tensor]), config)
        static = outcome.compiled.package.formats.exponents.get(tensor)
        exponent = quantize(vectors, config.act).exp if static is None else np.full(len(vectors), static)
        codes = np.abs(decode(vectors)) * 2.0 ** -np.asarray(exponent, dtype=np.float64)[:, None]
        figures.append(TensorFigures(name, form, codes[codes > 0], config.act_mant))
    return tuple(figures)


def report(outcome: DemoResults) -> Report:
    """Contents of the picture."""
    shapes = [node.attributes(DenseAttributes).weight.shape for node in outcome.products]
    widths = "-".join(map(str, [shapes[0][1], *(outputs for outputs, _ in shapes)]))
    comparison = outcome.comparison
    verdict = f"PASS ({comparison.values} values)" if comparison.passed else "FAIL"
    return Report(
        title=f"Concord on {outcome.compiled.image.config.name}: handwritten digits, {widths} perceptron",
        headline=(*_headline(outcome), ("emulator = RTL", verdict)),
        labels=outcome.digits.y_test,
        predictions=outcome.predictions,
        layers=_layer_figures(outcome),
        tensors=_tensor_figures(outcome),
    )
