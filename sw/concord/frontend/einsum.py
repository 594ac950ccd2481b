"""Einsum: sums, transpositions and one product."""

from __future__ import annotations

from math import prod

import numpy as np

from concord.frontend.context import Context, Handler, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.linear import batched_product
from concord.frontend.selecting import moved
from concord.utils.arrays import FloatArray

#: Letters for the axes of an ellipsis, none of them one that an equation may have.
_LETTERS = [chr(code) for code in range(0x100, 0x140)]


def _terms(equation: str, ranks: list[int]) -> tuple[list[str], str]:
    """Axes of each operand and of the result, a letter each; those of an ellipsis get letters of their own."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks):
        raise Refusal(f"equation '{equation}' must have {len(ranks)} terms")
    spare = [rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True)]
    if any((count and "..." not in term) or count < 0 for term, count in zip(terms, spare, strict=True)):
        raise Refusal(f"terms of '{equation}' must have a letter for each axis of their operands")
    most = max((count for term, count in zip(terms, spare, strict=True) if "..." in term), default=0)
    terms = [term.replace("...", "".join(_LETTERS[most - n : most])) for term, n in zip(terms, spare, strict=True)]
    if not arrow:
        letters = sorted(set("".join(terms)) - set(_LETTERS))
        right = "..." + "".join(letter for letter in letters if "".join(terms).count(letter) == 1)
    right = right.replace("...", "".join(_LETTERS[:most]))
    if len(set(right)) < len(right):
        raise Refusal(f"the result of '{equation}' must not name an axis twice", "put zeros beside the diagonal")
    if not set(right) <= set("".join(terms)):
        raise Refusal(f"the result of '{equation}' must have axes of its operands")
    return terms, right


def _diagonal(ctx: Context, node: OnnxNode, name: str, term: str) -> tuple[str, str]:
    """An operand with each of its letters once: where one is there twice, the elements with equal indices."""
    letters = "".join(dict.fromkeys(term))
    if letters == term:
        return name, term
    constant = ctx.is_constant(name)
    values = ctx.constants[name] if constant else np.arange(prod(ctx.shape(name))).reshape(ctx.shape(name))
    for letter in letters:
        while term.count(letter) > 1:
            first, second = _places(term, letter)
            if values.shape[first] != values.shape[second]:
                raise Refusal("axes of the same letter must have the same size")
            values = np.moveaxis(np.diagonal(values, 0, first, second), -1, first)
            term = term[:second] + term[second + 1 :]
    if not constant:
        return moved(ctx, node, name, values), term
    new = ctx.unique(f"{name}/diagonal")
    ctx.constants[new] = values
    return new, term


def _places(term: str, letter: str) -> tuple[int, int]:
    """The first two places of a letter."""
    first = term.index(letter)
    return first, term.index(letter, first + 1)


def _ordered(ctx: Context, node: OnnxNode, x: str, term: str, wanted: str) -> str:
    """The tensor with its axes in another order."""
    if term == wanted:
        return x
    return ctx.emit(node, "Transpose", [x], perm=tuple(term.index(letter) for letter in wanted))


def _summed(ctx: Context, node: OnnxNode, x: str, term: str, kept: set[str]) -> tuple[str, str]:
    """The tensor without the axes that nothing else has."""
    gone = tuple(k for k, letter in enumerate(term) if letter not in kept)
    if not gone:
        return x, term
    y = ctx.emit(node, "ReduceSum", [x], axes=gone, keepdims=False)
    return y, "".join(letter for letter in term if letter in kept)


def einsum(ctx: Context, node: OnnxNode) -> str:
    """Einsum: one operand is summed and transposed; of two, matrices are multiplied."""
    names = node.inputs
    if len(names) > 2:
        raise Refusal(f"must have one or two operands, not {len(names)}", "write it as several Einsum")
    constants = [name for name in names if ctx.is_constant(name)]
    ranks = [ctx.constants[n].ndim if n in constants else len(ctx.shape(n)) for n in names]
    terms, right = _terms(node.attrs["equation"], ranks)
    diagonals = [_diagonal(ctx, node, name, term) for name, term in zip(names, terms, strict=True)]
    names, terms = [name for name, _ in diagonals], [term for _, term in diagonals]
    constants = [name for name in names if ctx.is_constant(name)]
    if len(names) == 1:
        x, term = _summed(ctx, node, ctx.tensor(names[0]), terms[0], set(right))
        return _ordered(ctx, node, x, term, right)
    sizes: dict[str, int] = {}
    operands: list[str | FloatArray] = []
    for k, name in enumerate(names):
        kept = set(right) | set(terms[1 - k])
        if name in constants:
            gone = tuple(axis for axis, letter in enumerate(terms[k]) if letter not in kept)
            operands.append(ctx.floats(name, "operand").sum(axis=gone))
            shape = ctx.constants[name].shape
        else:
            shape = ctx.shape(name)
            operands.append(ctx.tensor(name))
        for letter, size in zip(terms[k], shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise Refusal("axes of the same letter must have the same size")
        if name in constants:
            terms[k] = "".join(letter for letter in terms[k] if letter in kept)
        else:
            operands[k], terms[k] = _summed(ctx, node, name, terms[k], kept)
    return _product(ctx, node, operands, terms, right, sizes)


def _product(
    ctx: Context, node: OnnxNode, operands: list[str | FloatArray], terms: list[str], right: str, sizes: dict[str, int]
) -> str:
    """The product of two operands all of whose axes are in the result or in both."""
    left, other = terms
    batch = [c for c in left if c in other and c in right]
    inner = [c for c in left if c in other and c not in right]
    rows, columns = [c for c in left if c not in other], [c for c in other if c not in left]

    def count(letters: list[str]) -> int:
        return prod(sizes[letter] for letter in letters)

    matrices: list[str | FloatArray] = []
    groups = ((rows, inner), (inner, columns))
    for operand, term, (first, second) in zip(operands, terms, groups, strict=True):
        wanted = "".join((*batch, *first, *second))
        shape = (*(sizes[c] for c in batch), count(first), count(second))
        if isinstance(operand, np.ndarray):
            matrices.append(operand.transpose([term.index(c) for c in wanted]).reshape(shape))
        else:
            matrices.append(ctx.emit(node, "Reshape", [_ordered(ctx, node, operand, term, wanted)], shape=shape))
    y = _matrices(ctx, node, matrices, bool(batch) and count(batch) > 1)
    made = "".join((*batch, *rows, *columns))
    y = ctx.emit(node, "Reshape", [y], shape=tuple(sizes[c] for c in made))
    return _ordered(ctx, node, y, made, right)


def _matrices(ctx: Context, node: OnnxNode, matrices: list[str | FloatArray], batched: bool) -> str:
    """Products of the last two axes."""
    a, b = matrices
    if batched and isinstance(a, str) and not isinstance(b, str):
        return batched_product(ctx, node, a, b)
    if batched and isinstance(b, str) and not isinstance(a, str):
        return batched_product(ctx, node, b, a, left=True)
    if isinstance(a, str):
        if isinstance(b, str):
            return ctx.emit(node, "MatMul", [a, b])
        weight = b.reshape(b.shape[-2:]).T
        return ctx.emit(node, "Dense", [a], weight=weight, bias=np.zeros(len(weight)))
    if not isinstance(b, str):
        raise Refusal("operands must not all be constant", "export with constants folded")
    rank = len(ctx.shape(b))
    order = (*range(rank - 2), rank - 1, rank - 2)
    weight = a.reshape(a.shape[-2:])
    swapped = ctx.emit(node, "Transpose", [b], perm=order)
    y = ctx.emit(node, "Dense", [swapped], weight=weight, bias=np.zeros(len(weight)), fixed=True)
    return ctx.emit(node, "Transpose", [y], perm=order)


HANDLERS: dict[str, Handler] = {"Einsum": einsum}
