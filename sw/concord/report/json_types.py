"""Plain values, as JSON has them, back to dataclasses."""

from __future__ import annotations

from dataclasses import is_dataclass
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


def typed(kind: type[T], value: Any) -> T:
    """A plain value as a dataclass of dataclasses, tuples and numbers, as the types of its fields say."""
    result: T = _typed(kind, value)
    return result


def _typed(kind: Any, value: Any) -> Any:
    """A plain value as a dataclass or a tuple, as its type says."""
    if get_origin(kind) is UnionType:
        (kind,) = (part for part in get_args(kind) if part is not type(None))
        return None if value is None else _typed(kind, value)
    if isinstance(kind, type) and is_dataclass(kind):
        hints = get_type_hints(kind)
        return kind(**{name: _typed(hints[name], part) for name, part in value.items()})
    if get_origin(kind) is tuple:
        return tuple(_typed(get_args(kind)[0], part) for part in value)
    return value
