"""Nodes of a derived model as lines of Python for PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.backends.node_facts import least_units, positions, singles
from concord.derive.backends.products import plan
from concord.derive.backends.torch_texts import own_names
from concord.derive.flags import accumulator_limit
from concord.spec.formats import ExponentMode, Flag, Rounding


class NodeLines:
    """Writes nodes, one after the other. Local variables have the names of their values.

    Members
    -------
    constants : dict of arrays
        Attributes that the lines so far read.
    """

    def __init__(self) -> None:
        self.constants: dict[str, npt.NDArray[Any]] = {}
        self.lines: list[str] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def of(self, nodes: Sequence[ir.ModelNode]) -> list[str]:
        """The lines that compute nodes, and raise their flags."""
        self.lines = []
        for node in nodes:
            self.emit(node)
        return self.lines

    @staticmethod
    def on_grid(x: str, grid: ir.InputGrid | None) -> str:
        """The nearest numbers that a quantised model knows."""
        if grid is None:
            return x
        exponent, low, high = grid
        return f"torch.round({x} * {2.0**-exponent!r}).clamp({float(low)!r}, {float(high)!r}) * {2.0**exponent!r}"

    @staticmethod
    def local(value: ir.Value) -> str:
        """The variable of a value: its name, unless the file needs that itself."""
        return value.name + "_" if value.name in own_names() else value.name

    # Pieces of text -----------------------------------------------------------------------------

    def constant(self, values: npt.ArrayLike, dtype: Any) -> str:
        """An attribute that is a tensor with these values."""
        array = np.ascontiguousarray(np.asarray(values, dtype=dtype)).reshape(np.shape(values))
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"c{len(self.constants)}"
            self.constants[self._known[key]] = array
        return f"self.{self._known[key]}"

    def put(self, value: ir.Value, text: str) -> None:
        """A line that computes a value."""
        self.lines.append(f"{self.local(value)} = {text}")

    def together(self, values: Sequence[ir.Value]) -> list[str]:
        """Sources that all have samples, if one has."""
        batched = [value for value in values if value.batched]
        if not batched:
            return [self.local(value) for value in values]
        count = f"{self.local(batched[0])}.shape[0]"
        return [
            self.local(value) if value.batched else f"{self.local(value)}.expand({count}, *{value.shape!r})"
            for value in values
        ]

    def aligned(self, value: ir.Value, rank: int) -> str:
        """A value for broadcasting with samples of ``rank`` axes."""
        missing = rank - len(value.shape)
        if not value.batched or not missing:
            return self.local(value)
        return f"{self.local(value)}.unflatten(0, (-1{', 1' * missing}))"

    # Nodes --------------------------------------------------------------------------------------

    def emit(self, node: ir.ModelNode) -> None:
        """Write one node, and behind it what finds out whether it raises flags."""
        self._emit(node)
        if node.may and not isinstance(node, ir.Products):
            self._note(node, [(flag, self._condition(node, flag)) for flag in node.may])

    def _note(self, node: ir.ModelNode, raised: Sequence[tuple[Flag, str]]) -> None:
        """Lines that raise flags where conditions are true."""
        self.lines.append("if flags is not None:")
        self.lines += [f"    note(flags[{node.where!r}], {flag.name!r}, {where})" for flag, where in raised]

    def _condition(self, node: ir.ModelNode, flag: Flag) -> str:
        """Where a node that is no product raises a flag."""
        match node:
            case ir.Elementwise():
                operands = [self.aligned(x, len(node.output.shape)) for x in node.inputs]
                return f"overflowed({', '.join([self.local(node.output), *operands])})"
            case ir.TableLookup() if flag is Flag.TABLE_CLAMPED:
                ends = [
                    _number(np.inf * sign if constant_ends else float(end))
                    for sign, end, constant_ends in zip((-1, 1), (node.low, node.high), node.constant_ends, strict=True)
                ]
                return f"table_clamped({self.local(node.x)}, {2.0**node.scale!r}, {', '.join(ends)})"
            case ir.Quantise() if flag is Flag.SATURATED:
                noise = "" if node.noise is None else f", {self.constant(node.noise, np.float64)}"
                return f"saturated({self.local(node.x)}, {2.0**node.exp!r}, {float(node.form.q_max + 1)!r}{noise})"
            case ir.TableLookup() | ir.Quantise():
                return f"not_finite({self.local(node.x)})"
        raise TypeError(f"{type(node).__name__} must not raise {flag.name}")

    def _emit(self, node: ir.ModelNode) -> None:
        match node:
            case ir.Constant():
                self.put(node.output, self.constant(singles(node.data), np.float32))
            case ir.Prepare():
                self._prepare(node)
            case ir.ToBinary16():
                self.put(node.output, f"real_to_half({self.local(node.x)})")
            case ir.ToReal():
                self.put(node.output, f"canonical_nan({self.local(node.x)}).to(torch.float64)")
            case ir.Quantise():
                self._quantise(node)
            case ir.MatMul() | ir.Depthwise():
                self._product(node)
            case ir.Elementwise():
                operands = [self.aligned(value, len(node.output.shape)) for value in node.xs]
                self.put(node.output, f"{node.operation.torch}({', '.join(operands)})")
            case ir.Maximum():
                axis = node.axis % len(node.x.shape) + node.x.batched
                self.put(node.output, f"half_maximum({self.local(node.x)}, {axis})")
            case ir.TableLookup():
                entries = self.constant(singles(node.entries), np.float32)
                numbers = f"{2.0**node.scale!r}, {float(node.low)!r}, {float(node.high)!r}"
                self.put(node.output, f"half_table({self.local(node.x)}, {entries}, {numbers})")
            case ir.Loop():
                self._loop(node)
            case _:
                self._move(node)

    def _prepare(self, node: ir.Prepare) -> None:
        x = self.on_grid(self.local(node.x), node.grid)
        if node.middles is not None:
            x = f"({x} - {self.constant(node.middles, np.float64)})"
        if node.factors is not None:
            x = f"{x} * {self.constant(node.factors, np.float64)}"
        self.put(node.output, f"{x} - {node.offset!r}")

    def _quantise(self, node: ir.Quantise) -> None:
        form, x = node.form, self.local(node.x)
        end = f"{float(form.q_max)!r}, {node.rounding is Rounding.NEAREST_AWAY}"
        if node.mode is ExponentMode.STATIC:
            beside = "" if node.noise is None else f", {self.constant(node.noise, np.float64)}"
            self.put(node.output, f"static_quantize({x}, {2.0**node.exp!r}, {end}{beside})")
            return
        least = least_units(node)
        texts, start, first = [], 0, 0
        for size, some in groupby(node.blocks):
            count = len(list(some))
            floor = self.constant(least[first : first + count, None], np.float32)
            part = x if count * size == node.x.shape[-1] else f"{x}[..., {start}:{start + count * size}]"
            blocks = f"{part}.unflatten(-1, ({count}, {size}))"
            beside = ""
            if node.noise is not None:
                noise = node.noise[..., start : start + count * size].reshape(*node.x.shape[:-1], count, size)
                beside = f", {self.constant(noise, np.float64)}"
            texts.append(f"block_quantize({blocks}, {floor}, {2.0**-form.headroom!r}, {end}{beside}).flatten(-2)")
            start, first = start + count * size, first + count
        self.put(node.output, texts[0] if len(texts) == 1 else f"torch.cat([{', '.join(texts)}], -1)")

    def _product(self, node: ir.MatMul | ir.Depthwise) -> None:
        how, x = plan(node), f"{self.local(node.x)}.to(torch.float64)"
        if isinstance(node, ir.Depthwise):
            weight = self.constant(node.weight, np.float64)
            products = f"({{}} * {weight}).sum(-2)"
        else:
            weight = self.constant(np.moveaxis(node.weight, -1, -2), np.float64)
            products = f"product({{}}, {weight}, {node.weight.ndim == 3})"
        offset = None if node.offset is None else self.constant(node.offset, np.float64)
        rest = ""
        if not how.steps:
            total = products.format(x) + (f" + {offset}" if offset else "")
            if how.register is not None:
                where = f"{how.register!r}, {how.norm!r}, {list(node.starts)}"
                self.lines.append(f"total = ended({total}, {x}, {weight}, {where})")
                total = "total"
        else:
            beside = f" + [{offset}]" if offset else ""
            count = {2: "two", 3: "three"}[len(how.steps) + 1 + bool(offset)]
            sums = f"[{products.format('part')} for part in parts({x}, {how.steps!r})]{beside}"
            self.lines.append(f"total, rest = sum_of_{count}(*({sums}))")
            total, rest = "total", ", rest"
        raised = []
        if Flag.ACC_OVERFLOW in node.may:
            if not rest:
                self.lines.append(f"total = {total}")
                total = "total"
            raised.append((Flag.ACC_OVERFLOW, f"beyond(total{rest}, limit={accumulator_limit(node)!r})"))
        if Flag.HALF_OVERFLOW in node.may:
            raised.append((Flag.HALF_OVERFLOW, f"overflowed({self.local(node.output)})"))
        if how.limits is not None:
            total = f"({total}).clamp({how.limits[0]!r}, {how.limits[1]!r})"
        self.put(node.output, f"round_to_half({total}{rest})")
        if raised:
            self._note(node, raised)

    def _loop(self, node: ir.Loop) -> None:
        batched = next(value for value in node.inputs if value.batched)
        count = f"{self.local(batched)}.shape[0]"
        for carried in node.carried:
            initial = carried.initial
            text = (
                self.local(initial) if initial.batched else f"{self.local(initial)}.expand({count}, *{initial.shape!r})"
            )
            self.put(carried.param, text)
        stacks = {stack: f"{self.local(stack.output)}_iterations" for stack in node.stacked}
        self.lines += [f"{name} = []" for name in stacks.values()]
        outer, self.lines = self.lines, []
        for scan in node.scanned:
            x = scan.source
            text = (
                f"{self.local(x)}[:, iteration]"
                if x.batched
                else f"{self.local(x)}[iteration].expand({count}, *{scan.param.shape!r})"
            )
            self.put(scan.param, text)
        for inner in node.body:
            self.emit(inner)
        for stack, name in stacks.items():
            self.lines.append(f"{name}.append({self._all(stack.result, count)})")
        if node.carried:
            params = ", ".join(self.local(carried.param) for carried in node.carried)
            self.lines.append(f"{params} = {', '.join(self._all(carried.result, count) for carried in node.carried)}")
        self.lines = [*outer, f"for iteration in range({node.count}):", *("    " + line for line in self.lines)]
        for carried in node.carried:
            if carried.final is not None:
                self.put(carried.final, self.local(carried.param))
        for stack, name in stacks.items():
            self.put(stack.output, f"torch.stack({name}, 1)")

    def _all(self, value: ir.Value, count: str) -> str:
        return self.local(value) if value.batched else f"{self.local(value)}.expand({count}, *{value.shape!r})"

    # Data movement ------------------------------------------------------------------------------

    def _move(self, node: ir.ModelNode) -> None:
        axes = int(node.output.batched)
        match node:
            case ir.Gather():
                self._gather(node)
            case ir.Reshape():
                first = [f"{self.local(node.x)}.shape[0]"] if axes else []
                shape = ", ".join([*first, *map(str, node.output.shape)])
                self.put(node.output, f"{self.local(node.x)}.reshape({shape})")
            case ir.Transpose():
                perm = [*range(axes), *(axis + axes for axis in node.perm)]
                self.put(node.output, f"{self.local(node.x)}.permute({perm})")
            case ir.Slice():
                self._slice(node)
            case ir.Concat():
                axis = node.axis % len(node.output.shape) + axes
                self.put(node.output, f"torch.cat([{', '.join(self.together(node.xs))}], {axis})")
            case ir.MapWindows():
                index, pad = positions(node)
                fill = _number(float(singles(np.uint16(node.fill))))
                text = f"windows({self.local(node.x)}, {self.constant(index, np.int64)}, {pad!r}, {fill})"
                self.put(node.output, text)
            case _:
                raise TypeError(f"nodes must be those of concord.derive.ir, not {type(node).__name__}")

    def _gather(self, node: ir.Gather) -> None:
        flat = [f"{name}.flatten(1)" for name in self.together(node.xs)]
        total = sum(value.size for value in node.xs)
        index = np.where(node.index < 0, total - 1 - node.index, node.index)
        if len(node.fill):
            real = node.output.type is ir.Type.REAL
            fill = self.constant(singles(node.fill), np.float64 if real else np.float32)
            flat.append(f"{fill}.expand({flat[0]}.shape[0], {len(node.fill)})")
        every = flat[0] if len(flat) == 1 else f"torch.cat([{', '.join(flat)}], 1)"
        self.put(node.output, f"{every}[:, {self.constant(index, np.int64)}]")

    def _slice(self, node: ir.Slice) -> None:
        text = self.local(node.x)
        axes = zip(node.starts, node.steps, node.output.shape, node.x.shape, strict=True)
        for axis, (start, step, count, size) in enumerate(axes):
            if (start, step, count) == (0, 1, size):
                continue
            at = [":"] * (axis + node.output.batched)
            if step > 0:
                at.append(f"{start}:{start + (count - 1) * step + 1}:{step}")
            else:
                at.append(self.constant(start + step * np.arange(count), np.int64))
            text += f"[{', '.join(at)}]"
        self.put(node.output, text)


def _number(value: float) -> str:
    return f"float({str(value)!r})" if not np.isfinite(value) else repr(value)
