"""Software derived from firmware: a program and its images become a model for another processor, with the same bits.

ir
    The model: values in the shapes of the network, and operations with exact semantics.
evaluate
    What the operations compute, by the golden model. It defines them, and is slow.

exact
    Quantised networks on their codes, which no program is made of.
c, c_exact
    Both in C.

[concordance] is the source of the idea: dependencies are taken from the program, not from the network it was made of.
"""
