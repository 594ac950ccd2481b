"""Windows of a tensor along its axes, and the coordinates of their elements in C."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from concord.derive.c.texts import sum_text
from concord.derive.c.unit import CodeLines
from concord.derive.c_exact.places import minus, times
from concord.derive.exact.arrays import WindowPlaces


@dataclass(frozen=True)
class WindowAxis:
    """One axis along which windows are taken.

    Parameters
    ----------
    count, size : int
        Number of windows, and of elements of the source.
    kernel, stride, dilation, pad : int
        Sizes of the windows in elements; the padding in front.
    source_step, result_step : int
        Elements of memory between neighbours.
    """

    count: int
    size: int
    kernel: int
    stride: int
    dilation: int
    pad: int
    source_step: int
    result_step: int

    @property
    def inside(self) -> bool:
        """True if no window has padding."""
        return self.pad == 0 and (self.count - 1) * self.stride + (self.kernel - 1) * self.dilation < self.size

    @property
    def plain(self) -> bool:
        """True if windows are the elements."""
        return self.kernel == 1 and self.stride == 1 and self.inside

    def at(self, window: str, tap: str = "0") -> str:
        """The coordinate of an element of a window."""
        terms = [] if self.count == 1 else [window if self.stride == 1 else f"{window} * {self.stride}"]
        if self.kernel > 1 and tap != "0":
            terms.append(tap if self.dilation == 1 else f"{tap} * {self.dilation}")
        return minus(sum_text(terms), self.pad)


def window_axes(
    shape: Sequence[int],
    counts: Sequence[int],
    window: WindowPlaces,
    source_steps: Sequence[int],
    result_steps: Sequence[int],
) -> list[WindowAxis]:
    """The axes of windows, which come after samples and channels.

    Parameters
    ----------
    shape, counts : sequences of int
        Elements of the source, and windows, along each axis of ``[samples, channels, ...]``.
    window : WindowPlaces
    source_steps, result_steps : sequences of int
        Elements of memory between neighbours along each axis.
    """
    sizes = counts[2:], shape[2:], window.kernel, window.strides, window.dilations, window.pads[: len(window.kernel)]
    return [WindowAxis(*part) for part in zip(*sizes, source_steps[2:], result_steps[2:], strict=True)]


def check_windows(axes: Sequence[WindowAxis], name: str) -> None:
    """``ValueError`` if a window of the operation of that name is nothing but padding."""
    for axis in axes:
        begins = np.arange(axis.count)[:, None] * axis.stride - axis.pad
        places = begins + np.arange(axis.kernel) * axis.dilation
        if not ((places >= 0) & (places < axis.size)).any(axis=1).all():
            raise ValueError(f"windows of {name!r} must not be all padding in C")


def open_windows(lines: CodeLines, stack: ExitStack, axes: Sequence[WindowAxis], samples: int, step: int) -> str:
    """Open loops over samples, ``step`` apart in the result, and over windows; the place of a window in the result."""
    stack.enter_context(lines.loop("s", samples))
    steps = [times("s", step)]
    for k, axis in enumerate(axes):
        stack.enter_context(lines.loop(f"i{k}", axis.count))
        steps.append(times(f"i{k}", axis.result_step))
    return sum_text(steps)


def open_taps(lines: CodeLines, stack: ExitStack, axes: Sequence[WindowAxis], kind: str, start: str = "") -> str:
    """Open loops over the elements of a window that are no padding, and ``from``, the one of the first channel.

    ``kind`` is the type of the source without ``_t``, and ``start`` the element that a sample begins with. The result
    is the number of the element in its window.
    """
    steps, tap = ["x0", start], "0"
    for k, axis in enumerate(axes):
        if axis.kernel > 1:
            stack.enter_context(lines.loop(f"k{k}", axis.kernel))
            tap = sum_text([times(f"({tap})", axis.kernel) if tap != "0" else "", f"k{k}"])
        lines.add(f"const int32_t j{k} = {axis.at(f'i{k}', f'k{k}')};")
        if not axis.inside:
            stack.enter_context(lines.block(f"if (j{k} >= 0 && j{k} < {axis.size})"))
        steps.append(times(f"j{k}", axis.source_step))
    lines.add(f"const {kind}_t *const from = {sum_text(steps)};")
    return tap
