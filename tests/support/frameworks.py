"""Packages that ``make torch`` installs: which are there, and the mark of tests that need them."""

import os
from importlib.util import find_spec

import pytest

# Before Keras is imported; without TensorFlow it has no other backend.
os.environ.setdefault("KERAS_BACKEND", "torch")
#: Tools, which are no extras of the project: the packages that they come in.
TOOLS = {"zig": ("ziglang",), "cortex-m4": ("ziglang", "unicorn")}
#: The same by extra; ``onnx`` is always there.
EXTRAS = {
    "onnx": ("onnx",),
    "torch": ("torch", "onnxscript"),
    "sklearn": ("sklearn", "skl2onnx"),
    "tflite": ("tflite", "ai_edge_litert"),  # and the interpreter that it is compared with
    "keras": ("keras", "torch", "onnxscript"),
}
PACKAGES = EXTRAS | TOOLS


def missing(name):
    """Why tests that need an extra or a tool are skipped; empty if they are not."""
    names = [package for package in PACKAGES[name] if find_spec(package) is None]
    return f"needs {', '.join(names)}: make torch installs it" if names else ""


def needs(name):
    """The mark of tests that need an extra or a tool: skipped without it, and what ``make torch`` runs."""
    return pytest.mark.needs(name)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    """Skip a test whose packages are not there."""
    for mark in item.iter_markers("needs"):
        if reason := missing(*mark.args):
            pytest.skip(reason)
