"""Codes and operators as data that JSON can hold; numbers are fractions in text, so nothing is lost."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from concord.golden.codes import CodeRange, Codes
from concord.spec.formats import Rounding
from concord.transfer.operators import PointwiseOperator
from concord.transfer.targets import Binary16, TableTarget, table_index

Record = dict[str, Any]


def target_record(target: TableTarget) -> Record:
    """Codes or another target, with ``kind``; several scales and zero points are lists, beside the axis."""
    if isinstance(target, Binary16):
        return {"kind": "Binary16"}
    several = target.axis is not None
    record = {
        "kind": "UniformAffine",  # as codes have been called in files from the first one on
        "bits": target.bits,
        "scale": [*map(str, target.scales)] if several else str(target.scale),
        "zero_point": [*target.zeros] if several else target.zero,
        "codes": target.range.name if isinstance(target.range, CodeRange) else [*target.range],
        "rounding": target.rounding.name,
    }
    return record | ({"axis": target.axis} if several else {})


def target_of(record: Record) -> TableTarget:
    """The codes or the other target of a record, also of kinds that only earlier versions wrote.

    Raises
    ------
    ValueError, KeyError, TypeError
        If it is not valid.
    """
    match record["kind"]:
        case "UniformAffine":
            scale, zeros = record["scale"], record["zero_point"]
            scales = [*map(Fraction, scale)] if isinstance(scale, list) else Fraction(scale)
            return Codes(record["bits"], scales, zeros, *_range_and_rounding(record), record.get("axis"))
        case "Symmetric":
            return Codes.symmetric(record["bits"], Fraction(record["scale"]), Rounding[record["rounding"]])
        case "MinMax":
            ends = Fraction(record["minimum"]), Fraction(record["maximum"])
            return Codes.of_range(record["bits"], *ends, *_range_and_rounding(record))
        case "FixedPoint":
            return Codes.fixed_point(record["integer"], record["fraction"], *_range_and_rounding(record))
        case "TableIndex":
            return table_index(record["first"], record["last"], record["scale"])
        case "Binary16":
            return Binary16()
        case kind:
            raise ValueError(f"kind must be one of codes or Binary16, not {kind!r}")


def _range_and_rounding(record: Record) -> tuple[Any, Rounding]:
    codes = record["codes"]
    return tuple(codes) if isinstance(codes, list) else CodeRange[codes], Rounding[record["rounding"]]


def operator_record(operator: PointwiseOperator) -> Record:
    """Name and parameters; a caller's function leaves only its label."""
    parameters = {key: str(value) for key, value in operator.parameters}
    return {"name": operator.name, "parameters": parameters, "custom": operator.custom}


def operator_of(record: Record) -> PointwiseOperator:
    """The operator of a record; a caller's function cannot be applied any more."""
    if record["custom"]:
        return PointwiseOperator(record["name"], custom=True)
    return PointwiseOperator.of((record["name"], {key: Fraction(value) for key, value in record["parameters"].items()}))
