"""The record of a function: everything that some part of the project has to know of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from concord.functions.exact import ExactFunction, Number
from concord.functions.interval_bounds import IntervalBounds
from concord.functions.intervals import Interval, constant
from concord.utils.arrays import FloatArray


@dataclass(frozen=True, kw_only=True, eq=False)
class Function:
    """A function of one element.

    Parameters
    ----------
    name : str
        In graphs, tables and reports.
    exact : callable
        ``exact(x, **parameters)``: the value at a ``Fraction``, exact or with 45 correct digits. Parameters are
        fractions.
    bounds : callable
        ``bounds(x, **parameters)``: an interval that contains the values for all numbers of the interval ``x``, and is
        a point only where ``exact`` is exact. Parameters are intervals.
    float64 : callable
        ``float64(x, **parameters)``: values for a float64 array, in an array of the same shape. Parameters are floats.
    parameters : mapping of str to float
        Names and defaults, which are those of the attributes of the ONNX operator.
    positive : tuple of str
        Parameters that must be greater than 0.
    domain : pair of floats
        Inputs that a table covers unless told otherwise: [low, high); (low, 0] if high is 0.
    constant_ends : bool
        Whether the function is constant beyond both ends of ``domain``: no table has to cover more.
    range : pair of floats
        Numbers that no value is below and no value is above.
    rises : bool
        Whether it is known to rise or stay over all inputs: its values at two ends are bounds in between.
    pole : bool
        Whether it has a pole at 0.
    constant_below_zero : bool
        Whether it has one value for zero and everything below: tables begin at zero.
    octaves : int
        For a function that is steep near zero: how many powers of two below the greatest input it must be right for
        where no samples tell. 0 for other functions.
    decomposed : bool
        Whether the compiler computes it in steps that are right for inputs of every size
        (:data:`concord.compiler.lowering.decomposition.RULES`). Such a function does not share a table with others.
    onnx : str
        Name of the ONNX operator that is this function; empty if there is none.
    recurrent : str
        Name among the activations of ONNX recurrent layers; empty if there is none.
    slope : callable or None
        The derivative for training, computed from the value: a ``Fraction`` from a ``Fraction``. Only functions without
        parameters may have one. ``None``: networks with the function cannot be trained.
    """

    name: str
    exact: Callable[..., Number]
    bounds: Callable[..., Interval]
    float64: Callable[..., FloatArray]
    parameters: Mapping[str, float] = field(default_factory=dict)
    positive: tuple[str, ...] = ()
    domain: tuple[float, float] = (-8.0, 8.0)
    constant_ends: bool = False
    range: tuple[float, float] = (-math.inf, math.inf)
    rises: bool = False
    pole: bool = False
    constant_below_zero: bool = False
    octaves: int = 0
    decomposed: bool = False
    onnx: str = ""
    recurrent: str = ""
    slope: Callable[[Fraction], Fraction] | None = None

    def __post_init__(self) -> None:
        for what, (low, high) in (("domain", self.domain), ("range", self.range)):
            if not low < high:
                raise ValueError(f"{what} of {self.name} must be (low, high) with low < high, not {(low, high)!r}")
        if self.slope is not None and self.parameters:
            raise ValueError(f"{self.name} must have no parameters to have a slope, not {sorted(self.parameters)}")
        if unknown := set(self.positive) - set(self.parameters):
            raise ValueError(f"positive of {self.name} must be names of parameters, not {sorted(unknown)}")

    @property
    def never_negative(self) -> bool:
        """True if no value is below zero."""
        return self.range[0] >= 0

    def exact_with(self, **parameters: float | Fraction) -> ExactFunction:
        """The exact function for these parameters; ``TypeError`` if one is unknown."""
        numbers = {name: Fraction(value) for name, value in self.complete(parameters).items()}
        return lambda x: self.exact(x, **numbers)

    def bounds_with(self, **parameters: float | Fraction) -> IntervalBounds:
        """Bounds on :meth:`exact_with` for the same parameters."""
        numbers = {name: constant(value) for name, value in self.complete(parameters).items()}
        return lambda x: self.bounds(x, **numbers)

    def values(self, x: FloatArray, **parameters: float) -> FloatArray:
        """Values in double precision, in an array of the shape of ``x``."""
        return self.float64(x, **self.complete(parameters))

    def complete(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """All parameters, with defaults for those that are not given; ``TypeError`` if one is unknown."""
        if unknown := values.keys() - self.parameters.keys():
            known = sorted(self.parameters)
            raise TypeError(f"parameters of {self.name} must be of {known}, not {sorted(unknown)}")
        return {**self.parameters, **values}
