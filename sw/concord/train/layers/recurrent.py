"""LSTM and GRU through time.

Gates read ``x W^T + h R^T + b``, an intermediate that is narrowed to an activation with one exponent for all gates of
a step, and are tables. States have 16 bits: h has 15 of them after the binary point, the cell c the exponent it
needs. In the backward pass every product of elements reads gradients in their format; gradients of weights read those
of all steps on one grid.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from concord.golden.rounding import round_shift
from concord.graph.ir import Node
from concord.graph.ops import directions
from concord.graph.ops.recurrent import GruAttributes, RecurrentAttributes
from concord.spec.training import TrainingFormat
from concord.train.layers.base import Gradients, Memory, PassContext, TrainableLayer
from concord.train.layers.dense import bias_gradient, input_gradient, product, weight_gradient
from concord.train.layers.pointwise import ENTRY_POINT, looked_up, times
from concord.train.parameters import Parameter
from concord.train.tensor import Tensor, added, joined, narrow

#: Of states.
STATE = TrainingFormat(ENTRY_POINT + 1)


def state_of(x: Tensor) -> Tensor:
    """A state h: rounded to 15 bits after the binary point, within 16 bits."""
    mant = np.clip(round_shift(x.mant, -ENTRY_POINT - x.exp), -STATE.q_max, STATE.q_max)
    return Tensor(mant.astype(np.float32), -ENTRY_POINT, STATE.q_max)


def state_operand(x: Tensor, site: str, context: PassContext) -> Tensor:
    """Operand of a product with R."""
    return (
        narrow(x, context.formats.activation, context.noise)
        if context.monitor is None
        else context.monitor.operand(x, site)
    )


def piece(x: Tensor, number: int, size: int) -> Tensor:
    """One of the gates along the last axis."""
    return x.with_mant(x.mant[..., number * size : (number + 1) * size])


def negative(x: Tensor) -> Tensor:
    """``-x``."""
    return x.with_mant(-x.mant)


def derived(g: Tensor, by: Tensor, context: PassContext) -> Tensor:
    """A gradient, in its format, times what an element was multiplied with, or a slope."""
    return times(context.gradient(g, -1), by, context)


@dataclass
class CellParameters:
    """Parameters of one direction: W ``[G H, F]``, R ``[G H, H]``, the bias of all gates, and that of R for the new
    state."""

    weight: Parameter
    recurrent: Parameter
    bias: Parameter
    hidden_bias: Parameter | None = None

    @property
    def parameters(self) -> dict[str, Parameter]:
        """Parameters by their role."""
        parameters = {"weight": self.weight, "recurrent": self.recurrent, "bias": self.bias}
        return parameters | ({"hidden_bias": self.hidden_bias} if self.hidden_bias else {})


class RecurrentLayer(TrainableLayer):
    """Base of LSTM and GRU: X is ``[samples, T, 1, F]``, Y ``[samples, T, directions, 1, H]``, Y_h without T."""

    def __init__(self, node: Node, cells: Sequence[CellParameters]):
        super().__init__(node.replace(inputs=node.inputs[:1]))
        self.node, self.cells = node, list(cells)
        self.size = node.attributes(RecurrentAttributes).hidden_size

    @property
    def parameters(self) -> dict[str, Parameter]:
        return {f"{key}{d}": p for d, cell in enumerate(self.cells) for key, p in cell.parameters.items()}

    @property
    def attributes(self) -> dict[str, Any]:
        """W, R and B as ONNX has them; the bias of R is zero but for what is multiplied with a reset gate."""
        biases = []
        for cell in self.cells:
            first = cell.bias.values
            second = np.zeros_like(first)
            if cell.hidden_bias is not None:
                second[2 * self.size :] = cell.hidden_bias.values
            biases.append(np.concatenate([first, second]))
        weights = {
            key: np.stack([getattr(c, name).values for c in self.cells])
            for key, name in (("W", "weight"), ("R", "recurrent"))
        }
        return weights | {"B": np.stack(biases)}

    def _order(self, d: int, steps: int) -> list[int]:
        return list(range(steps))[:: -1 if directions(self.node)[d] else 1]

    def forward(self, xs: Sequence[Tensor], context: PassContext) -> tuple[list[Tensor], Memory]:
        x = context.operand(xs[0], f"{self.name}.W0", -1)
        x = x.reshaped(*x.mant.shape[:2], x.mant.shape[-1])
        samples, steps = x.mant.shape[:2]
        every, kept = [], []
        for d, cell in enumerate(self.cells):
            gates = product(x, cell.weight.tensor, cell.bias.tensor, context, f"{self.name}.W{d}")
            h = Tensor(np.zeros((samples, self.size), np.float32), -ENTRY_POINT, 0)
            site = f"{self.name}.R{d}"
            states: list[Any] = [None] * steps
            c: Tensor | None = None
            memories: list[Any] = []
            for t in self._order(d, steps):
                h, c, memory = self._step(cell, gates.with_mant(gates.mant[:, t]), h, c, context, site)
                states[t] = h.mant
                memories.append((t, memory))
            every.append(np.stack(states, axis=1))
            kept.append(memories)
        y = np.stack(every, axis=2)[:, :, :, None]
        last = np.stack([s[:, self._order(d, steps)[-1]] for d, s in enumerate(every)], axis=1)[:, :, None]
        outputs = [Tensor(y, -ENTRY_POINT, STATE.q_max), Tensor(last, -ENTRY_POINT, STATE.q_max)]
        return outputs, (x, kept)

    def backward(self, grads: Sequence[Tensor | None], memory: Memory, context: PassContext) -> Gradients:
        x, kept = memory
        every, last = [*grads, None][:2]
        back, changes = [], {}
        for d, cell in enumerate(self.cells):
            later: list[Tensor] = [last.with_mant(last.mant[:, d, 0])] if last is not None else []
            c: Tensor | None = None
            inputs: list[Any] = [None] * x.mant.shape[1]
            operands: list[dict[str, tuple[Tensor, Tensor]]] = []
            for t, step in reversed(kept[d]):
                now = [every.with_mant(every.mant[:, t, d, 0])] if every is not None else []
                later, c, inputs[t], pairs = self._step_back(cell, now + later, c, step, context)
                operands.append(pairs)
            gates = joined(inputs, context.formats.intermediate)
            changes[f"weight{d}"] = weight_gradient(gates, x, context)
            changes[f"bias{d}"] = bias_gradient(gates, context)
            changes |= {f"{key}{d}": change for key, change in self._recurrent_changes(operands, context).items()}
            back.append(input_gradient(context.gradient(gates, -1), cell.weight.tensor, context))
        total = added(back, context.formats.intermediate)
        return [total.reshaped(*total.mant.shape[:2], 1, total.mant.shape[-1])], changes

    def _step(
        self, cell: CellParameters, gates: Tensor, h: Tensor, c: Tensor | None, context: PassContext, site: str
    ) -> tuple[Tensor, Tensor | None, Any]:
        raise NotImplementedError

    def _step_back(
        self, cell: CellParameters, dh: list[Tensor], dc: Tensor | None, memory: Any, context: PassContext
    ) -> tuple[list[Tensor], Tensor | None, Tensor, dict[str, tuple[Tensor, Tensor]]]:
        """Gradients of the states before and of the gates' inputs; for R, pairs of gradient and what was read."""
        raise NotImplementedError

    def _recurrent_changes(
        self, operands: list[dict[str, tuple[Tensor, Tensor]]], context: PassContext
    ) -> dict[str, Tensor]:
        """Gradients of R and of its bias: sums over all steps, which are put on one grid."""
        fmt = context.formats.intermediate
        rows = []
        changes = {}
        for key in operands[0]:
            g = joined([pairs[key][0] for pairs in operands], fmt)
            read = joined([pairs[key][1] for pairs in operands], fmt)
            rows.append(weight_gradient(g, read, context))
            if key == "hidden":
                changes["hidden_bias"] = bias_gradient(piece(g, 2, self.size), context)
        changes["recurrent"] = joined(rows, fmt, along=0)
        return changes


