"""Samples for a network: arrays by input, and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def inputs_of(names: Sequence[str], data: Mapping[str, Any] | npt.ArrayLike) -> dict[str, Any]:
    """Arrays by input, ``[samples, *shape]``.

    Parameters
    ----------
    names : sequence of str
        The inputs.
    data : mapping of str to array, or array
        Arrays by name, others among them; a single input may be called ``x``, or be the array itself.

    Raises
    ------
    ValueError
        If one is missing, or has no axis of samples.
    """
    if not isinstance(data, Mapping):
        if len(names) != 1:
            raise ValueError(f"data must be a mapping with the arrays {list(names)}, not {type(data).__name__}")
        data = {names[0]: np.asarray(data)}
    if len(names) == 1 and names[0] not in data and "x" in data:
        data = {names[0]: data["x"]}
    if any(name not in data for name in names):
        raise ValueError(f"data must have the arrays {list(names)}, not {list(data)}")
    for name in names:
        if not np.ndim(data[name]):
            raise ValueError(f"array {name!r} must have samples along its first axis, not be {data[name]!r}")
    return {name: data[name] for name in names}


def labels_of(arrays: Mapping[str, Any], names: Sequence[str], samples: int) -> npt.NDArray[np.int64] | None:
    """The array ``y`` of calibration data, if it is no input and has a class for every sample."""
    labels = arrays.get("y")
    if labels is None or "y" in names or labels.dtype.kind not in "iu" or labels.shape != (samples,):
        return None
    return np.asarray(labels, dtype=np.int64)
