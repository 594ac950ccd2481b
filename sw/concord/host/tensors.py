"""Batches of inputs: everything is checked before anything is sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from concord.golden.real_numbers import check_real_numbers
from concord.image import Port
from concord.utils.arrays import Array

Batch = dict[str, Array]


def check_batch(ports: Sequence[Port], inputs: ArrayLike | Mapping[str, ArrayLike]) -> tuple[Batch, int]:
    """Return the inputs by name as ``[batch, ...]``, and the size of the batch.

    Arrays of float32 and float64 are returned as they are, others as float64.

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


def _check(port: Port, values: ArrayLike) -> Array:
    numbers = check_real_numbers(port.name, values)
    if numbers.dtype not in (np.float32, np.float64):
        numbers = numbers.astype(np.float64)
    if numbers.shape[1:] != port.shape or not numbers.ndim:
        wanted = ", ".join(["batch", *map(str, port.shape)])
        raise ValueError(f"{port.name} must have shape [{wanted}], not {list(numbers.shape)}")
    return numbers


def unwrap_outputs(outputs: Batch | dict[str, Array], as_array: bool) -> Any:
    """Outputs as they are handed out: one array if one array came in and there is one output."""
    return next(iter(outputs.values())) if as_array and len(outputs) == 1 else outputs
