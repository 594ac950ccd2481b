"""Interface of a library of arrays, as NumPy, PyTorch and ONNX have one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from concord.derive.exact.arrays import Array, ArrayWriter, Shapes
from concord.integer.float32 import Integers
from concord.integer.moves import ConcatMove, PadMove, TransposeMove
from concord.integer.operations import CodeMovement
from concord.integer.sum_orders import Step
from concord.integer.wide import numbers_of


class LibraryWriter(ArrayWriter):
    """Writes operations on arrays of any number of samples, some of them made of what only libraries have."""

    @abstractmethod
    def quotient(self, a: Array, b: Array) -> Array:
        """``floor(a / b)`` of integers that are not negative, by positive ones."""

    @abstractmethod
    def concatenate(self, parts: Sequence[Array], axis: int) -> Array:
        """Arrays side by side."""

    @abstractmethod
    def take(self, a: Array, index: Integers, hint: str) -> Array:
        """Elements of each sample of ``[samples, elements]`` by constant indices of one dimension."""

    def nearest_quotient(self, a: Array, count: Integers) -> Array:
        sign = self.add(self.multiply(self.sign(a), self.integers(2, "two")), self.integers(1, "one"))
        size = self.add(self.multiply(a, sign), self.integers(count // 2, "half"))
        return self.multiply(self.quotient(size, self.integers(count, "count")), sign)

    def divided_by_power(self, a: Array, bits: Array, more: int) -> Array:
        down = np.int64(1) << np.maximum(np.arange(32) + more, 0)
        half = self.look_up(down >> 1, bits, 0, "halves")
        return self.quotient(self.add(a, half), self.look_up(down, bits, 0, "units"))

    def summed(self, a: Array, rows: tuple[int, int], steps: Sequence[Step]) -> Array:
        (count, size), places = rows, np.arange(rows[1])
        if len(steps) == len(steps[0]) == 1:
            return self.added_up(a)
        for step in steps:
            parts, made = [], []
            for length in sorted({len(group) for group in step}):
                alike = [k for k, group in enumerate(step) if len(group) == length]
                within = places[np.array([step[k] for k in alike])]
                index = np.arange(count)[:, None, None] * size + within
                flat = self.take(self.reshape(a, (count * size,)), index.reshape(-1), "order")
                part = self.reshape(flat, (count, len(alike), length))
                parts.append(self.reshape(self.added_up(part), (count, len(alike))))
                made += alike
            a = parts[0] if len(parts) == 1 else self.concatenate(parts, 2)
            places, size = np.argsort(made), len(made)
        return a

    def moved(self, operation: CodeMovement, parts: list[Array], shapes: Shapes) -> Array:
        sources, target = [shapes[name] for name in operation.inputs], shapes[operation.output]
        move, (codes, *_), (shape, *_) = operation.move, parts, sources
        if isinstance(move, ConcatMove) and move.axis % len(target):
            return self.concatenate(parts, move.axis % len(target))
        if isinstance(move, PadMove):
            return self._padded(move, codes, shape, target)
        index = _sample_index(operation, sources)
        if np.array_equal(index.reshape(-1), np.arange(prod(shape))):
            return codes if shape == target else self._reshaped(codes, shape, target)
        if isinstance(move, TransposeMove):
            return self.transpose(codes, move.axes or range(len(target) - 1, -1, -1))
        flat = self._reshaped(codes, shape, (1, prod(shape)))
        return self._reshaped(self.take(flat, index.reshape(-1), "index"), (1, index.size), target)

    def _reshaped(self, codes: Array, shape: tuple[int, ...], target: tuple[int, ...]) -> Array:
        """Another shape, in which a sample may have another number of elements along the first axis."""
        if shape[:1] == target[:1]:
            return self.reshape(codes, target[1:])
        return self.regroup(codes, target[1:])

    def _padded(self, move: PadMove, codes: Array, shape: tuple[int, ...], target: tuple[int, ...]) -> Array:
        """Codes by index, of which those of the padding are multiplied by 0; the code of it is added to them."""
        places = replace(move, value=-1).apply(np.arange(prod(shape)).reshape(shape)).reshape(-1)
        flat = self._reshaped(codes, shape, (1, prod(shape)))
        values = np.where(places < 0, move.value, 0)
        if codes.real:
            inside, outside = self.numbers(places >= 0, "inside"), self.numbers(numbers_of(values), "outside")
        else:
            inside, outside = self.integers(places >= 0, "inside"), self.integers(values, "outside")
        kept = self.multiply(self.take(flat, np.maximum(places, 0), "index"), inside)
        return self._reshaped(self.add(kept, outside), (1, prod(target)), target)


def _sample_index(operation: CodeMovement, shapes: list[tuple[int, ...]]) -> Integers:
    """Number of the element of its sample that each element of the result is; both may have several rows of a sample.

    Raises
    ------
    ValueError
        If there are several operands, or samples mix.
    """
    if len(shapes) != 1:
        raise ValueError(f"{operation.name} must move the codes of one tensor, or put tensors side by side")
    (first, *rest), size = shapes[0], prod(shapes[0])
    alone = operation.move.apply(np.arange(size).reshape(shapes[0]))
    try:
        two = operation.move.apply(np.arange(2 * size).reshape(2 * first, *rest))
    except ValueError:  # a shape with a fixed number of samples
        two = alone
    if two.shape != (2 * len(alone), *alone.shape[1:]) or not np.array_equal(
        two, np.concatenate([alone, alone + size])
    ):
        raise ValueError(f"{operation.name} must leave every sample by itself, and does not")
    return np.asarray(alone)
