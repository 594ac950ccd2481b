"""Cycles of a program, exactly as the hardware counts them: values do not decide about them.

Where windows slide, exponents do: then cycles are an estimate.

Everything that a run reads is in the memories at its start, as all drivers do it. Accesses of the host during a run
change nothing: the pipe goes first at every memory.
"""

from concord.cycles.counts import Counts as Counts
from concord.cycles.run import count as count
from concord.cycles.run import counts_of as counts_of
