"""Formats of tensors, and where their values lie in the windows of these formats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from concord.networks.layer_results import Result
from concord.report.layer_facts import Distribution, Format
from concord.spec.config import NpuConfig
from concord.spec.formats import BINARY16_EXP_MAX, BINARY16_FRAC, BINARY16_MAX
from concord.spec.isa import Mem
from concord.utils.arrays import FloatArray

#: Bins below the window that are told apart.
_BELOW = 10


def formats(result: Result, static: int | None, config: NpuConfig) -> tuple[Format, ...]:
    """The copies of a tensor; ``static`` is its exponent if that is fixed."""
    copies = []
    for mem in result.values:
        if mem is Mem.WIDE:
            copies.append(Format("wide"))
        elif static is not None:
            copies.append(Format("narrow", True, (static,) * 3))
        else:
            assert result.blocks is not None
            copies.append(Format("narrow", False, _exponents(result.blocks, config)))
    return tuple(copies)


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
