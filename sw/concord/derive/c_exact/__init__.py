"""Quantised networks as C99 on codes alone: the bits of :mod:`concord.integer`; see docs/derive.md.

tensors
    Where the codes of tensors are: order of elements, places that several share.
rounding
    From exact numbers to codes as integer arithmetic.
values, writer
    Expressions that the array program of :mod:`concord.derive.exact` makes.
places, windows
    How loops reach elements.
functions
    What statements of an operation need.
statements
    Expressions as text.
nests, products
    Loops that compute expressions, and those of products with constant weights.
operations
    Functions of operations.
source
    The files.
program
    Compiled with the compiler of this machine, for who compares.
"""
