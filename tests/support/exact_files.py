"""Files of quantised networks for NumPy, PyTorch and ONNX Runtime, run."""

import importlib.util

import numpy as np
import onnxruntime
import pytest

from concord.derive.exact.registry import EXACT_BACKENDS
from support.frameworks import needs

LIBRARIES = ["numpy", pytest.param("torch", marks=needs("torch")), "onnx"]


def module(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def floats_of(network, inputs):
    """The floats that the codes of inputs stand for: ONNX graphs read these."""
    schemes = {name: network.graph.schemes[network.graph.inputs[name]] for name in inputs}
    return {
        name: codes if codes.dtype.kind == "f" else np.float32(codes.astype(int) - one.zero) * np.float32(one.scale)
        for (name, codes), one in zip(inputs.items(), schemes.values(), strict=True)
    }


def run(network, library, folder, inputs):
    """Codes of the outputs that a derived file gives."""
    path = folder / f"{library}_net{EXACT_BACKENDS[library].suffix}"
    EXACT_BACKENDS[library].write(network, path)
    if library == "onnx":
        session = onnxruntime.InferenceSession(path)
        results = session.run(None, floats_of(network, inputs))
        return dict(zip([item.name for item in session.get_outputs()], results, strict=True))
    return {name: np.asarray(codes) for name, codes in module(path).run(inputs).items()}


def different(network, library, folder, inputs):
    """How many codes differ from those of the integer network."""
    want, got = network.run(inputs), run(network, library, folder, inputs)
    assert [*got] == [*want]
    assert all(got[key].dtype == want[key].dtype and got[key].shape == want[key].shape for key in want)
    return sum(int(np.sum(got[key] != want[key])) for key in want)
