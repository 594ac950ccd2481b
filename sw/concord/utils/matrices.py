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
#: Numbers of a matrix that holds the weights of a model between zeros, as those of groups of channels: 128 MiB.
LARGEST_SPREAD = 1 << 24


class MatrixTooLarge(ValueError):
    """The message about a matrix with more than :data:`LARGEST` numbers."""


def check_size(purpose: str, *shape: int, most: int = LARGEST) -> None:
    """Refuse a matrix that is too large.

    Parameters
    ----------
    purpose : str
        The purpose of the matrix, for the message.
    shape : int
        Its axes, each at least 0.
    most : int
        Numbers that it may have: :data:`LARGEST`, or :data:`LARGEST_SPREAD` for weights of the model between zeros.

    Raises
    ------
    MatrixTooLarge
        Above so many numbers.
    """
    if prod(shape) > most:
        sizes = " x ".join(f"{size:,}" for size in shape)
        raise MatrixTooLarge(f"matrix of {purpose} must have at most {most:,} numbers, not {sizes}")


def zeros(purpose: str, *shape: int) -> FloatArray:
    """Zeros in a matrix, as :func:`check_size` has it."""
    check_size(purpose, *shape)
    return np.zeros(shape)


def eye(purpose: str, size: int) -> FloatArray:
    """An identity matrix ``[size, size]``, as :func:`check_size` has it."""
    check_size(purpose, size, size)
    return np.eye(size)
