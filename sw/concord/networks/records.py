"""Operations as data that JSON can hold, with arrays and tables beside it; whatever fields a class has.

A record of an object has the class as ``kind``, by its module in :mod:`concord.integer`, and its fields by their names.
So a new class of operations, moves or requantisations needs nothing here.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.integer.graph import IntegerOperation
from concord.integer.operations import IntegerProduct
from concord.integer.requantise import FloatRequantisation
from concord.transfer import Codes, TransferTable
from concord.transfer.records import Record, target_of, target_record

#: Classes of records are of this package.
_PACKAGE = "concord.integer"
#: Kinds that folders have which were written before a class took the place of several, and fields that it has besides.
_RENAMED: dict[str, tuple[str, dict[str, Any]]] = {
    "operations.CodeDifference": ("operations.CodeFloats", {}),
    "tflite.operations.ChannelsLastAverage": ("operations.IntegerAverage", {"dilations": (1, 1), "last": True}),
    "tflite.operations.ChannelsLastConvolution": ("weighted_sums.IntegerConvolution", {"last": True}),
    "tflite.operations.ChannelsLastMaximum": ("operations.CodeMaximum", {"dilations": (1, 1), "last": True}),
    "tflite.operations.DenseRows": ("weighted_sums.IntegerMatMul", {}),
    "tflite.operations.FixedPointProduct": ("operations.IntegerProduct", {}),
}


def _product_of_kernel(
    *, ratio: np.float32, zero_point: int, low: int, high: int, shift: int = 0, **fields: Any
) -> IntegerProduct:
    """The product that had the fields of its requantisation as its own."""
    return IntegerProduct(**fields, requantisation=FloatRequantisation.of_kernel(ratio, zero_point, shift, low, high))


#: Makers of what takes the place of classes that had other fields, by the kinds that folders have.
_CONVERTED: dict[str, Callable[..., IntegerOperation]] = {"operations.CodeProduct": _product_of_kernel}
#: Types of arrays in a file; they are int64 or float32 in an operation.
_NARROW = [np.dtype(name) for name in ("<i1", "<i2", "<i4", "<i8")]


class RecordWriter:
    """Makes records, and gathers arrays.

    Parameters
    ----------
    site_of : callable
        The site of a table.

    Members
    -------
    arrays : list of arrays
        In the order of their numbers; integers are as narrow as they may be.
    """

    def __init__(self, site_of: Callable[[TransferTable], str]):
        self.arrays: list[NDArray[Any]] = []
        self._site_of = site_of

    def record(self, value: Any) -> Any:
        """A field, or an object with fields; ``TypeError`` for what no record can hold."""
        match value:
            case None | bool() | int() | str():
                return value
            case _ if isinstance(value, np.float32):
                return {"float32": float(value).hex()}
            case tuple():
                return [self.record(item) for item in value]
            case np.ndarray():
                return {"array": self._array(value), "dtype": value.dtype.name}
            case TransferTable():
                return {"table": self._site_of(value)}
            case Codes():
                return {"scheme": target_record(value)}
            case _ if is_dataclass(value) and _is_own(type(value)):
                kind = f"{type(value).__module__.removeprefix(_PACKAGE + '.')}.{type(value).__name__}"
                items = {item.name: self.record(getattr(value, item.name)) for item in fields(value)}
                return {"kind": kind, "fields": items}
            case _:
                raise TypeError(f"fields must be numbers, texts, arrays, tables, schemes or records, not {value!r}")

    def _array(self, value: NDArray[Any]) -> int:
        """The number of an array."""
        if value.dtype == np.int64:
            ends = (value.min(), value.max()) if value.size else (0, 0)
            narrow = next(t for t in _NARROW if np.iinfo(t).min <= ends[0] and ends[1] <= np.iinfo(t).max)
            value = value.astype(narrow)
        elif value.dtype != np.float32:
            raise TypeError(f"arrays must be of int64 or float32, not of {value.dtype}")
        self.arrays.append(value)
        return len(self.arrays) - 1


class RecordReader:
    """Makes objects of records; errors are ``KeyError``, ``IndexError``, ``TypeError`` or ``ValueError``.

    Parameters
    ----------
    arrays : sequence of arrays
        By number.
    table_of : callable
        The table of a site.
    """

    def __init__(self, arrays: Sequence[NDArray[Any]], table_of: Callable[[str], TransferTable]):
        self._arrays = arrays
        self._table_of = table_of

    def operation(self, record: Any) -> IntegerOperation:
        """The operation of a record."""
        value = self.value(record)
        if not isinstance(value, IntegerOperation):
            raise ValueError(f"record must be of an operation, not {record!r}")
        return value

    def value(self, record: Any) -> Any:
        """A field, or an object with fields."""
        if isinstance(record, list):
            return tuple(self.value(item) for item in record)
        if not isinstance(record, dict):
            return record
        if "float32" in record:
            return np.float32(float.fromhex(record["float32"]))
        if "array" in record:
            return self._arrays[record["array"]].astype(np.dtype(record["dtype"]))
        if "table" in record:
            return self._table_of(record["table"])
        if "scheme" in record:
            return target_of(record["scheme"])
        return self._object(record["kind"], record["fields"])

    def _object(self, kind: str, items: Mapping[str, Record]) -> Any:
        values = {key: self.value(item) for key, item in items.items()}
        if kind in _CONVERTED:
            return _CONVERTED[kind](**values)
        path, besides = _RENAMED.get(kind, (kind, {}))
        module, _, name = path.rpartition(".")
        try:
            named = getattr(importlib.import_module(f"{_PACKAGE}.{module}"), name)
        except (ImportError, AttributeError) as error:
            raise ValueError(f"kind must be a class of {_PACKAGE}, not {kind!r}") from error
        if not (isinstance(named, type) and is_dataclass(named) and _is_own(named)):
            raise ValueError(f"kind must be a class with fields, not {kind!r}")
        return named(**values | besides)


def _is_own(kind: type) -> bool:
    return kind.__module__.startswith(f"{_PACKAGE}.")
