"""Pipeline stages: values of earlier cycles, and what takes several of them."""

from amaranth import *

from concord.spec import timing

#: Parts of signals.
_Slice = type(Signal(2)[:1])


def delay(m, value, cycles, name, *, reset_less=True):
    """Return ``value`` as it was ``cycles`` clock cycles ago. Data need no reset; strobes do (``reset_less=False``)."""
    for k in range(cycles):
        later = Signal(Value.cast(value).shape(), name=f"{name}_{k + 1}", reset_less=reset_less)
        m.d.sync += later.eq(value)
        value = later
    return value


def register(m, value, name):
    """Return ``value`` as it was one clock cycle ago."""
    return delay(m, value, 1, name)


class Stages:
    """Stages of a unit that takes new inputs every cycle, or, if ``held``, keeps them until it is done.

    If inputs are held, what is only passed from stage to stage needs no registers: values are delayed by one register
    at most, and by none if no logic stands before it. What is computed has its registers still, so that the unit is as
    fast and its results are there as late as in a pipeline.

    Parameters
    ----------
    m : Module
        Of the unit.
    held : bool
        Whether inputs are kept.
    """

    def __init__(self, m: Module, held: bool):
        self.m, self.held = m, held

    def delay(self, value, cycles, name, *, reset_less=True):
        """``value`` as it was ``cycles`` clock cycles ago, or as it will stay, as :func:`delay`."""
        if self.held:
            cycles = min(cycles, 0 if _is_stored(value) else 1)
        return delay(self.m, value, cycles, name, reset_less=reset_less)

    def register(self, value, name):
        """``value`` as it was one clock cycle ago, as :func:`register`."""
        return self.delay(value, 1, name)


def _is_stored(value):
    """True if a value is a signal or a part of one: no logic stands before it."""
    value = Value.cast(value)
    return _is_stored(value.value) if isinstance(value, _Slice) else isinstance(value, Signal)


def _greatest(values):
    """The greatest of one, two or four values. Four are all compared at once, which is as fast as two."""
    if len(values) == 1:
        return values[0]
    a, b, *rest = values
    left = a < b
    if not rest:
        return Mux(left, b, a)
    c, d = rest
    right = c < d
    cross = Mux(left, Mux(right, b < d, b < c), Mux(right, a < d, a < c))
    return Mux(cross, Mux(right, d, c), Mux(left, b, a))


def max_tree(m, values, name):
    """Return the greatest of unsigned ``values``, ``concord.spec.timing.max_tree(len(values))`` cycles later.

    The number of values must be a power of two.
    """
    for stage in range(timing.max_tree(len(values))):
        groups = [values[k : k + 4] for k in range(0, len(values), 4)]
        values = [register(m, _greatest(group), f"{name}_{stage}_{k}") for k, group in enumerate(groups)]
    return values[0]
