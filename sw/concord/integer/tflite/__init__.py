"""Quantised TensorFlow Lite files, executed with the codes of TensorFlow Lite's reference kernels; see docs/integer.md.

fixed_point
    Multipliers, powers and reciprocals in integers.
requantise
    From accumulators to codes.
operations, point_wise
    What operators compute, and tables of functions of one code.
reading, operators, importer
    A file to an integer graph.
"""
