"""Concord: block-floating-point neural networks that agree to the last bit from ONNX to bitstream."""

__version__ = "0.1.0"
