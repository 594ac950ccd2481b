"""Programs executed bit for bit as on the hardware.

:class:`ReferenceMachine` is the definition, :class:`Emulator` the fast one for batches; both work on
:class:`concord.image.Memories`.
"""

from concord.emulator.machine import Batch, Emulator
from concord.emulator.reference import ReferenceMachine
from concord.emulator.run import Run

__all__ = ["Batch", "Emulator", "ReferenceMachine", "Run"]
