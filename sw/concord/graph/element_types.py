"""Types of the elements of tensors: which numbers those have that are no floats, and arrays of all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from concord.golden.host_math import host_places
from concord.graph.ops.host import WHOLE
from concord.utils.arrays import Array, FloatArray

#: Types of floats that NumPy has and double precision holds, by the names that NumPy has for them.
FLOATS = ("float16", "float32", "float64")
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


def texts_of(values: Array) -> tuple[str, ...]:
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


def of_type(values: FloatArray, element_type: str | None) -> Array:
    """Numbers as elements of a type.

    Floats are rounded to the nearest one, of two to the even one, and beyond the ends of the type they are infinite. Of
    whole numbers NaN becomes 0, and what is beyond an end becomes the end.

    Parameters
    ----------
    values : float64 array
    element_type : str or None
        One of :data:`FLOATS` or :data:`ELEMENT_TYPES`; ``None`` for the numbers as they are.
    """
    if element_type is None:
        return values
    if element_type in FLOATS:
        with np.errstate(over="ignore"):
            return values.astype(element_type)
    low, high = ends(element_type)
    return np.clip(np.nan_to_num(values, nan=0.0), low, high).astype(element_type)
