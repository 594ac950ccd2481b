"""Interface of machines that execute the integer items of a program."""

from __future__ import annotations

from abc import ABC, abstractmethod

from concord.program.integers import IntegerChain, TensorStep
from concord.program.trace import IntegerItem


class IntegerMachine(ABC):
    """Executes tensor steps and integer chains, one after the other."""

    def execute(self, item: IntegerItem) -> None:
        """Execute what a word asks for; errors are those of the methods for each."""
        match item:
            case TensorStep():
                self.step(item)
            case IntegerChain():
                self.chain(item)

    @abstractmethod
    def step(self, step: TensorStep) -> None:
        """Execute a step of the tensor registers."""

    @abstractmethod
    def chain(self, chain: IntegerChain) -> None:
        """Execute an integer chain."""
