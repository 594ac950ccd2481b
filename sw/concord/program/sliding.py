"""Rules of sliding depthwise products: what lets the tile engines keep elements from one window to the next."""

from __future__ import annotations

import numpy as np

from concord.program.chains import VECTOR_MASK, Chain
from concord.program.rules import Broken, broken_of
from concord.spec.config import NpuConfig
from concord.spec.isa import Mem
from concord.spec.rules import ProgramRule


def broken_rules(chain: Chain, config: NpuConfig) -> list[Broken]:
    """Rules that a chain breaks as a sliding product; any other chain breaks none."""
    if not chain.sliding:
        return []
    window, fresh, taps = chain.window, chain.fresh, chain.window.taps
    rules = [
        (
            ProgramRule.WINDOW_TAPS,
            taps <= config.window_taps,
            f"has a window of {taps} taps; window_taps is {config.window_taps}",
        ),
        (ProgramRule.ONE_ROW, chain.rows == 1, f"has {chain.rows} rows; it must have one"),
        (ProgramRule.NEW_COLUMNS, fresh <= window.kw, f"has {fresh} new columns per window, of {window.kw}"),
    ]
    if chain.inner > 1:
        step, shift = chain.source.inner, fresh * window.stride_x
        kept = (step - shift) & VECTOR_MASK == 0
        rules.append((ProgramRule.SOURCE_STEP, kept, f"moves {step} words per window; {fresh} columns are {shift}"))
        step, shift = chain.pad.step_x, fresh * window.dil_x
        kept = chain.pad.height == 0 or step == shift
        rules.append((ProgramRule.PAD_STEP, kept, f"moves {step} positions per window; {fresh} columns are {shift}"))
    target = chain.destination(Mem.NARROW)
    if target is not None:
        read = chain.sources(config)[np.broadcast_to(chain.inside()[:, :, None, :, None], (*chain.shape, taps, 1))]
        both = np.intersect1d(read, chain.addresses(target))
        message = f"writes narrow {both[:1].tolist()}, which its own windows read"
        rules.append((ProgramRule.OWN_WINDOWS, not len(both), message))
    return broken_of(rules)