class LSTM(RecurrentLayer):
    """Gates i, o, f, c as in ONNX, without peepholes: ``c = f c + i g``, ``h = o tanh(c)``."""

    def _step(
        self, cell: CellParameters, gates: Tensor, h: Tensor, c: Tensor | None, context: PassContext, site: str
    ) -> tuple[Tensor, Tensor | None, Any]:
        top = context.formats.activation.q_max
        read = state_operand(h, site, context)
        pre = added([gates, product(read, cell.recurrent.tensor, None, context, site)], context.formats.intermediate)
        short = context.table_input(pre)
        i, o, f = (looked_up("sigmoid", piece(short, k, self.size), top) for k in range(3))
        g = looked_up("tanh", piece(short, 3, self.size), top)
        parts = [times(i[0], g[0], context)] + ([times(f[0], c, context)] if c is not None else [])
        new = narrow(added(parts, context.formats.intermediate), STATE)
        t = looked_up("tanh", context.table_input(new), top)
        return state_of(times(o[0], t[0], context)), new, (read, i, o, f, g, c, t)

    def _step_back(
        self, cell: CellParameters, dh: list[Tensor], dc: Tensor | None, memory: Any, context: PassContext
    ) -> tuple[list[Tensor], Tensor | None, Tensor, dict[str, tuple[Tensor, Tensor]]]:
        read, i, o, f, g, c, t = memory
        fmt = context.formats.intermediate
        gradient = added(dh, fmt) if dh else Tensor(np.zeros(i[0].mant.shape), 0, 0)
        through = derived(derived(gradient, o[0], context), t[1], context)
        cell_gradient = added([through] + ([dc] if dc is not None else []), fmt)
        parts = [
            derived(derived(cell_gradient, g[0], context), i[1], context),
            derived(derived(gradient, t[0], context), o[1], context),
            derived(derived(cell_gradient, c, context), f[1], context) if c is not None else zeros(i[0]),
            derived(derived(cell_gradient, i[0], context), g[1], context),
        ]
        gates = joined(parts, fmt, along=-1)
        before = input_gradient(context.gradient(gates, -1), cell.recurrent.tensor, context)
        return [before], derived(cell_gradient, f[0], context), gates, {"all": (gates, read)}


