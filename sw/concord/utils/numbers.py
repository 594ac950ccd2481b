"""Numbers as people write them in options and in files: ``0.1``, ``1e-3`` or ``1/256``, each exactly what it says."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

#: The longest text and the largest exponent that is meant.
_LONGEST, _LARGEST_EXPONENT = 100, 400
_EXPONENT = re.compile(r"[eE]([+-]?\d+)$")


def exact_number(number: Any, what: str) -> Fraction:
    """The number that a text, an int or a float says, not its binary neighbour.

    Parameters
    ----------
    number : int, float or str
        A decimal number, or a fraction of whole numbers.
    what : str
        What it is, for messages.

    Raises
    ------
    ValueError
        For anything else, infinities and NaN among it, and for numbers of more than 100 characters or with an exponent
        beyond 400.
    """
    text = str(number).strip()
    if isinstance(number, bool) or not isinstance(number, int | float | str):
        raise ValueError(f"{what} must be a number, not {number!r}")
    exponent = _EXPONENT.search(text)
    if len(text) > _LONGEST or (exponent is not None and abs(int(exponent[1])) > _LARGEST_EXPONENT):
        raise ValueError(f"{what} must be of a size that can be meant, not {text[:_LONGEST]!r}")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f'{what} must be a number such as 0.1 or "1/10", not {number!r}') from None


def number_of(number: Any, what: str) -> float:
    """Number as the nearest float; ``ValueError`` also if there is none."""
    try:
        return float(exact_number(number, what))
    except OverflowError:
        raise ValueError(f"{what} must be of a size that can be meant, not {number!r}") from None
