"""TensorFlow Lite files as ONNX: operators in the layout that convolutions have there, codes in QDQ form."""

from concord.frameworks.tflite.convert import exported_tflite

__all__ = ["exported_tflite"]
