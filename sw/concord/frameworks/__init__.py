"""Networks in the words of other frameworks: modules of PyTorch, estimators of scikit-learn, models of Keras, and files
of TensorFlow Lite.

An object is exported by its framework's own exporter, and goes on as ONNX. A framework is imported when one of its
objects comes, and what else an exporter needs is an extra (``pyproject.toml``).
"""

from concord.frameworks.onnx_bytes import onnx_bytes, source_of

__all__ = ["onnx_bytes", "source_of"]
