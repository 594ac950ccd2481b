"""Cycles of a program, exactly as the hardware counts them: values do not decide about them.

The only exception are sliding products, where the exponents of a window decide how many steps it takes. Whoever knows
them (:func:`window_steps`) gets exact cycles of programs with such products, too.

Everything that a run reads is in the memories at its start, as all drivers do it. Accesses of the host during a run
change nothing: the pipe goes first at every memory.
"""

from concord.cycles.counts import Counts as Counts
from concord.cycles.run import count as count
from concord.cycles.run import counts_of as counts_of
from concord.cycles.windows import ASSUMED_STEPS as ASSUMED_STEPS
from concord.cycles.windows import window_steps as window_steps
