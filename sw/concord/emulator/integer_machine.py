"""Interface of machines that execute the integer items of a program."""

from __future__ import annotations

from abc import ABC, abstractmethod

from concord.program.integer_loss import IntegerLoss
from concord.program.integers import IntegerChain, TensorStep
from concord.program.trace import IntegerItem


class IntegerMachine(ABC):
    """Executes tensor steps, integer chains and losses, one after the other."""

    def execute(self, item: IntegerItem) -> None:
        """Execute what a word asks for; errors are those of the methods for each."""
        match item:
            case TensorStep():
                self.step(item)
            case IntegerLoss():
                self.loss(item)
            case IntegerChain():
                self.chain(item)

    @abstractmethod
    def step(self, step: TensorStep) -> None:
        """Execute a step of the tensor registers."""

    @abstractmethod
    def loss(self, loss: IntegerLoss) -> None:
        """Execute an ``i_loss``."""

    @abstractmethod
    def chain(self, chain: IntegerChain) -> None:
        """Execute an integer chain."""
