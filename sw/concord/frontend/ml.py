"""Operators of ``ai.onnx.ml``: what converters make of scalers, linear models, support vectors and trees."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np

from concord.frontend.context import Context, OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.host import HostHandler, TypedTensor, looked_up_texts
from concord.frontend.logic import sign_beside
from concord.frontend.pointwise import absolute_of, apply, opposite, times
from concord.graph.element_types import texts_of
from concord.graph.ops.host import tree_depth
from concord.utils import matrices
from concord.utils.arrays import FloatArray

#: The domain of these operators.
DOMAIN = "ai.onnx.ml"
#: Transformations of scores that are taken.
_TRANSFORMS = ("NONE", "LOGISTIC", "SOFTMAX")


def _array(node: OnnxNode, *names: str) -> FloatArray | None:
    """The first of these attributes that is there, numbers or a tensor of them."""
    from onnx import TensorProto, numpy_helper

    for name in names:
        if name in node.attrs:
            value = node.attrs[name]
            values = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
            if values.dtype.kind not in "fiub":
                raise Refusal(f"{name} must be numbers, not texts", "encode them outside the model")
            return values.astype(np.float64)
    return None


def _needed(node: OnnxNode, *names: str) -> FloatArray:
    values = _array(node, *names)
    if values is None:
        raise Refusal(f"must have {names[0]}")
    return values


def _rows(ctx: Context, node: OnnxNode) -> tuple[str, int]:
    """The input as rows ``[N, F]``, and F."""
    x = ctx.tensor(node.input(0))
    shape = ctx.shape(x)
    if len(shape) == 1:
        return ctx.emit(node, "Reshape", [x], shape=(1, shape[0])), shape[0]
    if len(shape) != 2:
        raise Refusal(f"operand must have rows of features, not the shape {list(shape)}")
    return x, shape[1]


def _class_count(node: OnnxNode, labels: str) -> int:
    """Number of classes, from their labels: two or more."""
    count = len(node.attrs.get(labels, ())) or len(node.attrs.get("classlabels_strings", ()))
    if count < 2:
        raise Refusal(f"{labels} must be two labels or more, not {count}", "export a score for every class")
    return count


def _reads_labels(ctx: Context, node: OnnxNode) -> bool:
    """True if anything reads the first output."""
    return bool(node.outputs[0]) and node.outputs[0] in ctx.used


def _labels(ctx: Context, node: OnnxNode, places: str, *names: str) -> TypedTensor:
    """Labels of classes at places; of texts the places stay."""
    if not _reads_labels(ctx, node):
        return TypedTensor(places, "int64")
    if node.attrs.get("classlabels_strings"):
        return TypedTensor(places, "int64", tuple(node.attrs["classlabels_strings"]))
    labels = _needed(node, *names)
    if np.array_equal(labels, np.arange(len(labels))):
        return TypedTensor(places, "int64")
    return TypedTensor(ctx.emit(node, "Lookup", [places], table=labels, axis=0), "int64")


def _transformed(ctx: Context, node: OnnxNode, scores: str) -> str:
    name = node.attrs.get("post_transform", "NONE")
    if name not in _TRANSFORMS:
        raise Refusal(f"post_transform must be one of {', '.join(_TRANSFORMS)}, not {name}")
    if name == "NONE":
        return scores
    return ctx.emit(node, "Softmax", [scores], axis=1) if name == "SOFTMAX" else apply(ctx, node, scores, "sigmoid")


def _classified(ctx: Context, node: OnnxNode, scores: str, labels: str) -> list[TypedTensor]:
    """The label of the greatest score, and the scores."""
    best = ctx.emit(node, "ArgMax", [scores], axis=1, keepdims=False, least=False, last=False)
    return [_labels(ctx, node, best, labels), TypedTensor(_transformed(ctx, node, scores))]


def scaler(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Features less an offset, times a scale; each a number or one for every feature."""
    x, _ = _rows(ctx, node)
    y = ctx.emit(node, "Sub", [x], constant=_needed(node, "offset"))
    return [TypedTensor(ctx.emit(node, "Mul", [y], constant=_needed(node, "scale")))]


