"""Sums of products of integers: how large they can become, how large they were, and what a register keeps of them.

exact, reach
    Types of floats that hold sums, and bounds for every input.
histogram, pairs, counting
    Counts of products and sums by the bits they need, for all widths at once [overflow].
register
    Sums in a register of few bits, as the machine makes them.
"""
