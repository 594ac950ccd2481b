"""Uses of the tensors of a model: their numbers, or their codes alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from numpy.typing import NDArray

from concord.frontend.context import OnnxNode
from concord.utils.grouping import by_key


class Uses:
    """Readers of the tensors of a model.

    Parameters
    ----------
    nodes : iterable of OnnxNode
        Of the model.
    outputs : collection of str
        Tensors that are outputs of the model.
    constants : mapping of str to array
        Constants of the model: two QuantizeLinear with equal ones are one.
    passing : collection of str
        Operators that codes pass as numbers do, with what they read as their first operand.
    """

    def __init__(
        self,
        nodes: Iterable[OnnxNode],
        outputs: Collection[str],
        constants: Mapping[str, NDArray[Any]],
        passing: Collection[str],
    ):
        self._readers = by_key((name, node) for node in nodes for name in dict.fromkeys(node.inputs))
        self._outputs, self._constants, self._passing = set(outputs), constants, frozenset(passing)

    def readers(self, name: str) -> list[OnnxNode]:
        """Nodes that read a tensor, each once; of QuantizeLinear that make the same codes the first one."""
        return list({self.key(node): node for node in reversed(self._readers.get(name, []))}.values())

    def like(self, quantiser: OnnxNode) -> list[OnnxNode]:
        """Nodes that make the same codes as a QuantizeLinear, itself among them."""
        return [node for node in self._readers[quantiser.input(0)] if self.key(node) == self.key(quantiser)]

    def numbers_read(self, codes: str) -> int | None:
        """Count of the readers of the numbers of codes, outputs too; ``None`` if something else reads the codes."""
        if codes in self._outputs or any(node.op != "DequantizeLinear" for node in self._readers.get(codes, [])):
            return None
        numbers = [node.outputs[0] for node in self._readers.get(codes, [])]
        read = [node.inputs.count(name) for name in numbers for node in self._readers.get(name, [])]
        return sum(read) + sum(name in self._outputs for name in numbers)

    def is_output(self, name: str) -> bool:
        """True if the model ends with a tensor."""
        return name in self._outputs

    def end_in_codes(self, name: str) -> bool:
        """True if nothing but one QuantizeLinear reads a tensor, be it after operators that codes pass, too.

        That is where ONNX Runtime has an integer kernel in the place of an operator and its QuantizeLinear.
        """
        readers = self._readers.get(name, [])
        if name in self._outputs or len({self.key(node) for node in readers}) > 1:
            return False
        if not readers or readers[0].op == "QuantizeLinear":
            return True
        (reader,) = readers
        return reader.op in self._passing and reader.input(0) == name and all(map(self.end_in_codes, reader.outputs))

    def only_reader(self, name: str) -> OnnxNode | None:
        """The node that alone reads a tensor, if there is one and the model does not end there."""
        readers = self._readers.get(name, [])
        return readers[0] if len(readers) == 1 and name not in self._outputs else None

    def key(self, node: OnnxNode) -> Any:
        """Key that is equal for nodes that make the same codes."""
        if node.op != "QuantizeLinear":
            return node.name, *node.outputs
        constants = [self._constants.get(name, name) for name in node.inputs[1:]]
        known = [part if isinstance(part, str) else (part.dtype.name, part.tobytes()) for part in constants]
        return node.input(0), *known, *sorted(map(str, node.attrs.items()))
