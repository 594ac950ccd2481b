"""Bits that the accumulators of a compiled network need, and changes with other ones, to choose an accumulator."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.compiler.lowering.input_assumptions import assumed
from concord.compiler.model import Compiled
from concord.graph.ir import Graph
from concord.host.shared import emulator
from concord.overflow.compiled import Ranges, analyse_machine, bounds_of
from concord.utils.parallel import Engine


@dataclass(frozen=True)
class RequiredWidth:
    """Bits that a layer needs.

    Parameters
    ----------
    layer : str
        Name of the layer.
    observed : int
        Bits that hold all terms and sums of the samples; 0 without any.
    bound : int
        Bits that hold those of any input in the range.
    """

    layer: str
    observed: int
    bound: int


@dataclass(frozen=True)
class RunChanges:
    """Differences between the runs of two networks that should have the same bits.

    Parameters
    ----------
    samples : int
        Number of samples that were run.
    results : tuple of str
        Outputs with other bits.
    layers : tuple of str
        Layers that raise a flag in the second one alone.
    """

    samples: int
    results: tuple[str, ...]
    layers: tuple[str, ...]


class CountedWidths:
    """Widths of the accumulators of a network, counted with samples on the emulator, and bounds where there are none.

    Parameters
    ----------
    inputs : mapping of str to array, optional
        Samples by input, ``[samples, *shape of a sample]``. Without any, there are bounds alone.
    engine : Engine, optional
        Its workers share the samples; nothing depends on them.
    """

    def __init__(self, inputs: Mapping[str, npt.ArrayLike] | None = None, engine: Engine | None = None):
        self._inputs, self._engine = inputs or {}, engine

    @property
    def sampled(self) -> bool:
        """True if there are samples."""
        return bool(self._inputs)

    def required(self, graph: Graph, compiled: Compiled) -> tuple[tuple[RequiredWidth, ...], Ranges]:
        """Bits that the layers need, in the order of execution, and ranges for which the bounds hold.

        Without samples the bounds hold for the ranges of inputs that are given or taken for granted.
        """
        if not self.sampled:
            kinds = assumed(graph, compiled.package.formats.inputs)
            ranges = {name: (kind.low, kind.high) for name, kind in kinds.items()}
            bits_of = bounds_of(compiled.package, ranges)
            return tuple(RequiredWidth(layer, 0, bits) for layer, bits in bits_of.items()), ranges
        analysis = analyse_machine(compiled.package, self._inputs, engine=self._engine)
        kind = "intermediate"
        needs = (RequiredWidth(layer.name, layer.needed(kind), layer.bound(kind)) for layer in analysis.layers)
        return tuple(needs), analysis.ranges

    def compared(self, compiled: Compiled, chosen: Compiled) -> RunChanges:
        """Run all samples with both, but for some at the end that are no whole batch."""
        batch = compiled.package.arrangement.batch
        samples = len(np.asarray(next(iter(self._inputs.values())))) // batch * batch
        some = {name: np.asarray(values)[:samples] for name, values in self._inputs.items()}
        results, flags = [], []
        for network in (compiled.carried, chosen.carried):
            with emulator(network.image.config, self._engine) as device:
                device.load(network.image)
                results.append(device.run(network.package.arrangement.pack(some)))
                flags.append({(record.layer, record.flag) for record in network.package.flags(device.flags())})
        changed = tuple(name for name, values in results[0].items() if not same_bits(values, results[1][name]))
        return RunChanges(samples, changed, tuple(sorted(layer for layer, flag in flags[1] - flags[0])))


def same_bits(a: npt.ArrayLike, b: npt.ArrayLike) -> bool:
    """True if two arrays have the same bits, a NaN like any other."""
    first, second = np.asarray(a), np.asarray(b)
    return np.array_equal(first, second, equal_nan=True) and np.array_equal(np.signbit(first), np.signbit(second))
