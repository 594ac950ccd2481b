"""Lists of numbers of elements as a few rows with constant steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from concord.utils.arrays import Ids


@dataclass(frozen=True)
class ElementSpan:
    """``first + k * step + r * stride`` for every element k of every row r.

    Parameters
    ----------
    first : int
        The first number.
    step, count : int
        From an element to the next one, and elements of a row.
    stride, repeats : int
        From a row to the next one, and rows.
    """

    first: int
    step: int
    count: int
    stride: int = 0
    repeats: int = 1

    def numbers(self) -> Ids:
        """All numbers in order."""
        rows = self.first + self.stride * np.arange(self.repeats)[:, None]
        return np.asarray(rows + self.step * np.arange(self.count)).reshape(-1)


def spans(numbers: Ids) -> list[ElementSpan]:
    """The spans of a list of numbers, which has at least one."""
    listed = numbers.reshape(-1).tolist()
    rows: list[ElementSpan] = []
    at = 0
    while at < len(listed):
        step = listed[at + 1] - listed[at] if at + 1 < len(listed) else 0
        end = at + 1
        while end < len(listed) and listed[end] - listed[end - 1] == step:
            end += 1
        rows.append(ElementSpan(listed[at], step, end - at))
        at = end
    made: list[ElementSpan] = []
    at = 0
    while at < len(rows):
        row, end = rows[at], at + 1
        stride = rows[end].first - row.first if end < len(rows) else 0
        while end < len(rows) and _follows(rows[end - 1], rows[end], stride):
            end += 1
        made.append(ElementSpan(row.first, row.step, row.count, stride if end - at > 1 else 0, end - at))
        at = end
    return made


def _follows(row: ElementSpan, following: ElementSpan, stride: int) -> bool:
    return (following.step, following.count, following.first - row.first) == (row.step, row.count, stride)
