"""Attributes of operators: their meaning, and the values that they may have.

Every operator has a record of its attributes: a frozen dataclass whose fields say what the attributes mean.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass, fields, replace
from numbers import Integral, Real
from typing import Any, TypeVar, dataclass_transform, get_type_hints

import numpy as np

from concord.functions import FUNCTIONS, by_recurrent_name
from concord.functions.segmented import TableSegment
from concord.golden.codes import Codes


@dataclass(frozen=True)
class Values:
    """The values that an attribute may have.

    Parameters
    ----------
    text : str
        What they are, as it reads after "must be".
    holds : callable
        ``holds(value)``: whether a value is one of them; ``False`` for those of any other type.
    """

    text: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Attribute:
    """One attribute of an operator.

    Parameters
    ----------
    meaning : str
        For readers.
    values : Values
        Those that it may have.
    required : bool
        Whether every node must have it. In a record, a field without a default says so.
    beside : str
        Another attribute without which it would mean nothing; empty if there is none.
    """

    meaning: str
    values: Values
    _: KW_ONLY
    required: bool = True
    beside: str = ""


@dataclass_transform(kw_only_default=True, frozen_default=True)
@dataclass(frozen=True, kw_only=True)
class NoAttributes:
    """The attributes of an operator that has none; records of the others are subclasses, and dataclasses as this one.

    A field is annotated with its type and an :class:`Attribute`. An attribute that a node may leave out has a default.
    """

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)


Record = TypeVar("Record", bound=NoAttributes)


def described(record: type[NoAttributes]) -> dict[str, Attribute]:
    """The attributes of a record by name, in the order of its fields."""
    hints = get_type_hints(record, include_extras=True)
    return {
        part.name: replace(hints[part.name].__metadata__[0], required=part.default is MISSING)
        for part in fields(record)
    }


def problems(attributes: Mapping[str, Attribute], attrs: Mapping[str, Any], node: str) -> Iterator[str]:
    """A line for every attribute of a node that does not fit the ``attributes`` of its operator.

    Parameters
    ----------
    attributes : mapping
        Those that the operator has, by name.
    attrs : mapping
        Those of the node.
    node : str
        What to call the node.
    """
    for name, value in attrs.items():
        if name not in attributes:
            near = difflib.get_close_matches(str(name), attributes, 1)
            known = ", ".join(attributes) or "none at all"
            guess = f" (is {near[0]!r} meant?)" if near else ""
            yield f"attributes of {node} must be of {known}, not {name!r}{guess}"
        elif not attributes[name].values.holds(value):
            yield f"attribute {name!r} of {node} must be {attributes[name].values.text}, not {_shown(value)}"
        elif attributes[name].beside and attributes[name].beside not in attrs:
            yield f"attribute {name!r} of {node} must stand beside {attributes[name].beside!r}, which is missing"
    for name, attribute in attributes.items():
        if attribute.required and name not in attrs:
            yield f"attribute {name!r} of {node} must be there: {attribute.values.text}"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {list(value.shape)}"
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."


def is_integer(value: Any) -> bool:
    """True for a whole number that is no bool."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    """True for a real number, infinities included, that is neither NaN nor a bool."""
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and not math.isnan(value)


def _tuple_of(holds: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, tuple) and all(map(holds, value))


def _is_size(value: Any) -> bool:
    return is_integer(value) and value >= 0


def _is_count(value: Any) -> bool:
    return is_integer(value) and value >= 1


def _are_functions(value: Any) -> bool:
    """Pairs of the name of a function and its parameters, at least one."""
    return isinstance(value, tuple) and len(value) > 0 and all(map(_is_function, value))


def _is_function(pair: Any) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str) or pair[0] not in FUNCTIONS:
        return False
    return _are_parameters(pair[1], FUNCTIONS[pair[0]].parameters)


def _are_parameters(value: Any, known: Mapping[str, float]) -> bool:
    return isinstance(value, Mapping) and value.keys() <= known.keys() and all(map(is_number, value.values()))


def _are_inputs(value: Any) -> bool:
    """A pair of numbers, or an object that says where inputs begin and end."""
    if isinstance(value, tuple):
        return len(value) == 2 and all(map(is_number, value))
    return is_number(getattr(value, "low", None)) and is_number(getattr(value, "high", None))


def choice(*words: str) -> Values:
    """One of some words."""
    return Values(" or ".join(map(repr, words)), lambda value: isinstance(value, str) and value in words)


def optional(values: Values) -> Values:
    """``None`` besides."""
    return Values(f"{values.text}, or None", lambda value: value is None or values.holds(value))


FLAG = Values("True or False", lambda value: isinstance(value, bool))
#: 1 or more.
COUNT = Values("a positive integer", _is_count)
AXIS = Values("an axis as an integer that is not negative", _is_size)
AXES = Values(
    "a tuple of axes as integers that are not negative, each once",
    lambda value: _tuple_of(_is_size)(value) and len(set(value)) == len(value),
)
INTEGER = Values("an integer", is_integer)
NOT_NEGATIVE = Values("an integer that is not negative", _is_size)
INTEGERS = Values("a tuple of integers", _tuple_of(is_integer))
SIZES = Values("a tuple of integers that are not negative", _tuple_of(_is_size))
COUNTS = Values("a tuple of positive integers", _tuple_of(_is_count))
NUMBER = Values("a number", is_number)
#: Computing with arrays without axes gives ``np.float64``.
ARRAY = Values(
    "an array of float64", lambda value: isinstance(value, np.ndarray | np.float64) and value.dtype == np.float64
)
TENSOR = Values("the name of a tensor", lambda value: isinstance(value, str) and value != "")
FUNCTION_PAIRS = Values("a tuple of pairs (name of a function, dict of its own parameters)", _are_functions)
INPUTS = Values("a pair of numbers or a span of them", _are_inputs)
QUANTIZATION = Values("Codes", lambda value: isinstance(value, Codes))
SEGMENT = Values("a TableSegment", lambda value: isinstance(value, TableSegment))
#: By direction and function.
RECURRENT_NAMES = Values(
    "a tuple for every direction of names of functions in ONNX",
    _tuple_of(_tuple_of(lambda name: isinstance(name, str) and name in by_recurrent_name())),
)
RECURRENT_PARAMETERS = Values(
    "a tuple for every direction of dicts of numbers",
    _tuple_of(_tuple_of(lambda value: isinstance(value, Mapping) and all(map(is_number, value.values())))),
)
