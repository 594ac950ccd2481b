"""The steps of layers as functions of C."""

from __future__ import annotations

from collections.abc import Sequence

from concord.derive.c.arithmetic import Arithmetic, mentions
from concord.derive.c.memory import Buffer
from concord.derive.c.movement import Movement
from concord.derive.c.places import ElementPlaces, Position, Scope
from concord.derive.c.plan import FusedNodes, LayerStep, LayerSteps, LoopSteps, MatrixCopy, SliceCopy, ValueCopy
from concord.derive.c.storage import CArray, NumberForm
from concord.derive.c.unit import Unit


class StepWriter:
    """Writes the functions of layers into a unit.

    Parameters
    ----------
    unit : Unit
    flag_places : sequence of str
        Those of the model.
    local : set of CArray
        Values that nobody reads outside of their group.
    """

    def __init__(self, unit: Unit, flag_places: Sequence[str], local: set[CArray]):
        self.places = ElementPlaces(unit, local)
        self.movement = Movement(self.places)
        self.arithmetic = Arithmetic(self.places, self.movement, flag_places)

    def layer(self, layer: LayerSteps) -> Scope:
        """The statements of a layer."""
        self.places.scope = Scope()
        for step in layer.steps:
            self._step(step)
        return self.places.scope

    def _step(self, step: LayerStep) -> None:
        self.places.clock += 1
        self.places.position = Position()
        match step:
            case FusedNodes():
                self._group(step)
            case ValueCopy():
                self._copy(step)
            case SliceCopy():
                self._slice(step)
            case MatrixCopy():
                self.movement.copy_matrix(step)
            case LoopSteps():
                self._loop(step)

    def _group(self, group: FusedNodes) -> None:
        if group.positions == 1:
            self.arithmetic.nodes(group)
            return
        lines = self.places.lines
        variables = tuple(f"i{number}" for number in range(len(group.dims)))
        self.places.position = Position(group.positions, group.dims, variables)
        with lines.loops(variables, group.dims):
            mark = len(lines.lines)
            self.arithmetic.nodes(group)
            body = lines.lines[mark:]
            if any(mentions(line, "p") for line in body):
                del lines.lines[mark:]
                lines.add(f"const int32_t p = {self.places.position.number};")
                lines.lines += body

    def _copy(self, copy: ValueCopy) -> None:
        for form in copy.target.sorted_forms:
            if form is NumberForm.CODES and copy.view.sources[0].data is not None:
                self.arithmetic.initial_codes(copy.target, copy.view.sources[0])
            else:
                self.movement.copy(copy.target, copy.view, form)

    def _slice(self, copy: SliceCopy) -> None:
        for form in copy.target.sorted_forms:
            if copy.into:
                self.movement.copy(copy.target, copy.view, form, "t")
            else:
                self.movement.copy_slice(copy.target, copy.view, form, copy.count)

    def _loop(self, loop: LoopSteps) -> None:
        """Writes a loop: values that its iterations read from before, or from each other, are needed to their end."""
        places, start = self.places, self.places.clock
        before = {buffer for buffer in places.unit.buffers if buffer.first >= 0}
        outer: dict[Buffer, None] = places.scope.buffers
        inside: dict[Buffer, None] = {}
        places.scope.buffers = inside
        with places.lines.loop("t", loop.count):
            for step in loop.body:
                self._step(step)
        places.clock += 1
        kept = {buffer for storage in loop.kept for buffer in places.buffers(storage)}
        for buffer in inside:
            if buffer in before or buffer in kept:
                buffer.use(start, places.clock)
        places.scope.buffers = outer | inside
