"""Quantised networks from files, as they are: integer graphs on codes; see docs/integer.md.

loading
    Files of ONNX and of TensorFlow Lite.
importer, reading, model_values, uses, fusion
    ONNX to an integer graph, and what is known of a model on the way.
operators, products, accumulators, maxima, moving, windows, point_wise, functions
    Operators between QuantizeLinear and DequantizeLinear.
quantised, code_limits
    Operators that read and make codes.
shape_values
    Shapes and what is computed of them.
tflite
    TensorFlow Lite files to an integer graph.
"""

from concord.frontend.codes.importer import UnquantisedModel as UnquantisedModel
from concord.frontend.codes.loading import load as load