def normalizer(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Divided by a norm of every row."""
    x, _ = _rows(ctx, node)
    norm = node.attrs.get("norm", "MAX")
    axes: dict[str, Any] = {"axes": (1,), "keepdims": True}
    if norm == "MAX":
        inverse = apply(ctx, node, ctx.emit(node, "ReduceMax", [x], **axes), "reciprocal")
        return [TypedTensor(ctx.emit(node, "Mul", [x, inverse]))]
    if norm not in ("L1", "L2"):
        raise Refusal(f"norm must be one of MAX, L1, L2, not {norm}")
    terms = absolute_of(ctx, node, x) if norm == "L1" else ctx.emit(node, "Mul", [x, x])
    total = ctx.emit(node, "ReduceSum", [terms], **axes)
    inverse = apply(ctx, node, total, "reciprocal" if norm == "L1" else "rsqrt")
    return [TypedTensor(ctx.emit(node, "Mul", [x, inverse]))]


def binarizer(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """1 above a threshold, else 0."""
    x, _ = _rows(ctx, node)
    above = sign_beside(ctx, node, x, np.asarray(float(node.attrs.get("threshold", 0.0))))
    return [TypedTensor(ctx.emit(node, "Relu", [above]))]


def imputer(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Replace the values that stand for missing ones, NaN or a number, by others."""
    x, features = _rows(ctx, node)
    values = _needed(node, "imputed_value_floats", "imputed_value_int64s")
    if len(values) not in (1, features):
        raise Refusal(f"imputed values must be 1 or {features}, not {len(values)}")
    floats = "imputed_value_floats" in node.attrs
    missing = float(node.attrs.get("replaced_value_float" if floats else "replaced_value_int64", 0))
    kind = ctx.element_types.get(node.input(0))
    if np.isnan(missing):
        return [TypedTensor(ctx.emit(node, "Impute", [x], values=values), kind)]
    hit = ctx.emit(node, "Equal", [x], constant=np.asarray(missing))
    return [TypedTensor(ctx.emit(node, "Select", [hit, x], chosen=values), kind)]


def one_hot_encoder(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """1 at the place of the category along a new last axis, else 0."""
    texts, complete = ctx.texts.get(node.input(0)), not node.attrs.get("zeros", 1)
    if (texts is not None) != bool(node.attrs.get("cats_strings")):
        kind = "cats_int64s" if texts is None else "cats_strings"
        raise Refusal(f"categories must be {kind}, as the operand is of {'numbers' if texts is None else 'texts'}")
    if texts is not None:
        x, categories = looked_up_texts(ctx, node, node.attrs["cats_strings"])
    else:
        x, categories = ctx.tensor(node.input(0)), _needed(node, "cats_int64s")
        if node.input(0) not in ctx.element_types:  # ONNX casts floats
            x = ctx.emit(node, "Truncate", [x])
    return [TypedTensor(ctx.emit(node, "Categories", [x], categories=categories, complete=complete))]


def columns(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Features at constant places, or entries of a constant, such as labels, at computed ones."""
    if ctx.is_constant(node.input(0)):
        table = np.asarray(ctx.constants[node.input(0)])
        if table.dtype.kind not in "fiub":
            return [TypedTensor(ctx.tensor(node.input(1)), "int64", texts_of(table))]
        y = ctx.emit(node, "Lookup", [ctx.tensor(node.input(1))], table=table.astype(np.float64).reshape(-1), axis=0)
        return [TypedTensor(y, None if table.dtype.kind == "f" else table.dtype.name)]
    x, count = _rows(ctx, node)
    places = ctx.constant(node.input(1), "places").reshape(-1).astype(int)
    if places.size == 0 or places.min() < 0 or places.max() >= count:
        raise Refusal(f"places must be from 0 to {count - 1}, not {places.tolist()}")
    kind = ctx.element_types.get(node.input(0))
    parts = [ctx.emit(node, "Slice", [x], axes=(1,), starts=(int(k),), stops=(int(k) + 1,), steps=(1,)) for k in places]
    y = ctx.joined(node, parts, 1)
    return [TypedTensor(y, kind, ctx.texts.get(node.input(0)))]


def category_mapper(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Texts for whole numbers, or the other way round."""
    numbers, texts = node.attrs["cats_int64s"], node.attrs["cats_strings"]
    names = ("keys_strings", "values_int64s") if node.input(0) in ctx.texts else ("keys_int64s", "values_strings")
    keys, values = (texts, numbers) if node.input(0) in ctx.texts else (numbers, texts)
    node.attrs |= dict(zip(names, (keys, values), strict=True))
    return encoder(ctx, node)


def joined(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Features side by side."""
    return [TypedTensor(ctx.emit(node, "Concat", [ctx.tensor(name) for name in node.inputs], axis=1))]


def encoder(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Numbers or texts for such; those that are no key become the default."""
    x, texts = ctx.tensor(node.input(0)), ctx.texts.get(node.input(0))
    keys: Sequence[Any] = _entries(node, "keys_int64s", "keys_floats", "keys_tensor", "keys_strings")
    values: Sequence[Any] = _entries(node, "values_int64s", "values_floats", "values_tensor", "values_strings")
    if (texts is not None) != isinstance(keys[0], str):
        raise Refusal(f"keys must be {'numbers' if texts is None else 'texts'}, as the operand is")
    kind, default = _default(node, values)
    if texts is not None:
        known = dict(zip(keys, values, strict=True))
        entries = [known.get(text, default) for text in texts]
        if kind is str:
            return [TypedTensor(x, "int64", tuple(entries))]
        y = ctx.emit(node, "Lookup", [x], table=np.asarray(entries, np.float64), axis=0)
        return [TypedTensor(y, "int64" if kind is int else None)]
    if kind is str:
        texts = (*values, default)
        values, default = range(len(values)), len(values)
    y = ctx.emit(node, "Mul", [x], constant=np.zeros(()))
    y = ctx.emit(node, "Add", [y], constant=np.asarray(float(default)))
    for key, value in zip(keys, values, strict=True):
        hit = ctx.emit(node, "Equal", [x], constant=np.asarray(float(key)))
        y = ctx.emit(node, "Select", [hit, y], chosen=np.asarray(float(value)))
    return [TypedTensor(y, None if kind is float else "int64", texts)]


def _default(node: OnnxNode, values: Sequence[Any]) -> tuple[type, Any]:
    """Type of the entries, and the entry that stands for all that are no key."""
    name, usual = {str: ("default_string", "_Unused"), int: ("default_int64", -1), float: ("default_float", 0.0)}[
        type(values[0])
    ]
    return type(values[0]), _entries(node, name, "default_tensor", otherwise=usual)[0]


def _entries(node: OnnxNode, *names: str, otherwise: Any = None) -> list[Any]:
    """Numbers or texts of the first of these attributes that is there."""
    from onnx import TensorProto, numpy_helper

    for name in names:
        if name in node.attrs:
            value = node.attrs[name]
            values = numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)
            return values.reshape(-1).tolist() if values.dtype.kind in "fiub" else [*texts_of(values)]
    if otherwise is None:
        raise Refusal(f"must have {names[0]}")
    return [otherwise]


def linear_regressor(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """A product and a bias for every target."""
    targets = int(node.attrs.get("targets", 1))
    return [TypedTensor(_transformed(ctx, node, _linear(ctx, node, targets, _array(node, "intercepts"))))]


def _linear(ctx: Context, node: OnnxNode, outputs: int, bias: FloatArray | None) -> str:
    x, features = _rows(ctx, node)
    weight = _needed(node, "coefficients")
    if weight.size != outputs * features:
        raise Refusal(f"coefficients must be {outputs} for each of {features} features, not {weight.size}")
    bias = np.zeros(outputs) if bias is None else bias
    return ctx.emit(node, "Dense", [x], weight=weight.reshape(outputs, features), bias=bias)


def linear_classifier(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Scores of classes, and the label of the greatest."""
    classes = _class_count(node, "classlabels_ints")
    if _needed(node, "coefficients").size % classes:
        raise Refusal("must have coefficients for each of two labels or more", "export a score for every class")
    scores = _linear(ctx, node, classes, _array(node, "intercepts"))
    return _classified(ctx, node, scores, "classlabels_ints")


def _kernels(ctx: Context, node: OnnxNode, vectors: FloatArray) -> str:
    """The kernels of the features with every support vector."""
    x, features = _rows(ctx, node)
    if vectors.shape[1] != features:
        raise Refusal(f"support_vectors must have {features} features, not {vectors.shape[1]}")
    kernel, parameters = node.attrs.get("kernel_type", "LINEAR"), _array(node, "kernel_params")
    gamma, shift, degree = (0.0, 0.0, 0.0) if parameters is None else parameters.tolist()
    none = np.zeros(len(vectors))
    if kernel == "RBF":
        distance = ctx.emit(node, "Dense", [x], weight=-2 * vectors, bias=(vectors**2).sum(axis=1))
        size = ctx.emit(node, "ReduceSum", [ctx.emit(node, "Mul", [x, x])], axes=(1,), keepdims=True)
        distance = ctx.emit(node, "Relu", [ctx.emit(node, "Add", [distance, size])])
        return apply(ctx, node, ctx.emit(node, "Mul", [distance], constant=np.asarray(-float(gamma))), "exp")
    if kernel == "SIGMOID":
        return apply(ctx, node, ctx.emit(node, "Dense", [x], weight=gamma * vectors, bias=none + shift), "tanh")
    if kernel not in ("LINEAR", "POLY"):
        raise Refusal(f"kernel_type must be one of LINEAR, POLY, RBF, SIGMOID, not {kernel}")
    scale, offset, power = (gamma, shift, degree) if kernel == "POLY" else (1.0, 0.0, 1.0)
    product = kernels = ctx.emit(node, "Dense", [x], weight=scale * vectors, bias=none + offset)
    if power != int(power) or power < 1:
        raise Refusal(f"degree must be a positive whole number, not {degree:g}")
    for _ in range(int(power) - 1):
        kernels = ctx.emit(node, "Mul", [kernels, product])
    return kernels


def support_vectors(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """A sum of kernels of the support vectors; of a class alone 1 where it is positive, else -1."""
    coefficients, rho = _needed(node, "coefficients"), _array(node, "rho")
    bias = np.zeros(1) if rho is None else rho[:1]
    if int(node.attrs.get("n_supports", 0)) == 0:
        x, features = _rows(ctx, node)
        y = ctx.emit(node, "Dense", [x], weight=coefficients.reshape(1, features), bias=bias)
    else:
        vectors = _needed(node, "support_vectors").reshape(len(coefficients), -1)
        y = ctx.emit(node, "Dense", [_kernels(ctx, node, vectors)], weight=coefficients.reshape(1, -1), bias=bias)
    if node.attrs.get("one_class", 0):
        inside = ctx.emit(node, "Relu", [ctx.emit(node, "Sign", [y])])
        twice = ctx.emit(node, "Mul", [inside], constant=np.asarray(2.0))
        return [TypedTensor(ctx.emit(node, "Add", [twice], constant=np.asarray(-1.0)))]
    return [TypedTensor(_transformed(ctx, node, y))]


def support_vector_classifier(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Votes of a decision for every pair of classes [libsvm], and the scores of these decisions or of the classes."""
    classes = _class_count(node, "classlabels_ints")
    if "vectors_per_class" not in node.attrs:
        return _planes(ctx, node, classes)
    counts = [int(count) for count in node.attrs["vectors_per_class"]]
    if len(counts) != classes:
        raise Refusal(f"vectors_per_class must be a number for each of {classes} classes, not {len(counts)}")
    pairs = [*combinations(range(classes), 2)]

    def of_pairs(name: str) -> FloatArray:
        values = _needed(node, name)
        if len(values) < len(pairs):
            raise Refusal(
                f"{name} must be {len(pairs)} numbers or more, one for every pair of classes, not {len(values)}"
            )
        return values[: len(pairs)]

    ends = np.cumsum([0, *counts])
    vectors = _needed(node, "support_vectors").reshape(ends[-1], -1)
    coefficients, rho = _needed(node, "coefficients").reshape(classes - 1, ends[-1]), of_pairs("rho")
    weight = matrices.zeros("decisions for pairs of classes", len(pairs), int(ends[-1]))
    for row, (i, j) in enumerate(pairs):
        for own, other in ((i, j - 1), (j, i)):
            weight[row, ends[own] : ends[own + 1]] = coefficients[other, ends[own] : ends[own + 1]]
    shares = bool(node.attrs.get("prob_a"))
    if classes == 2 and not shares:
        weight, rho = np.concatenate([-weight, weight]), np.concatenate([-rho, rho])
        if node.attrs.get("post_transform", "NONE") == "SOFTMAX":
            raise Refusal("post_transform must be NONE or LOGISTIC for a score of two classes, not SOFTMAX")
    scores = ctx.emit(node, "Dense", [_kernels(ctx, node, vectors)], weight=weight, bias=rho)
    decisions = scores
    if classes == 2 and not shares:
        decisions = ctx.emit(node, "Slice", [scores], axes=(1,), starts=(1,), stops=(2,), steps=(1,))
    label = _labels(ctx, node, _most_votes(ctx, node, decisions, pairs), "classlabels_ints")
    if shares:
        attrs = {"slopes": of_pairs("prob_a"), "offsets": of_pairs("prob_b")}
        scores = ctx.emit(node, "Coupling", [scores], classes=classes, **attrs)
    return [label, TypedTensor(_transformed(ctx, node, scores))]


def _most_votes(ctx: Context, node: OnnxNode, decisions: str, pairs: Sequence[tuple[int, int]]) -> str:
    """Places of the classes with most votes, the first of several: a positive number is a vote for that in front."""
    classes = pairs[-1][1] + 1
    change, start = (matrices.zeros("votes for pairs of classes", 1, classes, len(pairs)) for _ in range(2))
    for k, (i, j) in enumerate(pairs):
        change[0, i, k], change[0, j, k], start[0, j, k] = 1, -1, 1
    won = ctx.emit(node, "Less", [decisions], constant=np.zeros(()), reversed=True)
    won = ctx.emit(node, "Reshape", [won], shape=(ctx.shape(won)[0], 1, len(pairs)))
    votes = ctx.emit(node, "Add", [ctx.emit(node, "Mul", [won], constant=change)], constant=start)
    votes = ctx.emit(node, "ReduceSum", [votes], axes=(2,), keepdims=False)
    return ctx.emit(node, "ArgMax", [votes], axis=1, keepdims=False, least=False, last=False)


def _planes(ctx: Context, node: OnnxNode, classes: int) -> list[TypedTensor]:
    """A linear score for every class."""
    if classes == 2 and _reads_labels(ctx, node):
        scores = f"--outputs {node.outputs[1]} keeps the scores alone, or export it as LinearClassifier"
        raise Refusal("label must not be read: without support vectors libraries differ on that of two classes", scores)
    scores = _linear(ctx, node, classes, np.repeat(_needed(node, "rho")[:1], classes))
    return _classified(ctx, node, scores, "classlabels_ints")


def _trees(ctx: Context, node: OnnxNode, prefix: str, outputs: int, ids: str) -> str:
    """The sums of what the leaves of all trees hold."""
    x, features = _rows(ctx, node)
    modes = set(node.attrs["nodes_modes"]) - {"LEAF"}
    if len(modes) > 1 or not modes <= {"BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"}:
        raise Refusal(f"nodes_modes must be one of LEQ, LT, GTE, GT for all branches, not {', '.join(sorted(modes))}")
    mode = modes.pop() if modes else "BRANCH_LEQ"
    if node.attrs.get("aggregate_function", "SUM") not in ("SUM", "AVERAGE"):
        raise Refusal(f"aggregate_function must be SUM or AVERAGE, not {node.attrs['aggregate_function']}")
    # Where missing values lead does not matter: inputs and what the NPU computes are numbers.
    keys = list(zip(node.attrs["nodes_treeids"], node.attrs["nodes_nodeids"], strict=True))
    number = {key: k for k, key in enumerate(keys)}
    trees = list(dict.fromkeys(tree for tree, _ in keys))
    leaf = np.array([name == "LEAF" for name in node.attrs["nodes_modes"]])

    def children(name: str) -> FloatArray:
        targets = node.attrs[name]
        return np.array([k if leaf[k] else number[(keys[k][0], targets[k])] for k in range(len(keys))], np.float64)

    low, high = children("nodes_truenodeids"), children("nodes_falsenodeids")
    if mode in ("BRANCH_GTE", "BRANCH_GT"):
        low, high = high, low
    values = np.zeros((len(keys), outputs))
    weights = _needed(node, f"{prefix}_weights", f"{prefix}_weights_as_tensor")
    rows = zip(node.attrs[f"{prefix}_treeids"], node.attrs[f"{prefix}_nodeids"], node.attrs[ids], weights, strict=True)
    for tree, place, target, weight in rows:
        values[number[(tree, place)], target] += weight
    if node.attrs.get("aggregate_function", "SUM") == "AVERAGE":
        values /= len(trees)
    feature = np.where(leaf, 0.0, np.asarray(node.attrs["nodes_featureids"], np.float64))
    if feature.max() >= features:
        raise Refusal(f"nodes_featureids must be less than {features}, not {feature.max():g}")
    reached = {int(target) for ends in (low, high) for k, target in enumerate(ends) if target != k}
    own = {tree: [number[key] for key in keys if key[0] == tree] for tree in trees}
    roots = np.array([next(k for k in own[tree] if k not in reached) for tree in trees], np.float64)
    base = _array(node, "base_values", "base_values_as_tensor")
    thresholds, strict = _needed(node, "nodes_values", "nodes_values_as_tensor"), mode in ("BRANCH_LT", "BRANCH_GTE")
    y = _forest(ctx, node, x, strict, (feature, thresholds, low, high, roots, values))
    return y if base is None else ctx.emit(node, "Add", [y], constant=base)


def _forest(ctx: Context, node: OnnxNode, x: str, strict: bool, arrays: tuple[FloatArray, ...]) -> str:
    """Trees of nodes with features, thresholds, where they lead, and values, in the order of the attributes."""
    nodes = dict(zip(("features", "thresholds", "low", "high", "roots", "values"), arrays, strict=True))
    depth = tree_depth(nodes["low"], nodes["high"], nodes["roots"])
    return ctx.emit(node, "Trees", [x], **nodes, strict=strict, depth=depth)


def tree_ensemble(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Trees whose nodes and leaves have numbers of their own; what the leaves hold is added up."""
    x, features = _rows(ctx, node)
    modes = {int(mode) for mode in _needed(node, "nodes_modes").reshape(-1)}
    if len(modes) > 1 or not modes <= {0, 1, 2, 3}:
        raise Refusal(f"nodes_modes must be one of 0, 1, 2, 3 for all nodes, not {', '.join(map(str, sorted(modes)))}")
    (mode,) = modes
    aggregate = int(node.attrs.get("aggregate_function", 1))
    if aggregate > 1:
        raise Refusal(f"aggregate_function must be 0 (mean) or 1 (sum), not {aggregate}")
    if node.attrs.get("post_transform", 0):
        reason = (
            f"post_transform must be 0, not {node.attrs['post_transform']}: runtimes differ on the numbers of others"
        )
        raise Refusal(reason, "put Softmax or Sigmoid behind")
    splits, leaves = _needed(node, "nodes_splits"), _needed(node, "leaf_weights")
    count, size = len(splits), len(splits) + len(leaves)

    def children(side: str) -> FloatArray:
        targets = np.asarray(node.attrs[f"nodes_{side}nodeids"]) + count * np.asarray(node.attrs[f"nodes_{side}leafs"])
        return np.concatenate([targets, np.arange(count, size)]).astype(np.float64)

    low, high = children("true"), children("false")
    if mode > 1:
        low, high = high, low
    feature = np.concatenate([np.asarray(node.attrs["nodes_featureids"], np.float64), np.zeros(len(leaves))])
    if feature.max() >= features:
        raise Refusal(f"nodes_featureids must be less than {features}, not {feature.max():g}")
    roots = np.asarray(node.attrs["tree_roots"], np.float64)
    values = np.zeros((size, int(node.attrs.get("n_targets", 1))))
    values[np.arange(count, size), np.asarray(node.attrs["leaf_targetids"])] = leaves / (1 if aggregate else len(roots))
    thresholds = np.concatenate([splits, np.zeros(len(leaves))])
    y = _forest(ctx, node, x, mode in (1, 2), (feature, thresholds, low, high, roots, values))
    return [TypedTensor(y)]


def tree_regressor(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Sum of the values that the leaves of all trees hold."""
    y = _trees(ctx, node, "target", int(node.attrs.get("n_targets", 1)), "target_ids")
    return [TypedTensor(_transformed(ctx, node, y))]


def tree_classifier(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """Scores of classes from the leaves of all trees, and the label of the greatest."""
    classes = len(node.attrs.get("classlabels_int64s", ())) or len(node.attrs.get("classlabels_strings", ()))
    ids = set(node.attrs["class_ids"])
    if classes == 2 and len(ids) == 1:
        return _two_classes(ctx, node)
    scores = _trees(ctx, node, "class", classes, "class_ids")
    return _classified(ctx, node, scores, "classlabels_int64s")


def _two_classes(ctx: Context, node: OnnxNode) -> list[TypedTensor]:
    """A score for the second class alone: a share where no weight is negative, else what a sigmoid is to read."""
    node.attrs["class_ids"] = [0] * len(node.attrs["class_ids"])
    score = _trees(ctx, node, "class", 1, "class_ids")
    share = _needed(node, "class_weights", "class_weights_as_tensor").min() >= 0
    other = opposite(ctx, node, score) if share else times(ctx, node, score, -1.0)
    scores = ctx.emit(node, "Concat", [other, score], axis=1)
    return _classified(ctx, node, scores, "classlabels_int64s")


def same(ctx: Context, node: OnnxNode) -> Sequence[TypedTensor]:
    """Scores in the order of the classes, in the place of a table by label."""
    return [TypedTensor(ctx.tensor(node.input(0)), ctx.element_types.get(node.input(0)))]


ML_HANDLERS: dict[str, HostHandler] = {
    "Scaler": scaler,
    "Normalizer": normalizer,
    "Binarizer": binarizer,
    "Imputer": imputer,
    "OneHotEncoder": one_hot_encoder,
    "ArrayFeatureExtractor": columns,
    "FeatureVectorizer": joined,
    "LabelEncoder": encoder,
    "LinearRegressor": linear_regressor,
    "LinearClassifier": linear_classifier,
    "SVMRegressor": support_vectors,
    "SVMClassifier": support_vector_classifier,
    "CategoryMapper": category_mapper,
    "TreeEnsemble": tree_ensemble,
    "TreeEnsembleRegressor": tree_regressor,
    "TreeEnsembleClassifier": tree_classifier,
    "ZipMap": same,
}
