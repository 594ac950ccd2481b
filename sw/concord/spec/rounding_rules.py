"""Rules by which results of networks on codes are rounded."""

#: Rules by the kind of file, the usual one first. ``"onnxruntime"`` is that of ONNX Runtime with its optimisations on
#: x86; ``"onnx"`` computes one operator after the other in binary32, as ``onnx.reference`` does; ``"tflite"`` is that
#: of TensorFlow Lite's reference kernels, and ``"tflite-single"`` that of its default ones, in which products are
#: rounded in binary32.
ROUNDINGS: dict[str, tuple[str, ...]] = {"onnx": ("onnxruntime", "onnx"), "tflite": ("tflite", "tflite-single")}
