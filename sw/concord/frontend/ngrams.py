"""TfIdfVectorizer: how often sequences of numbers or of texts are in a row, which the host counts."""

from __future__ import annotations

import numpy as np

from concord.frontend.context import Context, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.host import HostHandler, TypedTensor, looked_up_texts
from concord.utils.arrays import FloatArray

#: Numbers of a table of places by sequences, whose products are in memory.
_LARGEST_TABLE = 1 << 22


def count_ngrams(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Counts of all n-grams, also with elements left out between theirs; whether they are there, or times weights."""
    mode, shape = node.attrs.get("mode"), ctx.shape(ctx.tensor(node.input(0)))
    if mode not in ("TF", "IDF", "TFIDF"):
        raise Refusal(f"mode must be one of TF, IDF, TFIDF, not {mode}")
    if len(shape) not in (1, 2):
        raise Refusal(f"operand must have one or two axes, not the shape {list(shape)}")
    x, pool = _pool(ctx, node)
    rows = ctx.emit(node, "Reshape", [x], shape=(1, *shape)) if len(shape) == 1 else x
    indexes = np.asarray(node.attrs["ngram_indexes"], np.int64)
    parts = _parts(ctx, node, rows, pool)
    counts = ctx.joined(node, parts, 1)
    order = np.full(int(indexes.max()) + 1, len(indexes))
    order[indexes] = np.arange(len(indexes))
    if (order == len(indexes)).any():  # results that no n-gram has
        zero = ctx.emit(node, "Fill", [rows], value=np.zeros((ctx.shape(rows)[0], 1)))
        counts = ctx.emit(node, "Concat", [counts, zero], axis=1)
    places = ctx.emit(node, "Fill", [rows], value=order.astype(np.float64))
    y = ctx.emit(node, "Take", [counts, places], axis=1)
    if mode == "IDF":
        y = ctx.emit(node, "Less", [y], constant=np.zeros(()), reversed=True)
    if mode != "TF" and "weights" in node.attrs:
        weights = np.append(np.asarray(node.attrs["weights"], np.float64), 0.0)
        y = ctx.emit(node, "Mul", [y], constant=weights[order])
    return [TypedTensor(ctx.emit(node, "Reshape", [y], shape=(len(order),)) if len(shape) == 1 else y)]


def _parts(ctx: Context, node: OnnxNode, rows: str, pool: FloatArray) -> list[str]:
    """Counts ``[rows, n-grams]`` of those of every length, in the order of the pool."""
    count, length = ctx.shape(rows)
    least, most = int(node.attrs["min_gram_length"]), int(node.attrs["max_gram_length"])
    starts, parts = [*map(int, node.attrs["ngram_counts"])], []
    for size, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        group = pool[begin:end].reshape(-1, size)
        total = ctx.emit(node, "Fill", [rows], value=np.zeros((count, len(group)))) if len(group) else ""
        for apart in range(1, (int(node.attrs["max_skip_count"]) if size > 1 else 0) + 2):
            positions = length - (size - 1) * apart
            if positions < 1 or not least <= size <= most or not total:
                continue
            if positions * len(group) > _LARGEST_TABLE:
                raise Refusal(f"must compare at most {_LARGEST_TABLE} numbers, not {positions * len(group)}")
            hits = ""
            for k in range(size):
                start = k * apart
                part = ctx.emit(
                    node, "Slice", [rows], axes=(1,), starts=(start,), stops=(start + positions,), steps=(1,)
                )
                column = ctx.emit(node, "Reshape", [part], shape=(count, positions, 1))
                equal = ctx.emit(node, "Equal", [column], constant=group[:, k])
                hits = ctx.emit(node, "Mul", [hits, equal]) if hits else equal
            times = ctx.emit(node, "ReduceSum", [hits], axes=(1,), keepdims=False)
            total = ctx.emit(node, "Add", [total, times])
        if total:
            parts.append(total)
    return parts


def _pool(ctx: Context, node: OnnxNode) -> tuple[str, FloatArray]:
    """The operand, and the elements of all n-grams one after the other; of texts their places."""
    texts, strings = ctx.texts.get(node.input(0)), node.attrs.get("pool_strings")
    if (texts is not None) != bool(strings):
        kind = "pool_int64s" if texts is None else "pool_strings"
        raise Refusal(f"n-grams must be {kind}, as the operand is of {'numbers' if texts is None else 'texts'}")
    if texts is None:
        return ctx.tensor(node.input(0)), np.asarray(node.attrs["pool_int64s"], np.float64)
    return looked_up_texts(ctx, node, strings or ())


NGRAM_HANDLERS: dict[str, HostHandler] = {"TfIdfVectorizer": count_ngrams}
