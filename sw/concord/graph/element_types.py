"""Types of the elements of tensors that are no floats: which numbers they have, and arrays of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.golden.host_math import host_places
from concord.graph.ops.host import WHOLE
from concord.utils.arrays import FloatArray

#: Types of whole numbers, and of truth values, by the names that NumPy has for them.
ELEMENT_TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")


def ends(element_type: str) -> tuple[float, float]:
    """The least and the greatest number of a type that double precision holds exactly with all between."""
    if element_type == "bool":
        return 0.0, 1.0
    info = np.iinfo(element_type)
    return max(float(info.min), -WHOLE), min(float(info.max), WHOLE)


def check_numbers(what: str, values: FloatArray, element_type: str) -> None:
    """``ValueError`` unless all values are numbers of a type."""
    low, high = ends(element_type)
    bad = values[~((low <= values) & (values <= high) & (np.rint(values) == values))]
    if bad.size:
        raise ValueError(
            f"{what} must have whole numbers from {low:.0f} to {high:.0f} ({element_type}), not {bad[0]:g}"
        )


def texts_of(values: npt.NDArray[Any]) -> tuple[str, ...]:
    """The texts of an array in their order."""
    return tuple(x.decode(errors="replace") if isinstance(x, bytes) else str(x) for x in values.reshape(-1).tolist())


def as_places(arrays: Mapping[str, npt.ArrayLike], texts: Mapping[str, Sequence[str]]) -> dict[str, npt.ArrayLike]:
    """Arrays by name with places in the place of texts, where there are some; of a text that is none the last place.

    Parameters
    ----------
    arrays : mapping of str to array
        Of texts, of their places, or of any numbers.
    texts : mapping of str to sequence of str
        Those that have places, by name; names of other arrays are left out.
    """
    numbers = dict(arrays)
    for name in texts.keys() & arrays.keys():
        values = np.asarray(arrays[name])
        if values.dtype.kind not in "fiub":
            places = {text: place for place, text in enumerate(texts[name])}
            at = [places.get(text, len(places) - 1) for text in texts_of(values)]
            numbers[name] = np.array(at, np.int64).reshape(values.shape)
    return numbers


def texts_at(values: FloatArray, texts: Sequence[str]) -> npt.NDArray[np.str_]:
    """The texts at places; ``ValueError`` if one is no place."""
    taken: npt.NDArray[np.str_] = np.asarray(texts, np.str_)[host_places(values, len(texts))]
    return taken


def of_type(values: FloatArray, element_type: str | None) -> npt.NDArray[Any]:
    """Numbers as elements of a type; ``None`` for the floats that they are. NaN becomes 0."""
    if element_type is None:
        return values
    low, high = ends(element_type)
    return np.clip(np.nan_to_num(values, nan=0.0), low, high).astype(element_type)
