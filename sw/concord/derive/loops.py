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
        """True if the first iteration may read these elements in these places."""
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
        for chain_class in self.classes:
            wide, narrow = self._class(chain_class, body)
            self.values[chain_class, False] = wide
            if narrow is not None:
                self.values[chain_class, True] = narrow
        builder.nodes = outer
        builder.forget()
        carried = [self._carried(state) for state in self.states]
        stacked = [self._stacked(part) for part in self.values if part[1] or part[0].representative.computes]
        builder.nodes.append(
            ir.Loop(
                output=stacked[0].output,
                layer=self.classes[0].representative.layer,
                pcs=tuple(sorted({member.pc for chain_class in self.classes for member in chain_class.members})),
                count=self.count,
                body=ir.Body(tuple(body)),
                carried=tuple(carried),
                scanned=tuple(self.scanned),
                stacked=tuple(stacked),
            )
        )

    def _front(self, chain_class: Class) -> ir.Shape:
        return tuple(size for size in chain_class.representative.shape[:2] if size > 1)

    def _shape(self, chain_class: Class) -> ir.Shape:
        return (*self._front(chain_class), len(self.lines[chain_class].lanes))

    def _class(self, chain_class: Class, body: list[ir.ModelNode]) -> tuple[ir.Value, ir.Value | None]:
        operands = chain_class.operands()

        def read(number: int, pick: Callable[[Ids], Ids], broadcast: bool) -> ir.Value:
            sources = [pick(elements_of(v, self.builder.elements, chain_class.outside)) for v in operands[number]]
            front = self._front(chain_class)
            eids = np.stack([some.reshape(*front, *some.shape[1:]) for some in sources])
            return self._read(chain_class, narrowed(eids, 1) if broadcast else eids, body)

        def read_matrix(pick: Callable[[Ids], Ids]) -> ir.Value:
            sources = [pick(elements_of(v, self.builder.elements)) for v in operands[-1]]
            return self._read(chain_class, np.concatenate(sources), body)

        outer = self.builder.nodes
        self.outer, self.builder.nodes = outer, body
        try:
            return ClassNodes(self.builder, chain_class, self.lines[chain_class], read, read_matrix).build()
        finally:
            self.builder.nodes = outer

    # Operands ----------------------------------------------------------------------------------

    def _read(self, chain_class: Class, eids: Ids, body: list[ir.ModelNode]) -> ir.Value:
        """The value of an operand ``[iterations, ...]`` within the body."""
        codes = self.places.codes(eids[1], 1)
        alien = codes < 0
        if alien.all():
            return self._outside(eids, chain_class.representative.layer)
        sources: list[ir.Value] = []
        index, start = np.zeros(codes.shape, np.int64), 0
        if alien.any():
            value = self._outside(eids[:, alien], chain_class.representative.layer)
            index[alien] = np.arange(np.count_nonzero(alien))
            sources.append(value)
            start = value.size
        for back in (0, 1):
            own = ~alien & (codes & 1 == back)
            for part, some, at in self._parts(codes, own):
                value = self.values[part] if back == 0 else self._state(part, at, eids[0][some]).param
                index[some] = start + at
                sources.append(value)
                start += value.size
        return self.builder.gather(
            sources, index, np.zeros(codes.shape, np.int64), chain_class.representative.layer, "source"
        )

    def _parts(self, codes: Ids, own: npt.NDArray[np.bool_]) -> list[tuple[ClassValue, npt.NDArray[np.bool_], Ids]]:
        """Parts of the chosen elements by class: the class, a mask of its elements, and their places in its value."""
        parts = []
        bases = np.array([base for base, _, _ in self.places.bases])
        which = np.searchsorted(bases, (codes >> 1) // self.builder.native, side="right") - 1
        for number in np.unique(which[own]):
            some = own & (which == number)
            chain_class, narrow, local = self.places.find(codes[some])
            position, lane = np.divmod(local, chain_class.representative.shape[2] * self.builder.native)
            tensor = self.lines[chain_class].tensor(
                ir.Value("", self._shape(chain_class)), chain_class.representative.shape[2] * self.builder.native
            )
            parts.append(((chain_class, narrow), some, tensor.index(position, lane)))
        return parts

    def _state(self, part: ClassValue, at: Ids, eids: Ids) -> _State:
        for state in self.states:
            if state.part == part and state.fits(at, eids):
                state.first[at] = eids
                return state
        shape = self._shape(part[0])
        param = ir.Value(self.builder.names.new(part[0].representative.layer, "before"), shape)
        state = _State(part, np.full(int(np.prod(shape)), _UNKNOWN), param)
        state.first[at] = eids
        self.states.append(state)
        self.builder.limits[param] = self._limit(part)
        return state

    def _limit(self, part: ClassValue) -> Limit:
        """Limit of a state, before it is known how it is computed."""
        if part[1]:
            form = part[0].representative.form
            assert form is not None
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
        for scan in self.scanned:
            if scan.source is source:
                return scan.param
        param = ir.Value(self.builder.names.new(layer, "step"), source.shape[1:])
        self.builder.limits[param] = self.builder.limits[source]
        self.scanned.append(ir.Scanned(source, param))
        return param

    # The loop ----------------------------------------------------------------------------------

    def _carried(self, state: _State) -> ir.Carried:
        first = np.where(state.first == _UNKNOWN, -1, state.first)
        initial = self.builder.read(first.reshape(state.param.shape), state.part[0].representative.layer, "start")
        return ir.Carried(initial, state.param, self.values[state.part])

    def _stacked(self, part: ClassValue) -> ir.Stacked:
        chain_class, narrow = part
        value = self.values[part]
        output = ir.Value(self.builder.names.new(chain_class.representative.layer, "steps"), (self.count, *value.shape))
        self.builder.limits[output] = self.builder.limits[value]
        vectors = [member.narrow if narrow else member.wide for member in chain_class.members]
        together = np.concatenate([v for v in vectors if v is not None])
        self.builder.know(
            self.lines[chain_class].tensor(output, chain_class.representative.shape[2] * self.builder.native), together
        )
        return ir.Stacked(value, output)
