"""TfIdfVectorizer against ONNX Runtime, on the host and in front of the NPU."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto

import concord
from concord.frontend import UnsupportedModel, import_model
from concord.graph import execute
from concord.graph.element_types import as_places
from concord.graph.host_evaluation import run_on_host
from support.onnx_models import floats, info, model, node, sample_results

WORDS = ["the", "cat", "sat", "on", "mat"]
RNG = np.random.default_rng(3)
#: Three of one element, two of two, two of three.
POOL = [2, 3, 5, 0, 1, 2, 2, 1, 2, 3, 0, 0, 1]


def vectorizer(mode="TF", shape=(1, 12), texts=False, indexes=(0, 1, 2, 3, 4, 5, 6), skip=0, least=1, most=3, **more):
    pool = {"pool_strings": [(*WORDS, "x")[k] for k in POOL]} if texts else {"pool_int64s": POOL}
    item = node(
        "TfIdfVectorizer", ["x"], ["y"], mode=mode, ngram_counts=[0, 3, 7], ngram_indexes=[*indexes],
        max_skip_count=skip, min_gram_length=least, max_gram_length=most, **pool, **more,
    )  # fmt: skip
    proto = model([item], {"x": shape})
    proto.graph.input[0].CopyFrom(info("x", shape, TensorProto.STRING if texts else TensorProto.INT64))
    return proto


CASES = {
    "counts": {}, "a row": {"shape": (12,)}, "with gaps": {"skip": 3}, "pairs alone": {"least": 2, "most": 2},
    "in another order": {"indexes": (6, 0, 3, 2, 1, 5, 4)}, "with unused results": {"indexes": (9, 0, 3, 2, 1, 5, 4)},
    "whether": {"mode": "IDF"}, "weights": {"mode": "IDF", "weights": [0.5, 1, 2, 3, 4, 5, 6.5]},
    "weighted counts": {"mode": "TFIDF", "weights": [0.5, 1, 2, 3, 4, 5, 6.5], "skip": 1},
    "texts": {"texts": True, "skip": 2}, "short rows": {"shape": (1, 2), "skip": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_counts(name):
    proto = vectorizer(**CASES[name])
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    graph = import_model(proto)
    shape = (30, *graph.shapes["x"])
    x = RNG.integers(0, 5, shape)
    x = np.array([*WORDS, "no"], object)[x] if CASES[name].get("texts") else x
    want = np.stack([session.run(None, {"x": row})[0] for row in x])
    samples = {"x": as_places({"x": x}, graph.texts)["x"].reshape(30, *graph.sample_shape("x"))}
    for results in (execute.run(graph, samples), run_on_host(graph, samples)):
        np.testing.assert_allclose(results["y"].reshape(want.shape), want, rtol=1e-6)


def test_a_classifier_of_texts():
    """Texts in, counts by the host, a product by the NPU."""
    proto = vectorizer(texts=True, skip=1)
    proto.graph.node.append(node("MatMul", ["y", "w"], ["scores"]))
    proto.graph.initializer.append(model([], {}, (), {"w": floats(7, 3)}).graph.initializer[0])
    proto.graph.output[0].CopyFrom(info("scores", None))
    x = np.array([*WORDS, "no"])[RNG.integers(0, 6, (20, 12))]
    (want,) = sample_results(proto, x=x.astype(object))
    results = concord.compile(proto, preset="ecp5-25f", calibrate={"x": x}, quick=True).run({"x": x})["scores"]
    assert np.abs(results - want).max() < 0.02 * np.abs(want).max()


def test_what_is_refused():
    numbers = vectorizer(texts=True)
    numbers.graph.input[0].CopyFrom(info("x", (1, 12), TensorProto.INT64))
    for proto, message in (
        (numbers, "n-grams must be pool_int64s, as the operand is of numbers"),
        (vectorizer(shape=(1, 2, 3)), "operand must have one or two axes"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            import_model(proto)
