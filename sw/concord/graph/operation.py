"""What rules of operators see of a node."""

from __future__ import annotations

from typing import Any, Protocol

Shape = tuple[int, ...]


class Operation(Protocol):
    """One operation of a graph, as :class:`concord.graph.ir.Node` is.

    Records of operators are made for it, so that a node can be compared with its record where it is made.
    """

    @property
    def op(self) -> str:
        """Name of the operator."""

    @property
    def name(self) -> str:
        """Name of the node."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of tensors; an input that is left out is the empty string."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of tensors."""

    @property
    def attrs(self) -> dict[str, Any]:
        """Attributes, constants among them."""
