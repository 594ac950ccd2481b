"""Loops of TensorFlow Lite files, written out: WHILE that is repeated as often as constants say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from concord.frontend.limits import MOST_NODES
from concord.frontend.tflite_constants import fold_operator
from concord.frontend.tflite_file import FlatModel, FlatOperator, FlatTensor

#: How often a loop is written out at most.
_MOST_TURNS = 512


def unrolled(model: FlatModel) -> FlatModel:
    """The network with the body of each WHILE as often as its condition holds.

    Raises
    ------
    ValueError
        If the number of turns does not follow from constants, or is more than 512, or there are too many operators.
    """
    if not model.others:
        return model
    writer = _Unrolling(model)
    for operator in model.operators:
        writer.add(operator, {})
    return FlatModel(tuple(writer.tensors), tuple(writer.operators), model.inputs, model.outputs)


class _Unrolling:
    """The network that grows, with the tensors of all turns."""

    def __init__(self, model: FlatModel) -> None:
        self.networks = model.others
        self.tensors: list[FlatTensor] = list(model.tensors)
        self.operators: list[FlatOperator] = []
        self.ends = frozenset(model.outputs)
        #: Constants of bodies, which all turns share, and the tensors of the last turn.
        self.constants: dict[tuple[int, int], int] = {}
        #: What stands for the results of loops.
        self.made: dict[int, int] = {}

    def add(self, operator: FlatOperator, numbers: dict[int, int]) -> None:
        """Add an operator whose tensors may have other numbers here."""
        inputs = (numbers.get(k, k) for k in operator.inputs)
        outputs = tuple(numbers.get(k, k) for k in operator.outputs)
        operator = replace(operator, inputs=tuple(self.made.get(k, k) for k in inputs), outputs=outputs)
        if operator.name == "WHILE" and numbers:
            place = f"WHILE {self.tensors[outputs[0]].name!r}"
            raise ValueError(f"{place} must not be inside of another one; export the model with one loop at a time")
        if operator.name == "WHILE":
            self._repeat(operator)
        elif not fold_operator(self.tensors, operator):
            self.operators.append(operator)

    def _repeat(self, loop: FlatOperator) -> None:
        place = f"WHILE {self.tensors[loop.outputs[0]].name!r}"
        parts = loop.options.CondSubgraphIndex(), loop.options.BodySubgraphIndex()
        if not all(0 < k < len(self.networks) for k in parts):
            raise ValueError(f"{place} must have networks of the file as condition and body, not {list(parts)}")
        condition, body = (self.networks[k] for k in parts)
        counts = {len(part) for part in (condition.inputs, body.inputs, body.outputs, loop.inputs, loop.outputs)}
        if len(counts) > 1 or len(condition.outputs) != 1:
            raise ValueError(f"{place} must have a body that makes what it reads; export the model again")
        values: Sequence[int] = loop.inputs
        for turn in range(_MOST_TURNS + 1):
            if not self._holds(condition, values, place):
                break
            if turn == _MOST_TURNS:
                raise ValueError(f"{place} must be repeated at most {_MOST_TURNS} times; make the sequence shorter")
            values = self._turn(body, values, f"{turn}")
        for value, output in zip(values, loop.outputs, strict=True):
            self.made[output] = value
            if output in self.ends:
                source = self.tensors[value]
                self.tensors[output] = replace(source, name=self.tensors[output].name)
                self.operators.append(FlatOperator("RESHAPE", (value,), (output,), None))

    def _holds(self, condition: FlatModel, values: Sequence[int], place: str) -> bool:
        """Truth of the condition of a loop, which must follow from constants."""
        tensors = list(condition.tensors)
        for k, value in zip(condition.inputs, values, strict=True):
            tensors[k] = self.tensors[value]
        for operator in condition.operators:
            fold_operator(tensors, operator)
        (result,) = (tensors[k].data for k in condition.outputs)
        if result is None:
            reason = f"{place} must be repeated a number of times that follows from constants"
            raise ValueError(f"{reason}; convert recurrent layers with unroll=True")
        return bool(result.all())

    def _turn(self, body: FlatModel, values: Sequence[int], name: str) -> list[int]:
        """Write the body out once; the numbers of what it makes."""
        if len(self.tensors) + len(body.tensors) > 8 * MOST_NODES:
            raise ValueError(f"loops must make at most {8 * MOST_NODES:,} tensors when they are written out")
        numbers = dict(zip(body.inputs, values, strict=True))
        for k, tensor in enumerate(body.tensors):
            shared = (id(body), k)
            if k in numbers:
                continue
            if tensor.data is None or shared not in self.constants:
                self.tensors.append(replace(tensor, name=f"{tensor.name}/{name}"))
                self.constants[shared] = len(self.tensors) - 1
            numbers[k] = self.constants[shared]
        for operator in body.operators:
            self.add(operator, numbers)
        return [self.made.get(numbers[k], numbers[k]) for k in body.outputs]
