"""Concord: block-floating-point neural networks that agree to the last bit from ONNX to bitstream.

>>> import concord
>>> network = concord.compile("net.onnx", board="ulx3s-85f", calibrate=samples)
>>> network.run(batch)  # on="rtl", or on="/dev/ttyUSB0": the same bits
>>> network.save("net")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from concord.api import FlagError, FlagWarning, Network, compile, connect, load

__version__ = "0.1.0"
__all__ = ["FlagError", "FlagWarning", "Network", "__version__", "compile", "connect", "load"]


def __getattr__(name: str) -> Any:
    """The interface is imported when it is used: definitions alone (:mod:`concord.spec`) need the standard library."""
    if name in __all__:
        from concord import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
