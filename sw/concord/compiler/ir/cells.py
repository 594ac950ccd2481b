"""The arithmetic of recurrent cells as chains.

A cell gives the chains that wait for the state of the step before, and the chain that computes the new state. What
does not wait for the result of that step are the products of the inputs with the weights of every gate, and the
*independent* chains of a cell, which follow them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, Self

import numpy as np

from concord.compiler.ir.layout import LayoutError
from concord.compiler.ir.table_specs import Functions
from concord.graph.ir import Node
from concord.graph.ops.recurrent import GruAttributes, LstmAttributes, RecurrentAttributes
from concord.utils.arrays import FloatArray

Chain = Callable[[], None]
Spread = Callable[[FloatArray], FloatArray]


class CellWriter(Protocol):
    """Writer of the chains of a cell; a chain begins with a product or a temporary and ends with ``write``.

    Names are those of temporaries, gates and constants of the cell.
    """

    def product(self, gate: str, source: str = "") -> Self:
        """Start with the product of the state, or of a narrow temporary, with the weights of a gate."""

    def read(self, name: str) -> Self:
        """Start with a temporary."""

    def add(self, name: str) -> Self:
        """Add a temporary or a constant."""

    def mul(self, name: str) -> Self:
        """Multiply by a temporary or a constant."""

    def mul_state(self) -> Self:
        """Multiply by the state of the step before."""

    def rsub_state(self) -> Self:
        """Subtract from the state of the step before."""

    def apply(self, functions: Functions) -> Self:
        """Apply functions, by a table."""

    def write(self, name: str, narrow: bool = False) -> None:
        """End with a temporary."""

    def write_state(self) -> None:
        """End with the state of this step."""


class Cell(ABC):
    """Weights and chains of one direction.

    Members
    -------
    gates : str
        One letter per gate, in the order of ONNX.
    w, r : dict
        Weights of the input and of the state, by gate, ``[hidden, elements]``.
    bias, inner : dict
        Biases outside and inside of what multiplies the state's product.
    temporaries, narrow_temporaries : tuple of str
        Vectors that the chains use, beside the wide input part ``p_`` of every gate.
    wide_state : bool
        Whether h is read wide.
    """

    gates = ""
    temporaries: tuple[str, ...] = ()
    narrow_temporaries: tuple[str, ...] = ()
    wide_state = False

    def __init__(self, node: Node, direction: int, hidden: int, spread: Spread, functions: Sequence[Functions]):
        def split(values: FloatArray) -> dict[str, FloatArray]:
            return dict(zip(self.gates, np.split(values, len(self.gates)), strict=True))

        attributes = node.attributes(RecurrentAttributes)
        bias_w, bias_r = (split(part) for part in np.split(attributes.B[direction], 2))
        self.hidden = hidden
        self.functions = list(functions)
        self.w = {gate: spread(weight) for gate, weight in split(attributes.W[direction]).items()}
        self.r = split(attributes.R[direction])
        self.bias = {gate: bias_w[gate] + bias_r[gate] for gate in self.gates}
        self.inner: dict[str, FloatArray] = {}
        self.peephole: dict[str, FloatArray] = {}

    @abstractmethod
    def first(self, block: CellWriter) -> list[Chain]:
        """Chains that wait for the state of the step before, in order."""

    @abstractmethod
    def result(self, block: CellWriter) -> None:
        """The chain that computes the new state."""

    def independent(self, block: CellWriter) -> list[Chain]:
        """Chains that follow the input parts of a step, and do not wait for the result of the step before."""
        return []


class Lstm(Cell):
    """``i, f, o`` gates, cell input ``c``; peepholes optional."""

    gates = "iofc"
    temporaries = ("i", "fc", "zo", "tc")

    def __init__(self, node: Node, direction: int, hidden: int, spread: Spread, functions: Sequence[Functions]):
        super().__init__(node, direction, hidden, spread, functions)
        attributes = node.attributes(LstmAttributes)
        if attributes.input_forget:
            if functions[0] != (("sigmoid", ()),):
                raise LayoutError("input_forget must go with a sigmoid")
            # The forget gate is 1 - i, the sigmoid of minus what i is the sigmoid of.
            for parts in (self.w, self.r, self.bias):
                parts["f"] = -parts["i"]
        if attributes.P is not None:
            self.peephole = dict(zip("iof", np.split(attributes.P[direction], 3), strict=True))
            if attributes.input_forget:
                self.peephole["f"] = -self.peephole["i"]
            self.peephole = {gate: values for gate, values in self.peephole.items() if values.any()}

    def first(self, block: CellWriter) -> list[Chain]:
        f, g, h = self.functions

        def gate_i() -> None:
            block.product("i").add("p_i").apply(f).write("i")

        def gate_f() -> None:
            block.product("f").add("p_f").apply(f).mul("c").write("fc")

        def gate_c() -> None:
            block.product("c").add("p_c").apply(g).mul("i").add("fc").write("c")

        def gate_o() -> None:
            block.product("o").add("p_o").write("zo")

        def cell() -> None:
            block.read("c").apply(h).write("tc")

        return [gate_i, gate_f, gate_c, gate_o, cell]

    def result(self, block: CellWriter) -> None:
        f = self.functions[0]
        if "o" in self.peephole:
            block.read("c").mul("peephole_o").add("zo").apply(f).mul("tc").write_state()
        else:
            block.read("zo").apply(f).mul("tc").write_state()

    def independent(self, block: CellWriter) -> list[Chain]:
        return [partial(self._peephole, block, gate) for gate in "if" if gate in self.peephole]

    @staticmethod
    def _peephole(block: CellWriter, gate: str) -> None:
        block.read("c").mul(f"peephole_{gate}").add(f"p_{gate}").write(f"p_{gate}")


class Gru(Cell):
    """Update gate ``z``, reset gate ``r``, candidate ``h``; the reset before or after the product."""

    gates = "zrh"
    temporaries = ("z", "r", "n")
    wide_state = True

    def __init__(self, node: Node, direction: int, hidden: int, spread: Spread, functions: Sequence[Functions]):
        super().__init__(node, direction, hidden, spread, functions)
        attributes = node.attributes(GruAttributes)
        self.reset_after = bool(attributes.linear_before_reset)
        if self.reset_after:
            bias_w, bias_r = (np.split(part, 3)[2] for part in np.split(attributes.B[direction], 2))
            self.bias["h"], self.inner["h"] = bias_w, bias_r
        else:
            self.narrow_temporaries = ("rh",)

    def first(self, block: CellWriter) -> list[Chain]:
        f, g = self.functions

        def gate_r() -> None:
            block.product("r").add("p_r").apply(f).write("r")

        def gate_z() -> None:
            block.product("z").add("p_z").apply(f).write("z")

        def candidate() -> None:
            block.product("h").add("inner_h").mul("r").add("p_h").apply(g).write("n")

        def reset() -> None:
            block.product("r").add("p_r").apply(f).mul_state().write("rh", narrow=True)

        def candidate_of_reset() -> None:
            block.product("h", "rh").add("p_h").apply(g).write("n")

        return [gate_r, gate_z, candidate] if self.reset_after else [reset, gate_z, candidate_of_reset]

    def result(self, block: CellWriter) -> None:
        block.read("n").rsub_state().mul("z").add("n").write_state()


class Rnn(Cell):
    """A single gate; its result waits for the whole product, which reads the state that it replaces."""

    gates = "i"
    temporaries = ("s",)

    def first(self, block: CellWriter) -> list[Chain]:
        def gate() -> None:
            block.product("i").add("p_i").apply(self.functions[0]).write("s")

        return [gate]

    def result(self, block: CellWriter) -> None:
        block.read("s").write_state()


CELLS: dict[str, type[Cell]] = {"LSTM": Lstm, "GRU": Gru, "RNN": Rnn}
