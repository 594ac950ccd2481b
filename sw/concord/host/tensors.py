"""Batches of inputs: everything is checked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..image import Port
from ..spec.formats import HALF_MAX

#: Values from here on round to an infinity: half an ulp beyond the greatest binary16 number.
_TOO_LARGE = HALF_MAX + 16

Batch = dict[str, NDArray[np.float64]]


def check_batch(ports: Sequence[Port], inputs: ArrayLike | Mapping[str, ArrayLike]) -> tuple[Batch, int]:
    """Return the inputs by name as float64 ``[batch, ...]``, and the size of the batch.

    Parameters
    ----------
    ports : sequence of Port
        Inputs of the image.
    inputs : array or mapping of arrays
        One array per port, ``[batch, *port.shape]``; the array itself if there is only one port.

    Raises
    ------
    TypeError
        If an input is not made of real numbers.
    ValueError
        If a name, a shape or a value is wrong.
    """
    names = [port.name for port in ports]
    if not isinstance(inputs, Mapping):
        if len(names) != 1:
            raise ValueError(f"inputs must be a mapping with the names {names}, not one array")
        inputs = {names[0]: inputs}
    if set(inputs) != set(names):
        raise ValueError(f"inputs must have the names {names}, not {list(inputs)}")
    batch = {port.name: _check(port, inputs[port.name]) for port in ports}
    sizes = {name: len(array) for name, array in batch.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"inputs must have the same number of samples, not {sizes}")
    return batch, next(iter(sizes.values()), 1)


def _check(port: Port, values: ArrayLike) -> NDArray[np.float64]:
    numbers = real_numbers(port.name, values)
    if numbers.shape[1:] != port.shape or not numbers.ndim:
        wanted = ", ".join(["batch", *map(str, port.shape)])
        raise ValueError(f"{port.name} must have shape [{wanted}], not {list(numbers.shape)}")
    return numbers


def real_numbers(name: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return ``values`` as float64 of the same shape.

    Raises
    ------
    TypeError
        If they are no real numbers.
    ValueError
        If one is not finite, or an infinity in binary16.
    """
    given: NDArray[Any] = np.asarray(values)
    if given.dtype.kind not in "fiub":
        raise TypeError(f"{name} must be an array of real numbers, not of {given.dtype}")
    numbers = given.astype(np.float64)
    with np.errstate(invalid="ignore"):
        bad = ~(np.abs(numbers) < _TOO_LARGE)  # NaN too
    if bad.any():
        where = tuple(int(n) for n in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} must hold finite numbers within ±{HALF_MAX} (binary16), not {numbers[where]} at {list(where)}"
            f" ({int(bad.sum())} such values)"
        )
    return numbers


def present(outputs: Batch | dict[str, NDArray[Any]], as_array: bool) -> Any:
    """Outputs as they are handed out: one array if one array came in and there is one output."""
    return next(iter(outputs.values())) if as_array and len(outputs) == 1 else outputs
