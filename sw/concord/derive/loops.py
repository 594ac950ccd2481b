"""Recurrences as loops: what an iteration reads of itself, of the iteration before, and from outside."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from concord.derive import ir
from concord.derive.build import Builder, narrowed
from concord.derive.chains import ClassNodes
from concord.derive.classes import Class, Group, LoopPlaces, elements_of
from concord.derive.flags import Limit
from concord.derive.live import Lines
from concord.spec.formats import BINARY16_FRAC
from concord.utils.arrays import Ids

#: A value of a class: of the operation or of its conversion.
ClassValue = tuple[Class, bool]
#: No first element is known: nothing reads it.
_UNKNOWN = -(1 << 40)


@dataclass(eq=False)
class _State:
    """A value of a class that the next iteration reads, and the elements that the first one reads in its place."""

    part: ClassValue
    first: Ids
    param: ir.Value

    def fits(self, at: Ids, eids: Ids) -> bool:
        """Whether the first iteration may read these elements in these places."""
        known = self.first[at]
        return bool(((known == _UNKNOWN) | (known == eids)).all())


class LoopBuilder:
    """Builds one loop.

    Parameters
    ----------
    builder : Builder
    group : Group
        A recurrence.
    lines : dict
        Of all classes.
    """

    def __init__(self, builder: Builder, group: Group, lines: dict[Class, Lines]):
        self.builder, self.lines = builder, lines
        self.classes = sorted((c for c in group.classes if lines[c].used), key=lambda c: c.members[1].number)
        self.count = len(self.classes[0].members) if self.classes else 0
        self.places = LoopPlaces(group.classes, builder.elements, builder.flow)
        self.scanned: list[ir.Scanned] = []
        self.states: list[_State] = []
        self.values: dict[ClassValue, ir.Value] = {}

    def build(self) -> None:
        """Append the loop, if anything of it is needed."""
        if not self.classes:
            return
        builder, outer = self.builder, self.builder.nodes
        body: list[ir.ModelNode] = []
        for one in self.classes:
            wide, narrow = self._class(one, body)
            self.values[one, False] = wide
            if narrow is not None:
                self.values[one, True] = narrow
        builder.nodes = outer
        builder.forget()
        carried = [self._carried(state) for state in self.states]
        stacked = [self._stacked(part) for part in self.values if part[1] or part[0].one.computes]
        builder.nodes.append(
            ir.Loop(
                output=stacked[0].output,
                layer=self.classes[0].one.layer,
                pcs=tuple(sorted({member.pc for one in self.classes for member in one.members})),
                count=self.count,
                body=ir.Body(tuple(body)),
                carried=tuple(carried),
                scanned=tuple(self.scanned),
                stacked=tuple(stacked),
            )
        )

    def _front(self, one: Class) -> ir.Shape:
        return tuple(size for size in one.one.shape[:2] if size > 1)

    def _shape(self, one: Class) -> ir.Shape:
        return (*self._front(one), len(self.lines[one].lanes))

    def _class(self, one: Class, body: list[ir.ModelNode]) -> tuple[ir.Value, ir.Value | None]:
        operands = one.operands()

        def read(number: int, pick: Callable[[Ids], Ids], broadcast: bool) -> ir.Value:
            found = [pick(elements_of(v, self.builder.elements, one.outside)) for v in operands[number]]
            front = self._front(one)
            eids = np.stack([some.reshape(*front, *some.shape[1:]) for some in found])
            return self._read(one, narrowed(eids, 1) if broadcast else eids, body)

        outer = self.builder.nodes
        self.outer, self.builder.nodes = outer, body
        try:
            return ClassNodes(self.builder, one, self.lines[one], read).build()
        finally:
            self.builder.nodes = outer

    # Operands ----------------------------------------------------------------------------------

    def _read(self, one: Class, eids: Ids, body: list[ir.ModelNode]) -> ir.Value:
        """The value of an operand ``[iterations, ...]`` within the body."""
        codes = self.places.codes(eids[1], 1)
        alien = codes < 0
        if alien.all():
            return self._outside(eids, one.one.layer)
        sources: list[ir.Value] = []
        index, start = np.zeros(codes.shape, np.int64), 0
        if alien.any():
            value = self._outside(eids[:, alien], one.one.layer)
            index[alien] = np.arange(np.count_nonzero(alien))
            sources.append(value)
            start = value.size
        for back in (0, 1):
            mine = ~alien & (codes & 1 == back)
            for part, some, at in self._parts(codes, mine):
                value = self.values[part] if back == 0 else self._state(part, at, eids[0][some]).param
                index[some] = start + at
                sources.append(value)
                start += value.size
        return self.builder.gather(sources, index, np.zeros(codes.shape, np.int64), one.one.layer, "source")

    def _parts(self, codes: Ids, mine: npt.NDArray[np.bool_]) -> list[tuple[ClassValue, npt.NDArray[np.bool_], Ids]]:
        """By class that the chosen elements are of: which ones, and where in its value."""
        found = []
        bases = np.array([base for base, _, _ in self.places.bases])
        which = np.searchsorted(bases, (codes >> 1) // self.builder.native, side="right") - 1
        for number in np.unique(which[mine]):
            some = mine & (which == number)
            one, narrow, local = self.places.find(codes[some])
            position, lane = np.divmod(local, one.one.shape[2] * self.builder.native)
            tensor = self.lines[one].tensor(ir.Value("", self._shape(one)), one.one.shape[2] * self.builder.native)
            found.append(((one, narrow), some, tensor.index(position, lane)))
        return found

    def _state(self, part: ClassValue, at: Ids, eids: Ids) -> _State:
        for state in self.states:
            if state.part == part and state.fits(at, eids):
                state.first[at] = eids
                return state
        shape = self._shape(part[0])
        param = ir.Value(self.builder.names.new(part[0].one.layer, "before"), shape)
        state = _State(part, np.full(int(np.prod(shape)), _UNKNOWN), param)
        state.first[at] = eids
        self.states.append(state)
        self.builder.limits[param] = self._limit(part)
        return state

    def _limit(self, part: ClassValue) -> Limit:
        """Of a state, before it is known how it is computed."""
        if part[1]:
            form = self.builder.flow.config.act
            return form.q_max * 2.0**form.exp_max, form.exp_min
        return np.inf, -BINARY16_FRAC

    def _outside(self, eids: Ids, layer: str) -> ir.Value:
        """Elements ``[iterations, ...]`` from outside: a value for all of them, or one of which each reads a part."""
        inside, self.builder.nodes = self.builder.nodes, self.outer
        try:
            if (eids == eids[:1]).all():
                return self.builder.read(eids[0], layer)
            source = self.builder.read(eids, layer)
        finally:
            self.builder.nodes = inside
        for one in self.scanned:
            if one.source is source:
                return one.param
        param = ir.Value(self.builder.names.new(layer, "step"), source.shape[1:])
        self.builder.limits[param] = self.builder.limits[source]
        self.scanned.append(ir.Scanned(source, param))
        return param

    # The loop ----------------------------------------------------------------------------------

    def _carried(self, state: _State) -> ir.Carried:
        first = np.where(state.first == _UNKNOWN, -1, state.first)
        initial = self.builder.read(first.reshape(state.param.shape), state.part[0].one.layer, "start")
        return ir.Carried(initial, state.param, self.values[state.part])

    def _stacked(self, part: ClassValue) -> ir.Stacked:
        one, narrow = part
        value = self.values[part]
        output = ir.Value(self.builder.names.new(one.one.layer, "steps"), (self.count, *value.shape))
        self.builder.limits[output] = self.builder.limits[value]
        vectors = [member.narrow if narrow else member.wide for member in one.members]
        together = np.concatenate([v for v in vectors if v is not None])
        self.builder.know(self.lines[one].tensor(output, one.one.shape[2] * self.builder.native), together)
        return ir.Stacked(value, output)
