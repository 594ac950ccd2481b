"""Runs in phases: the program is started several times for a sample, and the host exchanges parts of ports in between.

What the vector memories hold stays there from a phase to the next one of the same sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from concord.image.ports import Port
from concord.spec.config import NpuConfig


@dataclass(frozen=True)
class PortRange:
    """Consecutive native vectors of a port, and where they lie in a phase.

    Parameters
    ----------
    port : str
        Name of the port.
    first, count : int
        Vectors ``first`` to ``first + count - 1`` of the port.
    address : int
        Address of the first of them, in the memory of the port.
    """

    port: str
    first: int
    count: int
    address: int


@dataclass(frozen=True)
class Phase:
    """One start of the program.

    Parameters
    ----------
    pc : int
        Address of the first instruction.
    inputs, outputs : tuple of PortRange
        What the host writes before it, and reads after it.
    """

    pc: int
    inputs: tuple[PortRange, ...] = ()
    outputs: tuple[PortRange, ...] = ()


def full_ranges(ports: Sequence[Port], config: NpuConfig) -> tuple[PortRange, ...]:
    """All of every port, in the place that it names."""
    return tuple(PortRange(port.name, 0, port.vectors(config), port.address) for port in ports)
