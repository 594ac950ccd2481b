"""Depthwise layers that the tile engines compute from sliding windows, and the direction of these."""

from __future__ import annotations

from dataclasses import dataclass

from concord.compiler.ir.layers import Layer, Reduction
from concord.spec.config import NpuConfig
from concord.spec.isa import FORMS, Op

#: Cycles until the first product of a chain, in which no other chain makes any.
_ENTRY = 12
#: Greatest address step per position.
_MOST = FORMS[Op.V_RD].fields["inner"].high


@dataclass(frozen=True)
class Slide:
    """Windows that slide along a row or, if ``down``, along a column.

    ``fresh`` is the number of lines across that direction that a window has and the one before has not; ``reads`` are
    the vectors that are read per native vector of a position, all windows together.
    """

    down: bool
    fresh: int
    reads: int


def slide_of(layer: Layer, config: NpuConfig, whole: bool = True) -> Slide | None:
    """Slide of the windows of a layer on ``config``, if it is worth a chain per native vector of a position.

    Their taps must fit in the registers, and windows must overlap. Only a layer that is computed as a ``whole``, not in
    row tiles, has columns that are long enough to slide along.
    """
    window = layer.window
    if layer.reduction is not Reduction.DEPTHWISE or window.taps > config.window_taps:
        return None
    directions = (False, True) if whole and _steps_down(layer) <= _MOST else (False,)
    slides = [slide for down in directions if (slide := _along(layer, down)) is not None]
    best = min(slides, key=lambda slide: slide.reads, default=None)
    plain = layer.out[0] * layer.out[1] * window.taps
    return best if best is not None and plain - best.reads > _ENTRY else None


def _steps_down(layer: Layer) -> int:
    """The greatest step from a row of positions to the next, which is one per position if windows slide down."""
    operands = [mfu_op.operand for mfu_op in layer.mfu_ops if mfu_op.operand is not None]
    storages = [layer.source.storage, layer.target, *filter(None, (operand.storage for operand in operands))]
    steps = [storage.root.width * storage.root.tiles * layer.window.stride[0] for storage in storages]
    return max(*steps, *(abs(operand.outer) for operand in operands))


def _along(layer: Layer, down: bool) -> Slide | None:
    """Windows in one direction, if they overlap in it."""
    window, axis = layer.window, 0 if down else 1
    fresh, rest = divmod(window.stride[axis], window.dilation[axis])
    along, across = window.kernel[axis], window.kernel[1 - axis]
    if rest or fresh >= along:
        return None
    skipped = min(along - 1, -(-window.begin[axis] // window.dilation[axis]))  # lines in front of the image
    return Slide(down, fresh, layer.out[1 - axis] * across * (along - skipped + (layer.out[axis] - 1) * fresh))
