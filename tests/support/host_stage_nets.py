"""Networks of which the host computes the begin or the end, and inputs for them."""

import numpy as np

from support.onnx_expressions import FLOAT, INT64, UINT8, given, model_of, op

PRESET = "ecp5-25f"


def floats(*shape):
    """Weights, the same for the same shape."""
    return np.random.default_rng(sum(shape)).normal(0, 0.5, shape).astype(np.float32)


def classifier():
    """Words to classes: an embedding, a mean, a product, the class, and the two best."""
    words = op.Gather(floats(70000, 4), given("n", 6, name="ids", kind=INT64))
    scores = op.Gemm(op.ReduceMean(words, [1], keepdims=0), floats(4, 5), floats(5))
    best, places = op.TopK(scores, [2], axis=1, outputs=2)
    chosen = op.ArgMax(scores, axis=1, keepdims=0)
    return model_of(opset=18, **{"class": chosen, "scores": scores, "best": best, "places": places})


def masked():
    """A mean of those words that a mask lets through: the mask goes to the NPU as it is."""
    ids, mask = (given("n", 6, name=name, kind=INT64) for name in ("ids", "mask"))
    column = op.Unsqueeze(op.Cast(mask, to=FLOAT), [2])
    kept = op.Mul(op.Gather(floats(50, 16), ids), column)
    scores = op.Gemm(op.ReduceSum(kept, [1], keepdims=0), floats(16, 5), floats(5))
    return model_of(yes=op.Greater(scores, 0.0), scores=scores, opset=18)


def pixels():
    """An image of bytes that the model itself normalises, channel by channel."""
    mean, deviation = (np.reshape(x, (1, 3, 1, 1)) for x in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    share = op.Div(op.Cast(given("n", 3, 8, 8, kind=UINT8), to=FLOAT), 255.0)
    normal = op.Div(op.Sub(share, mean), deviation)
    p = op.ReduceMean(op.Relu(op.Conv(normal, floats(4, 3, 3, 3), pads=[1] * 4)), [2, 3], keepdims=0)
    return model_of(opset=18, **{"class": op.ArgMax(p, axis=1, keepdims=0), "p": p})


def chooser():
    """Products in front of a TopK, and behind it."""
    y = op.Conv(given("n", 3, 8, 8), floats(4, 3, 3, 3), pads=[1] * 4)
    best, _ = op.TopK(y, [2], axis=1, outputs=2, name="best")
    return model_of(z=op.Conv(best, floats(4, 2, 3, 3)), opset=18)


def too_large():
    """Four products, of which the matrix memory holds the third alone; the end has the first and the input."""
    x = given("n", 12)
    t = op.Gemm(x, floats(12, 20), name="t")
    c = op.Gemm(op.Relu(op.Gemm(x, floats(12, 400), name="a")), floats(400, 160) / 20)
    e = op.Gemm(op.Tanh(c, name="d"), floats(160, 20))
    return model_of(op.Concat(op.Add(e, t), x, axis=1), opset=18)


def inputs_of(name, count=5):
    rng = np.random.default_rng(count)
    return {
        "classifier": {"ids": rng.integers(-70000, 70000, (count, 6))},
        "masked": {"ids": rng.integers(0, 50, (count, 6)), "mask": rng.integers(0, 2, (count, 6))},
        "pixels": {"x": rng.integers(0, 256, (count, 3, 8, 8)).astype(np.uint8)},
        "chooser": {"x": rng.normal(size=(count, 3, 8, 8)).astype(np.float32)},
        "too_large": {"x": rng.normal(size=(count, 12)).astype(np.float32)},
    }[name]


NETWORKS = {"classifier": classifier, "masked": masked, "pixels": pixels, "chooser": chooser, "too_large": too_large}
#: Those of which the host computes more than the ends.
ANY = ("chooser", "too_large")
