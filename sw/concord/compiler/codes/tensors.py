"""Tensors of a network on codes while it is rewritten for an NPU, and the operations that make them there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from concord.compiler.codes.factors import FactorRequantisation
from concord.compiler.codes.origins import Stored, stored_codes
from concord.integer.graph import IntegerGraph, IntegerOperation
from concord.integer.moves import Move
from concord.integer.operations import CodeMovement
from concord.integer.wide_numbers import WideNumbers
from concord.spec.config import NpuConfig
from concord.transfer import Codes


class NotOnNpu(ValueError):
    """Reason for which an operation is not one of the NPU."""


@dataclass(frozen=True)
class NpuTensors:
    """Tensors of a network on codes, and what the NPU computes of them.

    Parameters
    ----------
    config : NpuConfig
        Configuration of the NPU.
    schemes, shapes, stored : dict
        By tensor: its scheme; its sizes after the samples; its codes on the NPU.
    operations : list of IntegerOperation
        What the NPU computes, in order.
    """

    config: NpuConfig
    schemes: dict[str, Codes | WideNumbers]
    shapes: dict[str, tuple[int, ...]]
    stored: dict[str, Stored]
    operations: list[IntegerOperation] = field(default_factory=list)

    @classmethod
    def of(cls, graph: IntegerGraph, shapes: Mapping[str, tuple[int, ...]], config: NpuConfig) -> NpuTensors:
        """Tensors of a network that is to be rewritten."""
        return cls(config, dict(graph.schemes), dict(shapes), stored_codes(graph, config.act.q_max))

    def check(self, names: Iterable[str]) -> None:
        """:class:`NotOnNpu` for a tensor whose codes mantissas do not hold."""
        for name in names:
            if (stored := self.stored.get(name)) is None:
                raise NotOnNpu(f"{name} holds numbers, not codes")
            if not stored.held:
                count, most = stored.high - stored.low + 1, 2 * self.config.act.q_max + 1
                raise NotOnNpu(f"{name} has {count} codes, and mantissas hold {most}")

    def maker(self, name: str) -> IntegerOperation | None:
        """The operation that makes a tensor; nothing for an input."""
        return next((part for part in self.operations if part.output == name), None)

    def note(self, name: str, like: str, shape: tuple[int, ...], stored: Stored | None = None) -> str:
        """Note a tensor that the network has not: a part of another one, with its scheme; returns its name."""
        self.schemes[name], self.shapes[name] = self.schemes[like], shape
        self.stored[name] = self.stored[like] if stored is None else stored
        return name

    def move(self, name: str, inputs: tuple[str, ...], move: Move, shape: tuple[int, ...]) -> str:
        """Append a move of codes, unless there is one of this name; returns the name."""
        if name not in self.shapes:
            parts = [self.stored[part] for part in inputs]
            low, high = min(part.low for part in parts), max(part.high for part in parts)
            self.note(name, inputs[0], shape, Stored(parts[0].origin, low, high))
            self.operations.append(CodeMovement(name=name, inputs=inputs, output=name, move=move, low=low, high=high))
        return name

    def requantisation(
        self, output: str, scales: list[Fraction], terms: list[Fraction], shape: tuple[int, ...], limits: Any, up: bool
    ) -> FactorRequantisation:
        """Requantisation to codes of a tensor less its origin, of accumulators times scales, and terms that are added.

        ``limits`` has the code of 0, and the least and the greatest code, as the network has them.
        """
        stored = self.stored[output]
        codes = stored.origin, max(limits.low, stored.low), min(limits.high, stored.high)
        terms = [term + limits.zero_point - stored.origin for term in terms]
        return FactorRequantisation.of(scales, terms, shape, codes, up=up, bits=self.config.scaled_bits)
