"""Rules of sliding depthwise products: what lets the tile engines keep elements from one window to the next."""

from __future__ import annotations

import numpy as np

from concord.program.chains import VECTOR_MASK, Chain
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem


def broken_rules(chain: Chain, config: NpuConfig) -> list[str]:
    """Faults of a chain as a sliding product, as ends of a sentence; none of any other chain."""
    if not chain.sliding:
        return []
    window, fresh, taps = chain.window, chain.fresh, chain.window.taps
    rules = [
        (taps <= config.window_taps, f"has a window of {taps} taps; window_taps is {config.window_taps}"),
        (chain.rows == 1, f"has {chain.rows} rows; it must have one"),
        (fresh <= window.kw, f"has {fresh} new columns per window, of {window.kw}"),
    ]
    if chain.inner > 1:
        step, shift = chain.source.inner, fresh * window.stride_x
        rules.append(((step - shift) & VECTOR_MASK == 0, f"moves {step} words per window; {fresh} columns are {shift}"))
        step, shift = chain.pad.step_x, fresh * window.dil_x
        bounded = chain.pad.height != 0
        rules.append((not bounded or step == shift, f"moves {step} positions per window; {fresh} columns are {shift}"))
    target = chain.destination(Mem.NARROW)
    if target is not None:
        read = chain.sources(config)[np.broadcast_to(chain.inside()[:, :, None, :, None], (*chain.shape, taps, 1))]
        both = np.intersect1d(read, chain.addresses(target))
        rules.append((not len(both), f"writes narrow {both[:1].tolist()}, which its own windows read"))
    return [message for kept, message in rules if not kept]
