"""Programs expanded into the chains they execute, and the proofs that need nothing more.

Programs have no branches, so :func:`trace` lists every chain of a run with all of its state, and :func:`verify` shows
before anything is loaded that a run stays inside the memories and depends on nothing but its inputs.
"""

from concord.program.chains import Address, Chain, MfuOp, Pad, Quant, VectorPlace, Window
from concord.program.trace import Trace, trace
from concord.program.verify import Problem, Span, verify, verify_phases

__all__ = [
    "Address",
    "Chain",
    "MfuOp",
    "Pad",
    "Problem",
    "Quant",
    "Span",
    "Trace",
    "VectorPlace",
    "Window",
    "trace",
    "verify",
    "verify_phases",
]
