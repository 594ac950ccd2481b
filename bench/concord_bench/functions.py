"""Error of functions of one element, alone, by the scale of what they read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from concord.compiler.calibration.calibration import relative_error
from concord.compiler.model import compile_graph
from concord.functions import catalogue
from concord.golden import binary16
from concord.graph import execute, passes
from concord.graph.ir import Graph, Node
from concord.networks.calibrated import choose_formats, emulate
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray
from concord_bench.results import Results

#: Functions of :mod:`concord.functions`.
FUNCTIONS = (
    "leaky_relu", "hardsigmoid", "hardswish", "sigmoid", "tanh", "erf", "gelu", "gelu_tanh", "silu", "elu", "celu",
    "softplus", "softsign", "exp", "sqrt", "rsqrt", "log", "reciprocal",
)  # fmt: skip
#: Standard deviations of what they read.
SIGMAS = (0.1, 1.0, 10.0, 100.0, 1000.0)
_SHAPE = (32, 64)
#: The largest input of an exponential with a result in the range of binary16.
_EXP_MAX = 11.0
_NOTE = (
    "Root mean square of the error relative to that of the result, of inputs with deviation sigma: normal; for sqrt, "
    "rsqrt, log and reciprocal with `abs(x) + sigma / 8` as their size; for exp up to 11. In brackets the chains."
)


def inputs(name: str, sigma: float) -> FloatArray:
    """Inputs of a function, binary16 numbers ``[32, 64]``: its result is in the range of binary16."""
    x = np.random.default_rng(1).normal(0.0, sigma, _SHAPE)
    record = catalogue.FUNCTIONS.get(name)  # there is none for operators made of several functions
    if record is not None and record.octaves:
        size = np.abs(x) + sigma / 8
        x = size if record.constant_below_zero else np.copysign(size, x)
    return binary16.decode(binary16.encode(np.minimum(x, _EXP_MAX) if name == "exp" else x))


def graph_of(name: str) -> Graph:
    """A network of one function."""
    node = Node("Function", name, ("x",), ("y",), {"functions": ((name, {}),)})
    shape = (1, _SHAPE[1])
    graph = Graph(name, [node], ["x"], ["y"], {"x": shape, "y": shape}, {"x", "y"})
    passes.run(graph)
    return graph


def _cell(name: str, sigma: float, config: NpuConfig, samples: bool) -> str:
    graph, x = graph_of(name), {"x": inputs(name, sigma)}
    compiled = choose_formats(graph, config, x).chosen.compiled if samples else compile_graph(graph, config)
    error = relative_error(emulate(compiled, x)["y"], execute.run(graph, x)["y"])
    return f"{100 * error:.3f} % ({len(compiled.lowered.layers)})"


def measure_functions(config: NpuConfig, results: Results, say: Callable[[str], None]) -> None:
    """A row per function without samples, and one with them."""
    for samples, group in ((False, "Functions by input scale, without samples"), (True, "Functions, with samples")):
        results.notes[group] = _NOTE
        for name in FUNCTIONS:
            say(f"{name}, {group}")
            results.row(group, name, {f"sigma {sigma:g}": _cell(name, sigma, config, samples) for sigma in SIGMAS})
