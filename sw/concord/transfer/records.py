"""Schemes and operators as data that JSON can hold; numbers are fractions in text, so nothing is lost."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from fractions import Fraction
from typing import Any

from concord.spec.formats import Rounding
from concord.transfer.operators import PointwiseOperator
from concord.transfer.scheme import Binary16, CodeRange, TableTarget
from concord.transfer.schemes import FixedPoint, MinMax, Symmetric, TableIndex, UniformAffine

Record = dict[str, Any]

_KINDS: dict[str, type[TableTarget]] = {
    kind.__name__: kind for kind in (UniformAffine, MinMax, Symmetric, FixedPoint, TableIndex, Binary16)
}
_ENUMS: dict[str, type[Enum]] = {"codes": CodeRange, "rounding": Rounding}
_FRACTIONS = {
    UniformAffine: ("scale",),
    Symmetric: ("scale",),
    MinMax: ("minimum", "maximum"),
}


def target_record(target: TableTarget) -> Record:
    """Fields of a scheme or target, with its class as ``kind``."""
    record: Record = {"kind": type(target).__name__}
    for item in fields(target):  # type: ignore[arg-type]
        value = getattr(target, item.name)
        if not item.init:
            continue
        if item.name in _ENUMS:
            value = value.name
        elif item.name in _FRACTIONS.get(type(target), ()):
            value = str(Fraction(value))
        record[item.name] = value
    return record


def target_of(record: Record) -> TableTarget:
    """The scheme or target of a record; ``ValueError``, ``KeyError`` or ``TypeError`` if it is not valid."""
    values = dict(record)
    name = values.pop("kind")
    if name not in _KINDS:
        raise ValueError(f"kind must be one of {sorted(_KINDS)}, not {name!r}")
    kind = _KINDS[name]
    for key, choices in _ENUMS.items():
        if key in values:
            values[key] = choices[values[key]]
    for key in _FRACTIONS.get(kind, ()):
        values[key] = Fraction(values[key])
    return kind(**values)


def operator_record(operator: PointwiseOperator) -> Record:
    """Name and parameters; a caller's function leaves only its label."""
    parameters = {key: str(value) for key, value in operator.parameters}
    return {"name": operator.name, "parameters": parameters, "custom": operator.custom}


def operator_of(record: Record) -> PointwiseOperator:
    """The operator of a record; a caller's function cannot be applied any more."""
    if record["custom"]:
        return PointwiseOperator(record["name"], custom=True)
    return PointwiseOperator.of((record["name"], {key: Fraction(value) for key, value in record["parameters"].items()}))
