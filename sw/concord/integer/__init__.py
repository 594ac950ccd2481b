"""Quantised networks as they are, executed on codes: int32 accumulators and tables; see docs/integer.md.

:mod:`concord.frontend.codes` reads them from files.

float32
    Arithmetic of binary32 in integers.
requantise
    From accumulators to codes.
graph, moves, operations, weighted_sums, softmaxes, shapes
    The integer graph, how codes are moved, what operations compute, and shapes of tensors.
sum_orders
    Orders of sums in binary32.
wide_numbers, wide
    Numbers of binary32 between layers.
tflite
    Arithmetic of TensorFlow Lite's kernels.
tables, composing, pairs
    Functions of codes, one table for several in a row, and tables with two indices.
network
    Networks that are executed.
"""

from concord.integer.network import IntegerNetwork as IntegerNetwork
