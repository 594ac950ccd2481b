"""Quantised networks on an NPU that makes codes of accumulators; see docs/integer.md.

factors
    From accumulators to codes by 16-bit factors, as ``vv_scale`` and a table after it compute them.
operations
    What of a network on codes is computed that way, as operations on codes.
rewriting
    A network on codes with these operations in the place of its own, up to where the host goes on.
layers
    The graph that the compiler reads.
network
    A compiled network: codes in, codes out.
"""

from concord.integer.npu.network import CodesOnNpu as CodesOnNpu
from concord.integer.npu.network import compile_codes as compile_codes
