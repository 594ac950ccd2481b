"""Numbers of training by their definition, as fractions."""

import math
from fractions import Fraction


def worth(mant, exp):
    return int(mant) * Fraction(2) ** int(exp)


def away(x):
    """The nearest whole number, halves away."""
    size = math.floor(abs(x) + Fraction(1, 2))
    return size if x >= 0 else -size


def up(x):
    """``ceil(log2 x)``."""
    k = x.numerator.bit_length() - x.denominator.bit_length() - 1
    while Fraction(2) ** k < x:
        k += 1
    return k


def short(values, grid, width=16):
    """Fractions on a grid in a width: they stay where they are if they fit; and their exponent."""
    most, top = 1 << width - 1, max(map(abs, values))
    exp = grid if top / Fraction(2) ** grid < most else up(top) - width + 1
    return [max(min(away(v / Fraction(2) ** exp), most - 1), 1 - most) * Fraction(2) ** exp for v in values], exp


def slopes(array, places, value):
    """Places of an array that a value depends on, each with the central difference of the value there."""
    for at in places:
        ends = []
        for step in (1e-5, -1e-5):
            array[at] += step
            ends.append(value())
            array[at] -= step
        yield at, (ends[0] - ends[1]) / 2e-5
