"""Quantised networks as they are, executed on codes: int32 accumulators and tables; see docs/integer.md.

float32
    Arithmetic of binary32 in integers.
requantise
    From accumulators to codes.
graph, moves, operations, shapes
    The integer graph, how codes are moved, what operations compute, and shapes of tensors.
model_values, reading, windows, accumulators, moving, operators, quantised, importer
    ONNX to an integer graph.
wide_numbers, wide, uses
    Numbers of binary32 between layers, and where they are needed.
tflite
    TensorFlow Lite files to an integer graph.
tables, composing, pairs
    Functions of codes, one table for several in a row, and tables with two indices.
network
    Loaded networks.
records, folder
    Networks in files: a program, and its tables beside it.
"""

from concord.integer.importer import UnquantisedModel as UnquantisedModel
from concord.integer.network import IntegerNetwork as IntegerNetwork
from concord.integer.network import load as load
