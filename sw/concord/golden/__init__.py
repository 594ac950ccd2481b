"""The executable definition of Concord's numbers: integer-exact numpy, to the last bit what the hardware does.

binary16
    binary16 on bit patterns.
blocks
    Conversion to and from block floating point, with its exponent rule, roundings and noise.
accumulate
    Sums on the accumulator grid, and their one rounding to binary16.
table
    Table index and look-up.
real_numbers
    Arrays of others, as numbers that binary16 can hold.
rounding
    Shifts that round.
training, lazy_update
    Block floating point of training, and how its weights are updated.

Every function works on arrays of any shape. Functions return flags per element or per block, which the caller combines.
"""
