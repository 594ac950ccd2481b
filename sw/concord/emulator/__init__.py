"""Programs executed bit for bit as on the hardware.

:class:`ReferenceMachine` is the definition, :class:`Emulator` the fast batched twin; both work on :class:`Memories`.
"""

from .machine import Batch, Emulator
from .memories import Memories
from .reference import ReferenceMachine
from .run import Run

__all__ = ["Batch", "Emulator", "Memories", "ReferenceMachine", "Run"]
