"""Networks as C99: software for processors without any library, which gives the bits of the NPU.

texts, library, memory
    Texts of C; functions that files hold, and which of them a file needs; buffers in one arena by live ranges.
views, storage
    Where the elements of values are, and loops over them.
plan, rows
    Which nodes are computed together, and what has a place in the arena; how a row of elements is reached.
products, arithmetic
    The arithmetic of block floating point as statements of C.
source, header
    The files.
program
    Compiled with the compiler of this machine, for who compares.

Only ``products`` and ``arithmetic`` know what numbers are.
"""
