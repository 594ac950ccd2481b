"""Error of perceptrons on tables whose features differ in scale, with channels as they are and equalised."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from concord.api.compiling import CompileRequest, compile_network
from concord.compiler.calibration.calibration import relative_error
from concord.compiler.calibration.equalisation import better
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import Compiled, compile_graph
from concord.graph import execute
from concord.graph.ir import Graph, Node, Shape
from concord.host import connect
from concord.networks.calibrated import calibration_of, emulate
from concord.program.allocator import CapacityError
from concord.spec.compile_options import CompileOptions
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray
from concord_bench.results import Results
from concord_bench.tasks import TASKS, calibration, folder, load, run

#: Numbers of features.
FEATURES = (8, 16, 32, 64)
#: Smallest and largest deviation of a feature.
SPREAD = (0.3, 50.0)
#: Samples that formats are chosen with, and others that errors are measured on.
SAMPLES, MEASURED = 60, 200
_HIDDEN, _OUTPUTS = 24, 3
_GROUP = "Features of different scales"
_NOTE = (
    f"Relative error of perceptrons (24 hidden, 3 outputs) on {MEASURED} samples of normal features, with deviations "
    f"from {SPREAD[0]:g} to {SPREAD[1]:g}, and means of 2000 with deviations from 0.5 to 2. Weights suit features of "
    f"deviation 1; a scaler is in the network, or in the weights. With {SAMPLES} other samples, and without."
)
#: Bits of the weights of trained networks.
WEIGHT_BITS = (8, 6, 5)
_NETWORKS = "Equalised networks"
_NETWORKS_NOTE = (
    "Error and score on all recorded samples, with dynamic exponents and about 100 other samples; networks and widths "
    "for which powers of two are taken. All others stay as they are."
)


def deviations(features: int, spread: tuple[float, float] = SPREAD, seed: int = 0) -> FloatArray:
    """Deviations of features, the least and the greatest of ``spread`` among them."""
    sizes = np.exp(np.random.default_rng(seed).uniform(np.log(spread[0]), np.log(spread[1]), features))
    sizes[0], sizes[-1] = spread
    return np.asarray(sizes)


def perceptron(
    sizes: FloatArray, middle: float = 0.0, scaler: bool = False, hidden: int = _HIDDEN, outputs: int = _OUTPUTS
) -> Graph:
    """Two products for standardised features, made for the raw ones.

    Parameters
    ----------
    sizes : array
        Deviation of every feature.
    middle : float
        Mean of all features.
    scaler : bool
        Whether the network subtracts and divides in front of the first product; else its weights do.
    hidden, outputs : int
        Results of both products.
    """
    rng, features = np.random.default_rng(0), len(sizes)
    first, second = rng.normal(size=(hidden, features)) / features**0.5, rng.normal(size=(outputs, hidden))
    bias, back = rng.normal(0, 0.3, hidden), rng.normal(0, 0.3, outputs)
    front, name = [], "x"
    if scaler:
        name = "standard"
        front = [
            Node("Sub", "mean", ("x",), ("centred",), {"constant": np.full((1, features), middle)}),
            Node("Mul", "deviation", ("centred",), (name,), {"constant": 1 / sizes[None]}),
        ]
    else:
        first = first / sizes
        bias = bias - first.sum(axis=1) * middle
    nodes = [
        *front,
        Node("Dense", "first", (name,), ("h",), {"weight": first, "bias": bias}),
        Node("Relu", "relu", ("h",), ("r",)),
        Node("Dense", "second", ("r",), ("y",), {"weight": second / hidden**0.5, "bias": back}),
    ]
    sizes_of = dict.fromkeys(("x", "centred", "standard")[: 3 if scaler else 1], features)
    sizes_of |= {"h": hidden, "r": hidden, "y": outputs}
    shapes: dict[str, Shape] = {tensor: (1, size) for tensor, size in sizes_of.items()}
    return Graph("perceptron", nodes, ["x"], ["y"], shapes, {"x", "y"})


def rows(sizes: FloatArray, count: int, middle: float = 0.0, seed: int = 1) -> dict[str, FloatArray]:
    """Samples of a table."""
    return {"x": middle + sizes * np.random.default_rng(seed).normal(size=(count, len(sizes)))}


def error(compiled: Compiled, graph: Graph, x: dict[str, FloatArray]) -> float:
    """Relative error of the result on the emulator."""
    return relative_error(emulate(compiled, x)["y"], execute.run(graph, x)["y"])


def measure_feature_scales(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """A row per kind of table and number of features."""
    results.notes[_GROUP] = _NOTE
    kinds = {
        "in the weights": (SPREAD, 0.0, False),
        "scaler": (SPREAD, 0.0, True),
        "2000, scaler": ((0.5, 2.0), 2000.0, True),
        "2000, in the weights": ((0.5, 2.0), 2000.0, False),
    }
    for kind, (spread, middle, scaler) in kinds.items():
        say(f"features of different scales, {kind}")
        for features in FEATURES:
            sizes = deviations(features, spread)
            graph, x = perceptron(sizes, middle, scaler), rows(sizes, MEASURED, middle)
            samples = rows(sizes, SAMPLES, middle, seed=2)
            compiled = {
                "as they are": compile_graph(graph, config),
                "with samples": compile_network(CompileRequest(graph, CompileOptions(), samples), config).compiled,
                "without samples": compile_network(CompileRequest(graph, CompileOptions()), config).compiled,
            }
            cells = {name: f"{100 * error(network, graph, x):.2f} %" for name, network in compiled.items()}
            results.row(_GROUP, f"{kind}, {features} features", cells)
    _measure_networks(config, results, say)


def _measure_networks(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """A row per trained network and width of weights for which scales are taken."""
    if (data := folder()) is None:
        results.skip(_NETWORKS, "CONCORD_DATA does not name a folder with networks")
        return
    results.notes[_NETWORKS] = _NETWORKS_NOTE
    for task in TASKS:
        say(f"channels of {task.model}")
        graph, inputs, labels = load(task, data)
        try:
            layers = compile_graph(graph, config, batch=task.batch).lowered.layers
        except (CapacityError, Unsupported) as refused:
            results.skip(f"{task.model}, channels", str(refused))
            continue
        samples = calibration_of(graph, calibration(task, graph, data), batch=task.batch)
        for bits in WEIGHT_BITS:
            narrow = bits < config.wgt_mant
            widths = {layer.name: bits for layer in layers if layer.weights and narrow}
            equal, compared = better(samples, config, widths)
            if not compared:
                continue
            after = equal.measure("equalised", config, Formats(mantissas=widths))
            want = run(task, graph, partial(execute.run, graph), inputs)[1][graph.outputs[0]]
            cells = {}
            for name, choice in (("as they are", compared[0]), ("equalised", after)):
                with connect("emulator", config) as device:
                    device.load(choice.compiled.image)
                    got = run(task, graph, partial(choice.compiled.run, device), inputs)[1][graph.outputs[0]]
                cells[f"error, {name}"] = f"{100 * relative_error(got, want):.2f} %"
                cells[f"score, {name}"] = f"{task.score(got, inputs, labels):.4f}"
            results.row(_NETWORKS, f"{task.model}, weights of {bits} bits", cells)
