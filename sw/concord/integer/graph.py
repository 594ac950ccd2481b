"""An integer graph: tensors of codes or of wide numbers, and operations from some to others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from concord.integer.float32 import Integers
from concord.integer.wide_numbers import WideNumbers
from concord.transfer import Codes
from concord.utils.grouping import by_key


@dataclass(frozen=True, kw_only=True, eq=False)
class IntegerOperation(ABC):
    """Operation that computes one tensor of codes from others.

    Parameters
    ----------
    name : str
        Of the node in the model.
    inputs : tuple of str
        Tensors of codes that it reads.
    output : str
        The tensor of codes that it makes.
    """

    name: str
    inputs: tuple[str, ...]
    output: str

    @abstractmethod
    def run(self, *codes: Integers) -> Integers:
        """The codes of the output ``[samples, ...]`` from those of the inputs, all in int64."""


@dataclass(frozen=True, eq=False)
class IntegerGraph:
    """A network on codes.

    Parameters
    ----------
    name : str
        Of the model.
    schemes : dict of str to Codes or WideNumbers
        What the integers of every tensor stand for, by its name in the model.
    inputs : dict of str to str
        Tensors of codes that hold the inputs of the model, by the names of these.
    outputs : dict of str to str
        The same of the outputs.
    operations : list of IntegerOperation
        In an order in which each can be computed.
    aliases : dict of str to str
        Further names of tensors: codes of the model that are others unchanged.
    shapes : dict of str to tuple
        Of the inputs of the model, by their names; ``None`` is a size that is open.
    """

    name: str
    schemes: dict[str, Codes | WideNumbers] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    operations: list[IntegerOperation] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, tuple[int | None, ...]] = field(default_factory=dict)

    def tensor(self, name: str) -> str:
        """The tensor that a name stands for."""
        return self.aliases.get(name, name)

    def is_wide(self, tensor: str) -> bool:
        """True if a tensor holds wide numbers."""
        return isinstance(self.schemes[tensor], WideNumbers)

    def scheme(self, tensor: str) -> Codes:
        """Scheme of the codes of a tensor; ``ValueError`` if it holds wide numbers."""
        scheme = self.schemes[tensor]
        if isinstance(scheme, WideNumbers):
            raise ValueError(f"tensor must be of codes, not of numbers as {tensor!r} is")
        return scheme

    def with_operations(
        self, operations: list[IntegerOperation], names: Mapping[str, str] | None = None
    ) -> IntegerGraph:
        """The graph with other operations; ``names`` are tensors that have become others."""
        others = dict(names or {})
        tensors = {*self.inputs.values(), *(operation.output for operation in operations)}
        aliases = {name: others.get(tensor, tensor) for name, tensor in (self.aliases | others).items()}
        return replace(
            self,
            schemes={name: scheme for name, scheme in self.schemes.items() if name in tensors},
            outputs={name: others.get(tensor, tensor) for name, tensor in self.outputs.items()},
            operations=operations,
            aliases={name: tensor for name, tensor in aliases.items() if tensor in tensors},
        )

    def compute(
        self, codes: Mapping[str, Integers], seen: Callable[[str, Integers], None] = lambda name, codes: None
    ) -> dict[str, Integers]:
        """Codes of the outputs by their names in the model, from codes of the tensors of the inputs.

        ``seen`` is called with every tensor and its codes. A tensor is dropped after its last use.
        """
        values = dict(codes)
        last = {name: k for k, operation in enumerate(self.operations) for name in operation.inputs}
        kept = set(self.outputs.values())
        for name, array in values.items():
            seen(name, array)
        for k, operation in enumerate(self.operations):
            values[operation.output] = operation.run(*(values[name] for name in operation.inputs))
            seen(operation.output, values[operation.output])
            for name in set(operation.inputs):
                if last[name] == k and name not in kept:
                    del values[name]
        return {name: values[tensor] for name, tensor in self.outputs.items()}


def readers(operations: Sequence[IntegerOperation]) -> dict[str, list[IntegerOperation]]:
    """Operations by the tensor that they read."""
    return by_key((name, operation) for operation in operations for name in dict.fromkeys(operation.inputs))


def live(graph: IntegerGraph) -> list[IntegerOperation]:
    """The operations that an output, or another name of a tensor, depends on."""
    needed = {*graph.outputs.values(), *graph.aliases.values()}
    kept: list[IntegerOperation] = []
    for operation in reversed(graph.operations):
        if operation.output in needed:
            needed.update(operation.inputs)
            kept.insert(0, operation)
    return kept
