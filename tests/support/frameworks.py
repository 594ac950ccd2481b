"""Which frameworks are there whose models ``concord.compile`` takes."""

import os
from importlib.util import find_spec

import pytest

# Before Keras is imported; without TensorFlow it has no other backend.
os.environ.setdefault("KERAS_BACKEND", "torch")
#: By extra: the packages that it brings; ``onnx`` is always there.
PACKAGES = {
    "onnx": ("onnx",),
    "torch": ("torch", "onnxscript"),
    "sklearn": ("sklearn", "skl2onnx"),
    "tflite": ("tflite", "ai_edge_litert"),  # and the interpreter that it is compared with
    "keras": ("keras", "torch", "onnxscript"),
}


def missing(extra):
    """Why tests that need an extra are skipped; empty if they are not."""
    names = [name for name in PACKAGES[extra] if find_spec(name) is None]
    return f"needs {', '.join(names)}: make torch installs it" if names else ""


def needs(extra):
    """A mark that skips a test without the packages of an extra."""
    return pytest.mark.skipif(bool(missing(extra)), reason=missing(extra))
