"""Writing: one character after the other, each drawn by the logits of the one before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from concord.api import Network
from concord.derive.backends.onnx_file import write_onnx
from concord.derive.model import derive_package
from concord.host.device import Device
from concord_bench.language_model.text import ALPHABET

#: Logits of the next character, from the present one.
Step = Callable[[int], NDArray[np.float64]]


def write(step: Step, start: NDArray[np.int64], count: int, temperature: float, seed: int) -> NDArray[np.int64]:
    """``count`` characters after ``start``, by place in the alphabet.

    Parameters
    ----------
    step : callable
        The network, which keeps what it has read.
    start : array of int
        What it reads first.
    count : int
        Characters to write.
    temperature : float
        What logits are divided by before they become probabilities; near 0 it is the likeliest character.
    seed : int
        Of the draws.
    """
    rng, tokens = np.random.default_rng(seed), np.empty(count, np.int64)
    logits = np.zeros(len(ALPHABET))
    for token in start:
        logits = step(int(token))
    for k in range(count):
        if k:
            logits = step(int(tokens[k - 1]))
        weights = np.exp((logits - logits.max()) / temperature)
        tokens[k] = min(
            int(np.searchsorted(np.cumsum(weights), rng.random() * weights.sum(), side="right")), len(logits) - 1
        )
    return tokens


def on_device(network: Network, device: Device) -> Step:
    """The network on a device that it is loaded on, from the beginning of a text."""
    device.reset_states()

    def step(token: int) -> NDArray[np.float64]:
        results = network.run({"token": np.array([[token]])}, on=device)
        return np.asarray(results["logits"], np.float64).reshape(-1)

    return step


def on_derived(network: Network, path: Path) -> Step:
    """The model in ONNX that is derived from its program, in ONNX Runtime; its states go through Python."""
    import onnxruntime

    write_onnx(derive_package(network.package), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    results, states = [output.name for output in session.get_outputs()], network.package.arrangement.state_results
    shapes = {name: (1, *network.package.carried.input_shapes[name]) for name in states}
    state: dict[str, Any] = {name: np.zeros(shape) for name, shape in shapes.items()}

    def step(token: int) -> NDArray[np.float64]:
        outputs = dict(zip(results, session.run(None, {"token": np.array([[token]], np.float64)} | state), strict=True))
        state.update({name: np.asarray(outputs[result]).reshape(shapes[name]) for name, result in states.items()})
        return np.asarray(outputs["logits"], np.float64).reshape(-1)

    return step
