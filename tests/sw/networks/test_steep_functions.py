"""Functions whose step is as narrow as the rounding of what they read are told, and ordinary ones are not."""

import warnings

import numpy as np
import pytest

import concord
from support.onnx_expressions import given, model_of, op
from support.onnx_models import onnxruntime_results

KINDS = ("Tanh", "Sigmoid", "HardSigmoid", "Erf", "LSTM", "GRU", "Softmax")


def network(kind, rng):
    """A product, a function or a cell, and a product; the shape of a sample."""
    size, hidden = int(rng.integers(4, 20)), int(rng.integers(4, 16))

    def weights(*shape):
        return rng.normal(0, 1 / np.sqrt(shape[-2] if len(shape) < 3 else shape[-1]), shape).astype(np.float32)

    if kind in ("LSTM", "GRU"):
        gates = {"LSTM": 4, "GRU": 3}[kind]
        t = op.Transpose(given("n", 5, size), perm=[1, 0, 2])
        cell = weights(1, gates * hidden, size), weights(1, gates * hidden, hidden)
        _, h = getattr(op, kind)(t, *cell, hidden_size=hidden, outputs=2)
        return model_of(op.MatMul(op.Reshape(h, [-1, hidden]), weights(hidden, 3))), (5, size)
    p = op.MatMul(given("n", size), weights(size, hidden))
    if kind == "Softmax":
        return model_of(op.Softmax(p, name="function", axis=1)), (size,)
    return model_of(op.MatMul(getattr(op, kind)(p, name="function"), weights(hidden, 3))), (size,)


def judged(kind, seed, sigma):
    """Error on other samples than those that it was compiled with, and whether anything was said, such as a step."""
    rng = np.random.default_rng(seed)
    proto, shape = network(kind, rng)
    x, other = (rng.normal(0, sigma, (count, *shape)).astype(np.float32) for count in (48, 32))
    net = concord.compile(proto, preset="ecp5-85f-256", calibrate={"x": x}, quick=True)
    with warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always")
        found = net.run({"x": other})["y"]
    (want,) = onnxruntime_results(proto, {"x": other})
    steps = [line for line in net.warnings if "beside its step" in line]
    assert net.expected_error is not None
    told = bool(steps or net.warnings or raised) or net.expected_error.result > 0.02
    return np.linalg.norm(found - want) / np.linalg.norm(want), told, steps


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_inputs_far_beyond_a_step_are_told(kind):
    """And those of a usual size, whose results are right, are not."""
    lines = [steps for _, told, steps in (judged(kind, seed, 3000.0) for seed in range(3)) if told]
    assert len(lines) == 3  # the expected error tells it, too, where samples are beside the step
    assert all("up to" in line and "wider mantissas" in line for steps in lines for line in steps)
    error, _, steps = judged(kind, 1, 1.0)
    assert error < 0.03 and not steps


@pytest.mark.deep
@pytest.mark.parametrize("first", range(0, 120, 20))
def test_no_result_is_off_without_a_word(first):
    """Of inputs that are like the samples; of usual ones at most a tenth has the line."""
    silent, usual, lines = [], 0, 0
    for seed in range(first, first + 20):
        rng = np.random.default_rng(seed)
        kind, sigma = str(rng.choice(KINDS)), float(rng.choice([0.1, 1, 3, 30, 300, 3000]))
        error, told, steps = judged(kind, seed, sigma)
        silent += [seed] if error > 0.05 and not told else []
        if sigma <= 3:
            usual, lines = usual + 1, lines + bool(steps)
    assert len(silent) <= 1 and lines <= usual / 10, (silent, lines, usual)
