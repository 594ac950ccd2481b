"""Images: what is loaded into an NPU, with ports, phases and memory contents, and how they are packed and stored.

:class:`Memories` holds what all memories of an NPU hold, before, during and after a run.
"""

from concord.image.container import ImageError
from concord.image.image import LOADABLE, Image, MemorySegment, hex_files
from concord.image.memories import Memories
from concord.image.packing import pack_depthwise, pack_matrix, pack_vectors
from concord.image.phases import Phase, PortRange
from concord.image.ports import Port, State

__all__ = [
    "LOADABLE",
    "Image",
    "ImageError",
    "Memories",
    "MemorySegment",
    "Phase",
    "Port",
    "PortRange",
    "State",
    "hex_files",
    "pack_depthwise",
    "pack_matrix",
    "pack_vectors",
]
