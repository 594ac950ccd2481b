"""Tables that are coarse for the numbers that functions read.

A table has the same step everywhere, and the greatest number that a function reads decides on it. Near zero, half a
step changes a square root, a reciprocal or a logarithm by much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from concord.compiler.ir.layers import AnyLayer
from concord.compiler.ir.table_segments import function_values, nearest_inputs, stored_codes
from concord.compiler.ir.table_specs import Functions, Proven, TableSpec
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.pointwise import table_of
from concord.compiler.model import Compiled
from concord.functions import function
from concord.functions.segmented import TableSegment
from concord.golden import binary16
from concord.graph.ir import Node
from concord.spec.formats import BINARY16_MAX
from concord.utils.arrays import FloatArray

#: Error of a function by its table alone, relative to its results of a sample, from which on it is coarse.
COARSE = 0.05
#: Share of samples from which on it is told.
_TOLD = 1 / 8


@dataclass(frozen=True)
class CoarseTable:
    """A function whose table is coarse for some samples.

    Parameters
    ----------
    layer : str
        Name of the layer.
    functions : str
        Names of the functions in the table.
    count, samples : int
        For how many samples it is coarse, and how many there are.
    step : float
        Step of the table where these samples have their numbers.
    size : float
        Median of the numbers of these samples that meet the largest errors.
    """

    layer: str
    functions: str
    count: int
    samples: int
    step: float
    size: float

    @property
    def text(self) -> str:
        """One line about it, without what helps."""
        step = f"numbers such as {self.size:.3g} meet steps of {self.step:.3g}"
        share = f"in {self.count} of {self.samples} samples it errs by more than {COARSE:.0%} by that alone"
        return f"{self.layer}: the table of {self.functions} is coarse near zero: {step}; {share}"


def coarse_tables(compiled: Compiled, values: Mapping[str, FloatArray]) -> Iterator[CoarseTable]:
    """Functions whose tables are coarse for at least one of eight samples.

    Parameters
    ----------
    compiled : Compiled
        The network.
    values : mapping of str to array
        All of its tensors in double precision, ``[samples, ...]``.
    """
    layers, formats = compiled.lowered.layers, compiled.package.formats
    codes = stored_codes(layers, compiled.image.config)
    parts: dict[tuple[str, Functions], list[tuple[Node, TableSegment]]] = {}
    for node in compiled.lowered.graph.nodes:
        if node.op == "Function" and (spec := table_of(node, formats)) in codes and _decides(node, spec, formats):
            segment = spec[1] if isinstance(spec[1], TableSegment) else TableSegment(*codes[spec])
            parts.setdefault((node.inputs[0], spec[0]), []).append((node, segment))
    for (read, functions), tables in parts.items():
        if read not in values:  # of several samples in a run
            continue
        x = values[read].reshape(len(values[read]), -1)
        x = np.asarray(binary16.decode(binary16.encode(np.clip(x, -BINARY16_MAX, BINARY16_MAX))), dtype=np.float64)
        segments = [segment for _, segment in tables]
        errors, worst = _errors(functions, segments, x)
        coarse = errors > COARSE
        if coarse.sum() >= _TOLD * len(x):
            size = float(np.median(np.abs(worst[coarse])))
            step = next(segment.step for segment in segments if segment.stop is None or size < segment.stop)
            names = "+".join(name for name, _ in functions)
            yield CoarseTable(_layer(layers, tables[0][0]), names, int(coarse.sum()), len(x), step, size)


def _decides(node: Node, spec: TableSpec, formats: Formats) -> bool:
    """True for a function that is steep near zero, and whose result is what the table has.

    Those of normalisations raise a flag, and what follows a reciprocal of numbers of any size makes it more accurate.
    """
    functions, domain = spec
    if not function(functions[0][0]).octaves:
        return False
    if isinstance(domain, TableSegment):
        return not domain.undivided and (functions[0][0] != "reciprocal" or node.inputs[0] in formats.ranges)
    return isinstance(domain, tuple) and not isinstance(domain, Proven)


def _layer(layers: list[AnyLayer], node: Node) -> str:
    return next(layer.name for layer in layers if node.name in layer.nodes)


def _errors(functions: Functions, segments: list[TableSegment], x: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Errors of samples ``[samples, elements]`` by the tables alone, relative to results, and where the largest are."""
    want, got = function_values(functions, x), function_values(functions, nearest_inputs(segments, x))
    error, size = np.linalg.norm(got - want, axis=1), np.linalg.norm(want, axis=1)
    last = function(functions[-1][0])
    if last.pole and last.rises:  # a logarithm: about 1 its results are small beside those of other samples
        size = np.maximum(size, np.linalg.norm(want) / np.sqrt(len(want)))
    worst = x[np.arange(len(x)), np.abs(got - want).argmax(axis=1)]
    return np.asarray(np.divide(error, size, out=np.zeros_like(error), where=size > 0)), worst
