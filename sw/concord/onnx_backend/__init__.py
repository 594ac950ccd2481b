"""The interfaces of ONNX and of ONNX Runtime: a backend, and a session with the methods of theirs.

>>> import concord.onnx_backend as backend
>>> prepared = backend.prepare(model)
>>> outputs = prepared.run(inputs)

The module itself is a backend: ``onnx.backend.test.BackendTest(concord.onnx_backend)`` runs ONNX's own tests with it.
"""

from concord.onnx_backend.backend import BACKEND_NPU, ConcordBackend, NotForBackend, PreparedModel
from concord.onnx_backend.session import InferenceSession, NodeArg

__all__ = [
    "BACKEND_NPU",
    "ConcordBackend",
    "InferenceSession",
    "NodeArg",
    "NotForBackend",
    "PreparedModel",
    "is_compatible",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

is_compatible = ConcordBackend.is_compatible
prepare = ConcordBackend.prepare
run_model = ConcordBackend.run_model
run_node = ConcordBackend.run_node
supports_device = ConcordBackend.supports_device
