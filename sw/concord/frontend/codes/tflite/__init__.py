"""Quantised TensorFlow Lite files to integer graphs with the codes of its reference kernels; see docs/integer.md.

reading
    Schemes of tensors, and what operators are made of.
operators, lowering, number_functions
    Operators that are one operation, those that are several, and functions of numbers between two tensors of codes.
importer
    A file to an integer graph.
"""
