"""Matrices that the project makes itself, such as triangles and selections, and the size that they may have.

A matrix with a row for every result and a column for every element grows with the product of two sizes of a model. So
whoever makes one asks here, and a model that is too large gets a message before memory is taken.
"""

from __future__ import annotations

from math import prod

import numpy as np

from concord.utils.arrays import FloatArray

#: Numbers of a matrix: 32 MiB in double precision, and sixteen times what the largest matrix memory of a preset holds.
LARGEST = 1 << 22


class MatrixTooLarge(ValueError):
    """The message about a matrix with more than :data:`LARGEST` numbers."""


def check_size(purpose: str, *shape: int) -> None:
    """Refuse a matrix that is too large.

    Parameters
    ----------
    purpose : str
        The purpose of the matrix, for the message.
    shape : int
        Its axes, each at least 0.

    Raises
    ------
    MatrixTooLarge
        Above :data:`LARGEST` numbers.
    """
    if prod(shape) > LARGEST:
        sizes = " x ".join(f"{size:,}" for size in shape)
        raise MatrixTooLarge(f"matrix of {purpose} must have at most {LARGEST:,} numbers, not {sizes}")


def zeros(purpose: str, *shape: int) -> FloatArray:
    """Zeros in a matrix, as :func:`check_size` has it."""
    check_size(purpose, *shape)
    return np.zeros(shape)


def eye(purpose: str, size: int) -> FloatArray:
    """An identity matrix ``[size, size]``, as :func:`check_size` has it."""
    check_size(purpose, size, size)
    return np.eye(size)
