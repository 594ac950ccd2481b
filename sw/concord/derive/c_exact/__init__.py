"""Quantised networks as C99 on codes alone: the bits of :mod:`concord.integer`; see docs/derive.md.

tensors
    Where the codes of tensors are: order of elements, places that several share.
rounding
    From exact numbers to codes as integer arithmetic.
requantise
    From sums to codes, for every kind of requantisation.
places, windows
    How loops reach elements.
functions
    What statements of an operation need.
products, pointwise, pools
    Operations as statements.
operations
    Which of these writes an operation.
source, header
    The files.
program
    Compiled with the compiler of this machine, for who compares.
"""
