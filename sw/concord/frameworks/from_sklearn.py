"""Estimators and pipelines of scikit-learn, by skl2onnx."""

from __future__ import annotations

from typing import Any

import numpy as np

from concord.frameworks.exported import finished, first_line, quiet

_EXTRA = "pip install 'concord-npu[sklearn]'"
#: Operators in place of which the converter can write plain products and sums.
_AVOIDED = {"LinearClassifier", "LinearRegressor", "Normalizer", "Scaler"}


def exported_sklearn(model: Any) -> bytes:
    """The contents of an ONNX file of a fitted estimator or pipeline.

    The input ``X`` is ``[samples, features]``. Of a classifier, results are probabilities, or what its decision
    function gives if it has none; labels, which are integers, are left out.

    Raises
    ------
    ValueError
        If it is not fitted, has no converter, or the package skl2onnx is not there.
    """
    kind = type(model).__name__
    try:
        import skl2onnx
        from skl2onnx.common.data_types import FloatTensorType
    except ImportError as error:
        raise ValueError(f"{kind} of scikit-learn needs the package skl2onnx: {_EXTRA}") from error
    import sklearn
    from sklearn.exceptions import NotFittedError
    from sklearn.utils.validation import check_is_fitted

    try:
        check_is_fitted(model)
        features = int(model.n_features_in_)
    except (NotFittedError, AttributeError) as error:
        raise ValueError(f"model must be fitted, not a {kind} without features: call its fit(X, y) first") from error

    def converted(avoided: set[str] | None) -> Any:
        with quiet():
            return skl2onnx.to_onnx(
                model,
                initial_types=[("X", FloatTensorType([None, features]))],
                options=_options(model),
                black_op=avoided,
            )

    try:
        try:
            proto = converted(_AVOIDED)
        except NotImplementedError:  # one that has no other way to write it
            proto = converted(None)
    except Exception as error:  # the converter has many
        raise ValueError(
            f"{kind} cannot be exported by skl2onnx: {first_line(error)}; export the part that has a converter, and "
            "leave the rest to the host"
        ) from error
    proto = _with_columns(_of_floats(proto), getattr(_last(model), "n_outputs_", 1))
    return finished(proto, f"scikit-learn {sklearn.__version__}: {kind}, exported by skl2onnx")


def _last(model: Any) -> Any:
    """The estimator that a pipeline ends with, or the estimator itself."""
    while hasattr(model, "steps"):
        model = model.steps[-1][1]
    return model


def _options(model: Any) -> dict[int, dict[str, bool]] | None:
    """Options of skl2onnx for a classifier: an array in the place of a list of dictionaries."""
    last = _last(model)
    if not hasattr(last, "classes_"):
        return None
    return {id(last): {"zipmap": False} if hasattr(last, "predict_proba") else {"raw_scores": True}}


def _with_columns(proto: Any, columns: int) -> Any:
    """The model of an estimator with several results: the converter makes one column of those of some estimators."""
    from onnx import numpy_helper

    last = proto.graph.node[-1]
    for item in proto.graph.initializer:
        if columns > 1 and last.op_type == "Reshape" and item.name == last.input[1]:
            if numpy_helper.to_array(item).tolist() == [-1, 1]:
                item.CopyFrom(numpy_helper.from_array(np.array([-1, columns], np.int64), item.name))
                proto.graph.output[0].type.tensor_type.shape.dim[-1].dim_value = columns
    return proto


def _of_floats(proto: Any) -> Any:
    """The model without outputs that are no floats, if others are left."""
    import onnx

    kept = [item for item in proto.graph.output if item.type.tensor_type.elem_type == onnx.TensorProto.FLOAT]
    if kept:
        del proto.graph.output[:]
        proto.graph.output.extend(kept)
    needed = {item.name for item in proto.graph.output}
    nodes = []
    for node in reversed(proto.graph.node):
        if needed.intersection(node.output):
            needed.update(node.input)
            nodes.append(node)
    del proto.graph.node[:]
    proto.graph.node.extend(reversed(nodes))
    return proto
