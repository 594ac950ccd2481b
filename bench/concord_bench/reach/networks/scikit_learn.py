"""Estimators of scikit-learn as skl2onnx writes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from concord_bench.reach.networks.builder import Builder, Family, whole
from concord_bench.reach.networks.tables import layers

SKLEARN = Family("scikit-learn")


def scaler(b: Builder, x: str, features: int) -> str:
    """StandardScaler of scikit-learn."""
    offset = b.rng.uniform(-1, 3, features).tolist()
    return str(b.ml("Scaler", x, offset=offset, scale=b.rng.uniform(0.3, 2, features).tolist()))


def trees(b: Builder, features: int, results: int, count: int, depth: int = 4) -> dict[str, Any]:
    """Attributes of full random trees; leaves have a weight for every result."""
    names = ("nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes", "nodes_truenodeids",
             "nodes_falsenodeids", "nodes_hitrates", "nodes_missing_value_tracks_true")  # fmt: skip
    table: dict[str, Any] = {name: [] for name in names}
    leaves: list[tuple[int, int, int, float]] = []
    inner = 2**depth - 1
    for tree in range(count):
        for node in range(2 * inner + 1):
            is_leaf = node >= inner
            row = (
                tree, node, 0 if is_leaf else int(b.rng.integers(features)),
                0.0 if is_leaf else float(b.rng.normal()), "LEAF" if is_leaf else "BRANCH_LEQ",
                0 if is_leaf else 2 * node + 1, 0 if is_leaf else 2 * node + 2, 1.0, 0,
            )  # fmt: skip
            for name, value in zip(names, row, strict=True):
                table[name].append(value)
            if is_leaf:
                shares = b.rng.dirichlet(np.ones(max(2, results)))[:results] / count
                leaves += [(tree, node, k, float(share)) for k, share in enumerate(shares)]
    table["leaves"] = list(leaves)
    return table


@SKLEARN.network("Pipeline(StandardScaler, LogisticRegression) by skl2onnx: labels of text, ZipMap")
def logistic_regression(b: Builder) -> None:
    x = scaler(b, b.input("float_input", ["N", 4], values=lambda rng, shape: rng.normal(1, 1, shape).astype("f")), 4)
    names = ["setosa", "versicolor", "virginica"]
    weights = b.rng.normal(0, 1.5, 12).tolist()
    label, scores = b.ml(
        "LinearClassifier", x, results=2, classlabels_strings=names, coefficients=weights,
        intercepts=b.rng.normal(0, 0.2, 3).tolist(), multi_class=1, post_transform="SOFTMAX",
    )  # fmt: skip
    b.ml("ZipMap", b.ml("Normalizer", scores, norm="L1"), classlabels_strings=names)
    b.nodes[-1].output[0] = "output_probability"
    kinds = helper.make_map_type_proto(TensorProto.STRING, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    b.result("output_label", label, TensorProto.STRING)
    b.outputs.append(helper.make_value_info("output_probability", helper.make_sequence_type_proto(kinds)))


@SKLEARN.network("LogisticRegression with zipmap=False and int64 labels")
def logistic_no_zipmap(b: Builder) -> None:
    x = b.input("X", ["N", 6])
    label, scores = b.ml(
        "LinearClassifier", x, results=2, classlabels_ints=[0, 1, 2], coefficients=b.rng.normal(0, 1.5, 18).tolist(),
        intercepts=b.rng.normal(0, 0.2, 3).tolist(), multi_class=1, post_transform="SOFTMAX",
    )  # fmt: skip
    b.result("label", label, TensorProto.INT64, ["N"])
    b.result("probabilities", b.ml("Normalizer", scores, norm="L1"), shape=["N", 3])


@SKLEARN.network("LinearRegression behind a StandardScaler")
def linear_regression(b: Builder) -> None:
    x = scaler(b, b.input("X", ["N", 6], values=lambda rng, shape: rng.normal(1, 1, shape).astype("f")), 6)
    y = b.ml("LinearRegressor", x, coefficients=b.rng.normal(size=6).tolist(), intercepts=[0.3], targets=1)
    b.result("variable", y, shape=["N", 1])


@SKLEARN.network("MLPClassifier behind a StandardScaler: ArgMax, ArrayFeatureExtractor for the labels")
def mlp_classifier(b: Builder) -> None:
    x = scaler(b, b.input("X", ["N", 8], values=lambda rng, shape: rng.normal(1, 1, shape).astype("f")), 8)
    x = b.op("Cast", x, to=1)
    for cin, cout in ((8, 32), (32, 3)):
        x = b.add(b.op("MatMul", x, b.weight(cin, cout, fan=cin, gain=1.4)), b.small(1, cout))
        x = b.op("Relu", x) if cout == 32 else b.op("Softmax", x, axis=1)
    best = b.op("ArgMax", x, axis=1, keepdims=1)
    label = b.ml("ArrayFeatureExtractor", b.const(np.array([0, 1, 2], np.int64), "classes"), best)
    b.result("label", b.reshape(label, -1), TensorProto.INT64, ["N"])
    b.result("probabilities", x, shape=["N", 3])


@SKLEARN.network("SVC with RBF kernel (SVMClassifier)")
def svm_rbf(b: Builder) -> None:
    x = b.input("X", ["N", 4])
    label, scores = b.ml(
        "SVMClassifier", x, results=2, classlabels_ints=[0, 1], coefficients=b.rng.normal(size=12).tolist(),
        kernel_params=[0.3, 0.0, 3.0], kernel_type="RBF", post_transform="NONE", rho=[0.1],
        support_vectors=b.rng.normal(size=48).tolist(), vectors_per_class=[6, 6],
    )  # fmt: skip
    b.result("label", label, TensorProto.INT64, ["N"])
    b.result("scores", scores, shape=["N", 2])


@SKLEARN.network("SVR with RBF kernel (SVMRegressor)")
def svr_rbf(b: Builder) -> None:
    y = b.ml(
        "SVMRegressor", b.input("X", ["N", 4]), coefficients=b.rng.normal(size=12).tolist(), n_supports=12,
        kernel_params=[0.3, 0.0, 3.0], kernel_type="RBF", rho=[0.1], support_vectors=b.rng.normal(size=48).tolist(),
    )  # fmt: skip
    b.result("variable", y, shape=["N", 1])


@SKLEARN.network("RandomForestClassifier of eight trees of depth 4 (TreeEnsembleClassifier)")
def random_forest(b: Builder) -> None:
    table = trees(b, 6, 3, 8)
    tree, node, target, weight = zip(*table.pop("leaves"), strict=True)
    label, scores = b.ml(
        "TreeEnsembleClassifier", b.input("X", ["N", 6]), results=2, **table, class_treeids=tree, class_nodeids=node,
        class_ids=target, class_weights=weight, classlabels_int64s=[0, 1, 2], post_transform="NONE",
    )  # fmt: skip
    b.result("label", label, TensorProto.INT64)
    b.result("probabilities", scores)


@SKLEARN.network("GradientBoostingRegressor of ten trees of depth 3 (TreeEnsembleRegressor)")
def gradient_boosting(b: Builder) -> None:
    table = trees(b, 6, 1, 10, depth=3)
    tree, node, target, weight = zip(*table.pop("leaves"), strict=True)
    y = b.ml(
        "TreeEnsembleRegressor", b.input("X", ["N", 6]), **table, target_treeids=tree, target_nodeids=node,
        target_ids=target, target_weights=weight, n_targets=1, base_values=[0.2], post_transform="NONE",
    )  # fmt: skip
    b.result("variable", y)


@SKLEARN.network("KMeans: distances by Gemm, ArgMin for the cluster (skl2onnx)")
def kmeans(b: Builder) -> None:
    x = b.input("X", ["N", 4], values=lambda rng, shape: (2 * rng.standard_normal(shape)).astype("f"))
    centres = 2 * b.rng.standard_normal((5, 4)).astype(np.float32)
    square = b.op("ReduceSumSquare", x, axes=[1], keepdims=1)
    cross = b.op("Gemm", x, b.const(centres), square, alpha=-2.0, transB=1)
    distances = b.add(b.const((centres**2).sum(1)[None]), cross)
    b.result("label", b.op("ArgMin", distances, axis=1, keepdims=0), TensorProto.INT64)
    b.result("scores", b.op("Sqrt", b.op("Max", distances, b.scalar(0))))


@SKLEARN.network("PCA: mean off, product with components (skl2onnx)")
def pca(b: Builder) -> None:
    x = b.op("Sub", b.input("X", ["N", 16]), b.small(16, size=0.5))
    b.result("variable", b.op("MatMul", x, b.weight(16, 4, fan=16)))


@SKLEARN.network("GaussianMixture: products with Cholesky factors, squares, sum, logarithm of a sum of exponentials")
def gaussian_mixture(b: Builder) -> None:
    x = b.input("X", ["N", 4])
    parts = []
    for _ in range(3):
        y = b.op("Sub", b.op("MatMul", x, b.weight(4, 4, fan=4)), b.small(4, size=0.5))
        parts.append(b.op("ReduceSumSquare", y, axes=[1], keepdims=1))
    scores = b.add(b.mul(b.concat(*parts), b.scalar(-0.5)), b.small(3, middle=-3.0))
    total = b.op("ReduceLogSumExp", scores, axes=[1], keepdims=1)
    b.result("label", b.op("ArgMax", scores, axis=1, keepdims=0), TensorProto.INT64)
    b.result("probabilities", b.op("Exp", b.op("Sub", scores, total)))
    b.output(total)


@SKLEARN.network("KNeighborsRegressor of one neighbour: Cdist written out, TopK, labels by ArrayFeatureExtractor")
def nearest_neighbour(b: Builder) -> None:
    x = b.input("X", ["N", 3])
    known = b.rng.standard_normal((24, 3)).astype(np.float32)
    difference = b.op("Sub", b.unsqueeze(x, 1), b.const(known[None]))
    distance = b.mean(b.mul(difference, difference), 2, keep=False, op="ReduceSum")
    _, nearest = b.op("TopK", distance, b.ints(1), results=2, axis=1, largest=0)
    b.result("variable", b.ml("ArrayFeatureExtractor", b.small(1, 24, size=1.0), b.reshape(nearest, -1)))


@SKLEARN.network("ColumnTransformer: OneHotEncoder of an int64 column and a scaled column, LogisticRegression")
def column_transformer(b: Builder) -> None:
    numbers = scaler(b, b.input("numbers", ["N", 3], values=lambda rng, shape: rng.normal(1, 1, shape).astype("f")), 3)
    kinds = b.input("kind", ["N", 1], TensorProto.INT64, whole(0, 4))
    hot = b.reshape(b.ml("OneHotEncoder", kinds, cats_int64s=[0, 1, 2, 3], zeros=1), -1, 4)
    x = b.ml("FeatureVectorizer", numbers, hot, inputdimensions=[3, 4])
    label, scores = b.ml(
        "LinearClassifier", x, results=2, classlabels_ints=[0, 1], coefficients=b.rng.normal(size=14).tolist(),
        intercepts=[0.1, -0.1], multi_class=0, post_transform="LOGISTIC",
    )  # fmt: skip
    b.result("label", label, TensorProto.INT64)
    b.result("probabilities", scores)


@SKLEARN.network("LabelEncoder behind ArgMax: numbers of classes to codes")
def label_encoder(b: Builder) -> None:
    x = layers(b, b.input("X", ["N", 6]), 6, 24, 4, gain=2)
    best = b.op("ArgMax", x, axis=1, keepdims=0)
    label = b.ml("LabelEncoder", best, keys_int64s=[0, 1, 2, 3], values_int64s=[10, 20, 40, 80], default_int64=-1)
    b.result("code", label, TensorProto.INT64)


@SKLEARN.network("Binarizer, Imputer and Normalizer in front of a regression")
def preprocessing(b: Builder) -> None:
    x = b.ml("Imputer", b.input("X", ["N", 6]), imputed_value_floats=[0.0] * 6, replaced_value_float=float("nan"))
    x = b.ml("Normalizer", x, norm="L2")
    y = b.ml("LinearRegressor", x, coefficients=b.rng.normal(size=6).tolist(), intercepts=[0.3], targets=1)
    b.result("variable", y, shape=["N", 1])
