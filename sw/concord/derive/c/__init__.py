"""Networks as C99: software for processors without any library, which gives the bits of the NPU.

texts, library, memory, unit
    Texts of C; functions that files hold, and which of them a file needs; buffers in arrays by live ranges; constants.
storage, views, copies
    Where the elements of values are, how loops reach them, and loops that copy them.
header, file, program
    What files of every kind have in common: headers, functions and the run; compiled for who compares.
plan, planner, places
    Which nodes are computed together, and what has a place in the arena; how a row of elements is reached.
products, sums, arithmetic, movement, steps
    The arithmetic of block floating point, and its rows, as statements of C.
ports, source
    Inputs and outputs in binary16; the files of a network in blocks.

Only ``products``, ``sums``, ``arithmetic`` and ``ports`` know what numbers are. Networks on codes are in
:mod:`concord.derive.c_exact`.
"""
