"""Errors of tensors, and where their values lie in the window of a format."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from concord.compiler.calibration.calibration import Inputs, relative_error
from concord.compiler.model import Compiled
from concord.graph.ops import operator_of
from concord.report.layer_facts import Distribution, Error, Format
from concord.report.prefixes import Result
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_EXP_MAX, BINARY16_FRAC, BINARY16_MAX
from concord.spec.isa import Mem
from concord.utils.arrays import FloatArray

#: Bins below the window that are told apart.
_BELOW = 10


def error(computed: FloatArray, reference: FloatArray) -> Error:
    """Deviation of ``computed``."""
    with np.errstate(invalid="ignore", over="ignore"):
        return Error(
            _finite(relative_error(computed, reference)), _finite(float(np.abs(computed - reference).max(initial=0.0)))
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def own_errors(compiled: Compiled, inputs: Inputs, results: Sequence[Sequence[Result]]) -> list[Error]:
    """Error of every layer alone: the reference computes it from the tensors as the NPU has them.

    The conversion to narrow of what a layer reads counts as its own, if the tensor is there in wide, too.

    Parameters
    ----------
    results : sequence of sequences of Result
        By layer, what it computes; its error is that of the first.
    """
    graph, errors = compiled.graph, [Error(None, None)] * len(results)
    values = {name: np.asarray(x, dtype=np.float64) for name, x in inputs.items()}
    values = {name: x.reshape(len(x), *graph.shapes[name]) for name, x in values.items()}
    computed: dict[str, list[tuple[int, int, Result]]] = {}
    for index, found in enumerate(results):
        for k, result in enumerate(found):
            computed.setdefault(result.tensor, []).append((index, k, result))

    def take(name: str, value: FloatArray) -> None:
        flat = value.reshape(len(value), -1).copy()
        for index, k, result in computed.get(name, ()):
            if k == 0:
                errors[index] = error(result.best, flat[:, result.mine])
            flat[:, result.mine] = result.best
        values[name] = flat.reshape(value.shape)

    for name in graph.inputs:
        take(name, values[name])
    for node in compiled.lowered.graph.nodes:
        with np.errstate(all="ignore"):
            outputs = operator_of(node).evaluate(node, [values[name] if name else None for name in node.inputs])
        for name, value in zip(node.outputs, outputs, strict=True):
            take(name, value)
    return errors


def formats(result: Result, static: int | None, config: NpuConfig) -> tuple[Format, ...]:
    """The copies of a tensor; ``static`` is its exponent if that is fixed."""
    found = []
    for mem in result.values:
        if mem is Mem.WIDE:
            found.append(Format("wide"))
        elif static is not None:
            found.append(Format("narrow", True, (static,) * 3))
        else:
            assert result.blocks is not None
            found.append(Format("narrow", False, _exponents(result.blocks, config)))
    return tuple(found)


def _exponents(blocks: FloatArray, config: NpuConfig) -> tuple[int, int, int]:
    """Least, median and greatest dynamic exponent of blocks, given their largest magnitudes."""
    largest = blocks[(blocks > 0) & np.isfinite(blocks)]
    if not largest.size:
        return (config.act.exp_min,) * 3
    exponents = np.maximum(np.frexp(largest)[1] - 1 - config.act.headroom, config.act.exp_min)
    return int(exponents.min()), int(np.median(exponents)), int(exponents.max())


def distribution(reference: FloatArray, result: Result, writes: Sequence[Format], config: NpuConfig) -> Distribution:
    """Magnitudes of the float values of a tensor, in the window of its narrow copy if there is one."""
    chosen = next((form for form in writes if form.exponents is not None), None)
    if chosen is None or chosen.exponents is None:
        window, limit, held = (-BINARY16_FRAC, BINARY16_EXP_MAX + 1), float(BINARY16_MAX), result.values[Mem.WIDE]
    else:
        _, median, greatest = chosen.exponents
        window, held = (median, median + config.act_mant - 1), result.values[Mem.NARROW]
        limit = config.act.q_max * 2.0**greatest if chosen.static else float(BINARY16_MAX)
    magnitudes = np.abs(reference)
    there = magnitudes > 0
    bins = np.frexp(magnitudes[there])[1] - 1
    count = max(int(there.sum()), 1)
    first = max(int(bins.min()), window[0] - _BELOW) if bins.size else window[0]
    bins = np.maximum(bins, first) - first
    counts = np.bincount(bins, minlength=1)
    return Distribution(
        first,
        tuple(int(n) for n in counts),
        int((~there).sum()),
        window,
        float(np.sum(there & (held == 0)) / count),
        float(np.sum(magnitudes > limit) / count),
    )
