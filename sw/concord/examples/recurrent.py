"""Recurrent cells: LSTM with peepholes, and GRU.

Both hide the latency of the pipe in the same way: the products with the input of step t+1 are issued between the
dependent element-wise chains at the end of step t, so the tile engines work while those chains run through the pipe.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from concord.examples.base import Example, chain, program
from concord.functions.float64 import sigmoid
from concord.program.allocator import Allocator
from concord.spec.config import NpuConfig
from concord.utils.arrays import FloatArray

#: Gates in the order of the rows of the weights.
LSTM_GATES = "ifgo"
GRU_GATES = "rzn"


def lstm(config: NpuConfig, *, hidden: int = 64, inputs: int = 64, steps: int = 8, seed: int | None = 1) -> Example:
    """An LSTM cell with peepholes over ``steps`` steps from zero state; gives h of every step.

    Without a ``seed`` all weights are zero and take no memory: for the cycles of large cells.

    ::

        i = sigm(Wxi x + Whi h + Wci*c + bi)        f = sigm(Wxf x + Whf h + Wcf*c + bf)
        c' = f*c + i*tanh(Wxg x + Whg h + bg)       o = sigm(Wxo x + Who h + Wco*c' + bo)       h' = o*tanh(c')
    """
    cell = _Cell(config, LSTM_GATES, hidden, inputs, steps, seed)
    allocator, size, wx, wh, bias = cell.allocator, cell.size, cell.wx, cell.wh, cell.bias
    peep = {gate: cell.normal(0.3, hidden) for gate in "iof"}
    for gate in "iof":
        allocator.constant(f"wc_{gate}", peep[gate], f"peephole of gate {gate}")
    allocator.sigmoid_tables()
    allocator.input("x_in", (steps, inputs), "inputs, X vectors a step")
    allocator.output("y", (steps, hidden), "h of every step")
    for gate in LSTM_GATES:
        allocator.wide(f"p_{gate}", size["H"], f"input part of gate {gate}, with bias (i, f: and peephole)")
    allocator.wide("i", size["H"], "input gate")
    allocator.wide("fc", size["H"], "f*c")
    allocator.wide("zo", size["H"], "output gate before its peephole")
    allocator.wide("c", size["H"], "cell state")
    allocator.wide("tc", size["H"], "tanh(c)")
    allocator.constant("zero", np.zeros(config.native), "initial state")
    allocator.narrow("x", size["X"], "input of one step")
    allocator.narrow("h", size["H"], "hidden state")

    def reference(x: FloatArray) -> FloatArray:
        h, c, outputs = np.zeros((len(x), hidden)), np.zeros((len(x), hidden)), []
        for t in range(steps):
            z = {gate: x[:, t] @ wx[gate].T + h @ wh[gate].T + bias[gate] for gate in LSTM_GATES}
            i, f = sigmoid(z["i"] + peep["i"] * c), sigmoid(z["f"] + peep["f"] * c)
            c = f * c + i * np.tanh(z["g"])
            h = sigmoid(z["o"] + peep["o"] * c) * np.tanh(c)
            outputs.append(h)
        return np.stack(outputs, axis=1)

    return cell.example("LSTM cell with peepholes", f"lstm{hidden}", _lstm_text(allocator, size), reference)


class _Cell:
    """Common part of cells: random weights and biases of the gates, and their places in the memories."""

    def __init__(self, config: NpuConfig, gates: str, hidden: int, inputs: int, steps: int, seed: int | None):
        self._rng = None if seed is None else np.random.default_rng(seed)
        self.gates, self.hidden, self.inputs, self.steps = gates, hidden, inputs, steps
        self.wx = {gate: self.normal(1.0 / np.sqrt(inputs), hidden, inputs) for gate in gates}
        self.wh = {gate: self.normal(1.0 / np.sqrt(hidden), hidden, hidden) for gate in gates}
        self.bias = {gate: self.normal(0.3, hidden) for gate in gates}
        self.allocator = Allocator(config)
        #: Native vectors of the state and of an input, and steps.
        self.size = {"H": self.allocator.tiles(hidden), "X": self.allocator.tiles(inputs), "T": steps}
        for gate in gates:
            self.allocator.matrix(f"wx_{gate}", self.wx[gate], f"input weights of gate {gate}")
            self.allocator.matrix(f"wh_{gate}", self.wh[gate], f"recurrent weights of gate {gate}")
        for gate in gates:
            self.allocator.constant(f"b_{gate}", self.bias[gate], f"bias of gate {gate}")

    def normal(self, deviation: float, *shape: int) -> FloatArray:
        """Random numbers, or zeros if there is no seed."""
        return np.broadcast_to(0.0, shape) if self._rng is None else self._rng.normal(0, deviation, shape)

    def example(self, kind: str, name: str, text: str, reference: Callable[[FloatArray], FloatArray]) -> Example:
        """The finished example; ``reference`` as in :class:`Example`."""
        return Example(
            name=name,
            title=f"{kind}: {self.inputs} inputs, hidden {self.hidden}, {self.steps} steps.",
            allocator=self.allocator,
            text=text,
            reference=reference,
            # The steps of the tables decide: two tables share the table memory.
            tolerance=0.05 if self.allocator.config.table_depth >= 1024 else 0.15,
            macs=self.steps * len(self.gates) * self.hidden * (self.hidden + self.inputs),
        )


def _input_part(gate: str) -> list[str]:
    return chain(f"v_rd narrow, x; mv_mul wx_{gate}; vv_add b_{gate}, row=1; v_wr wide, p_{gate}, row=1")


def _convert() -> list[str]:
    """The input of the step that register 1 stands for, to narrow."""
    return chain("v_rd wide, x_in, reg=1, row=1; v_wr narrow, x, row=1")


def _peephole(gate: str) -> list[str]:
    return chain(f"v_rd wide, c, row=1; vv_mul wc_{gate}, row=1; vv_add p_{gate}, row=1; v_wr wide, p_{gate}, row=1")


def _lstm_text(allocator: Allocator, size: dict[str, int]) -> str:
    first = chain("v_rd narrow, h; mv_mul wh_i; vv_add p_i, row=1; v_sigm; v_wr wide, i, row=1")
    others = [
        *chain("v_rd narrow, h; mv_mul wh_f; vv_add p_f, row=1; v_sigm; vv_mul c, row=1; v_wr wide, fc, row=1"),
        *chain(
            "v_rd narrow, h; mv_mul wh_g; vv_add p_g, row=1; v_tanh; vv_mul i, row=1; vv_add fc, row=1; "
            "v_wr wide, c, row=1"
        ),
        *chain("v_rd narrow, h; mv_mul wh_o; vv_add p_o, row=1; v_wr wide, zo, row=1"),
        *chain("v_rd wide, c, row=1; v_tanh; v_wr wide, tc, row=1"),
    ]
    result = chain(
        "v_rd wide, c, row=1; vv_mul wc_o, row=1; vv_add zo, row=1; v_sigm; vv_mul tc, row=1; v_wr narrow, h, row=1; "
        "v_wr wide, y, reg=2, row=1"
    )
    inputs = [
        [*_input_part("i"), *result],
        [*_input_part("f"), *_peephole("i")],
        [*_input_part("o"), *_peephole("f"), *_input_part("g")],
    ]
    start = chain("v_rd wide, zero; v_wr wide, c, row=1; v_wr narrow, h, row=1")
    return _recurrent(allocator, size, LSTM_GATES, start, first, others, inputs, result)


def _recurrent(
    allocator: Allocator,
    size: dict[str, int],
    gates: str,
    start: list[str],
    first: list[str],
    others: list[str],
    inputs: list[list[str]],
    result: list[str],
) -> str:
    """The program around a cell.

    Parameters
    ----------
    gates : str
        Gates with an input part.
    start : list of str
        Chain that sets the initial state.
    first, others : list of str
        The first product with h, and the chains up to the result of the step.
    inputs : list of list of str
        The result of a step among the input parts of the next one.
    result : list of str
        The result of the last step.
    """
    same = size["H"] == size["X"]
    to_x, to_h, to_convert = ([], [], []) if same else (["set_shape H, X"], ["set_shape H, H"], ["set_shape X, 1"])
    step = [
        "inc_addr 1, X                     # the input of the next step, converted while h is multiplied",
        *to_h,
        *first,
        *to_convert,
        *_convert(),
        *to_h,
        *others,
        *to_x,
        *(line for part in inputs for line in part),
        "inc_addr 2, H",
    ]
    return program(
        allocator,
        size,
        [
            ("State to zero, first input to narrow.", ["set_shape H, X", *start, *to_convert, *_convert(), *to_x]),
            ("Input part of the first step.", [line for gate in gates for line in _input_part(gate)]),
            (
                "All steps but the last, each with the input part of the next one.",
                ["loop T - 1", *step, "end_loop"] if size["T"] > 1 else [],
            ),
            ("The last step.", [*to_h, *first, *others, *result]),
        ],
    )


def gru(config: NpuConfig, *, hidden: int = 64, inputs: int = 64, steps: int = 8, seed: int | None = 2) -> Example:
    """A GRU cell over ``steps`` steps from zero state; gives h of every step.

    Without a ``seed`` all weights are zero and take no memory: for the cycles of large cells.

    ::

        r = sigm(Wxr x + Whr h + br)     z = sigm(Wxz x + Whz h + bz)
        n = tanh(Wxn x + bn + r*(Whn h + bhn))                            h' = n + z*(h - n)
    """
    cell = _Cell(config, GRU_GATES, hidden, inputs, steps, seed)
    allocator, size, wx, wh, bias = cell.allocator, cell.size, cell.wx, cell.wh, cell.bias
    inner = cell.normal(0.3, hidden)
    allocator.constant("b_hn", inner, "bias inside the reset gate")
    allocator.sigmoid_tables()
    allocator.input("x_in", (steps, inputs), "inputs, X vectors a step")
    allocator.wide("h0", size["H"], "h before the first step")
    allocator.output("y", (steps, hidden), "h of every step, behind h0")
    for gate in GRU_GATES:
        allocator.wide(f"p_{gate}", size["H"], f"input part of gate {gate}, with bias")
    for gate in GRU_GATES:
        allocator.wide(gate, size["H"], f"gate {gate}")
    allocator.constant("zero", np.zeros(config.native), "initial state")
    allocator.narrow("x", size["X"], "input of one step")
    allocator.narrow("h", size["H"], "hidden state")

    def reference(x: FloatArray) -> FloatArray:
        h, outputs = np.zeros((len(x), hidden)), []
        for t in range(steps):
            r, z = (sigmoid(x[:, t] @ wx[gate].T + h @ wh[gate].T + bias[gate]) for gate in "rz")
            n = np.tanh(x[:, t] @ wx["n"].T + bias["n"] + r * (h @ wh["n"].T + inner))
            h = n + z * (h - n)
            outputs.append(h)
        return np.stack(outputs, axis=1)

    return cell.example("GRU cell", f"gru{hidden}", _gru_text(allocator, size), reference)


def _gru_text(allocator: Allocator, size: dict[str, int]) -> str:
    first = chain("v_rd narrow, h; mv_mul wh_r; vv_add p_r, row=1; v_sigm; v_wr wide, r, row=1")
    others = [
        *chain("v_rd narrow, h; mv_mul wh_z; vv_add p_z, row=1; v_sigm; v_wr wide, z, row=1"),
        *chain(
            "v_rd narrow, h; mv_mul wh_n; vv_add b_hn, row=1; vv_mul r, row=1; vv_add p_n, row=1; v_tanh; "
            "v_wr wide, n, row=1"
        ),
    ]
    result = chain(
        "v_rd wide, n, row=1; vv_rsub h0, reg=2, row=1; vv_mul z, row=1; vv_add n, row=1; v_wr narrow, h, row=1; "
        "v_wr wide, y, reg=2, row=1"
    )
    inputs = [[*_input_part("r"), *result], [*_input_part("z"), *_input_part("n")]]
    start = chain("v_rd wide, zero; v_wr wide, h0, row=1; v_wr narrow, h, row=1")
    return _recurrent(allocator, size, GRU_GATES, start, first, others, inputs, result)