class GRU(RecurrentLayer):
    """Gates z, r, h as in ONNX: ``h = n + z (h - n)``, n the new state."""

    def _step(
        self, cell: CellParameters, gates: Tensor, h: Tensor, c: Tensor | None, context: PassContext, site: str
    ) -> tuple[Tensor, Tensor | None, Any]:
        fmt, top, size = context.formats.intermediate, context.formats.activation.q_max, self.size
        read, weights = state_operand(h, site, context), cell.recurrent.tensor
        if self.node.attributes(GruAttributes).linear_before_reset:
            sums = product(read, weights, None, context, site)
            z, r = self._gates(gates, sums, context)
            bias = cell.hidden_bias
            last = piece(sums, 2, size)
            inner = narrow(added([last, spread(bias.tensor, last)] if bias else [last], fmt), STATE)
            pre, reset = added([piece(gates, 2, size), times(r[0], inner, context)], fmt), None
        else:
            sums = product(read, weights.with_mant(weights.mant[: 2 * size]), None, context, site)
            z, r = self._gates(gates, sums, context)
            inner, reset = h, state_operand(times(r[0], h, context), site, context)
            new = product(reset, weights.with_mant(weights.mant[2 * size :]), None, context, site)
            pre = added([piece(gates, 2, size), new], fmt)
        n = looked_up("tanh", context.table_input(pre), top)
        apart = Tensor(h.mant - n[0].mant, -ENTRY_POINT, 2 * STATE.q_max)
        state = state_of(added([n[0], times(z[0], apart, context)], fmt))
        return state, None, (read, z, r, n, inner, reset, apart)

    def _gates(self, gates: Tensor, sums: Tensor, context: PassContext) -> list[tuple[Tensor, Tensor]]:
        both = [x.with_mant(x.mant[..., : 2 * self.size]) for x in (gates, sums)]
        short = context.table_input(added(both, context.formats.intermediate))
        return [looked_up("sigmoid", piece(short, k, self.size), context.formats.activation.q_max) for k in range(2)]

    def _step_back(
        self, cell: CellParameters, dh: list[Tensor], dc: Tensor | None, memory: Any, context: PassContext
    ) -> tuple[list[Tensor], Tensor | None, Tensor, dict[str, tuple[Tensor, Tensor]]]:
        read, z, r, n, inner, reset, apart = memory
        fmt, weights, size = context.formats.intermediate, cell.recurrent.tensor, self.size
        gradient = added(dh, fmt) if dh else Tensor(np.zeros(z[0].mant.shape), 0, 0)
        kept = Tensor((1 << ENTRY_POINT) - z[0].mant, -ENTRY_POINT, 1 << ENTRY_POINT)
        dz = derived(derived(gradient, apart, context), z[1], context)
        dn = derived(derived(gradient, kept, context), n[1], context)
        before = [derived(gradient, z[0], context)]
        if self.node.attributes(GruAttributes).linear_before_reset:
            dr = derived(derived(dn, inner, context), r[1], context)
            gates = joined([dz, dr, dn], fmt, along=-1)
            hidden = joined([dz, dr, derived(dn, r[0], context)], fmt, along=-1)
            before.append(input_gradient(context.gradient(hidden, -1), weights, context))
            return before, None, gates, {"hidden": (hidden, read)}
        through = input_gradient(context.gradient(dn, -1), weights.with_mant(weights.mant[2 * size :]), context)
        dr = derived(derived(through, inner, context), r[1], context)
        both = joined([dz, dr], fmt, along=-1)
        gates = joined([dz, dr, dn], fmt, along=-1)
        before.append(derived(through, r[0], context))
        before.append(input_gradient(context.gradient(both, -1), weights.with_mant(weights.mant[: 2 * size]), context))
        return before, None, gates, {"gates": (both, read), "new": (dn, reset)}


def spread(bias: Tensor, like: Tensor) -> Tensor:
    """A bias for every row."""
    return bias.with_mant(np.broadcast_to(bias.mant, like.mant.shape))


def zeros(like: Tensor) -> Tensor:
    """A tensor of zeros."""
    return Tensor.of(np.zeros(like.mant.shape), 0)
