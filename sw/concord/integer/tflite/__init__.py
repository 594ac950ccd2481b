"""Arithmetic of TensorFlow Lite's reference kernels on codes; see docs/integer.md.

fixed_point
    Multipliers, powers and reciprocals in integers.
requantise
    From accumulators to codes.
operations, point_wise
    What operators compute, and tables of functions of one code.
"""
