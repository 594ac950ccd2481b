"""A quantised TensorFlow Lite file to an integer graph with the codes of TensorFlow Lite's reference kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from concord.frontend.codes.fusion import Fusion
from concord.frontend.codes.importer import check_known, read_nodes
from concord.frontend.codes.model_values import MovedInput
from concord.frontend.codes.operators import PASSED
from concord.frontend.codes.tflite.lowering import LOWERED
from concord.frontend.codes.tflite.operators import KERNELS
from concord.frontend.codes.tflite.reading import KernelReading
from concord.frontend.codes.uses import Uses
from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import DAMAGED
from concord.frontend.tflite_rewrites import read_network
from concord.frontend.tflite_rewriting import live_operators
from concord.frontend.tflite_writer import OPSET, CodeNode, CodeWriter
from concord.integer.graph import IntegerGraph

#: Operators that are executed on codes, by their names in the schema.
OPERATORS: dict[str, Callable[[KernelReading, CodeNode], None]] = {**KERNELS, **LOWERED}
#: Advice for operators that have another form.
_REMEDIES = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "convert the layer with unroll=True",
    "SUM": "use MEAN and a product, as its kernel computes in floats",
}


def import_tflite_graph(
    data: bytes, name: str, outputs: Sequence[str] | None = None, single: bool = False
) -> IntegerGraph:
    """Read a quantised network.

    Parameters
    ----------
    data : bytes
        Contents of a TensorFlow Lite file whose tensors are codes of int8, uint8 or int16.
    name : str
        Of the network.
    outputs : sequence of str, optional
        Tensors of the file at which the network ends; its outputs if it is left out.
    single : bool
        Round products of codes of 8 bits in binary32, as the default kernels do.

    Raises
    ------
    UnquantisedModel
        If an operator reads floats, or is none on codes: every reason.
    ValueError
        If the file is damaged, or an output is no tensor of it.
    """
    model = read_network(data)
    writer = CodeWriter(model)
    names, inputs = writer.names, [writer.names[index] for index in model.inputs]
    computed = {names[index] for operator in model.operators for index in operator.outputs}
    ends = [names[index] for index in model.outputs] if outputs is None else check_known(outputs, computed | {*inputs})
    nodes = [CodeNode(operator, names) for operator in live_operators(model, map(names.index, ends))]
    uses = Uses(nodes, ends, writer.constants, PASSED)
    tensors = dict(zip(names, model.tensors, strict=True))
    floats = {name: MovedInput(name) for name in inputs if tensors[name].kind == "FLOAT32"}
    ctx = KernelReading(
        IntegerGraph(name), OPSET, writer.constants, floats, {}, writer.taken, uses,
        Fusion(nodes, uses, writer.constants, {}, False), tensors=tensors, writer=writer, single=single,
    )  # fmt: skip
    reasons = ctx.read_inputs(inputs)
    return read_nodes(ctx, nodes, ends, _read, reasons)


def _read(ctx: KernelReading, node: CodeNode) -> None:
    """Read an operator; ``ValueError`` if the file is damaged there."""
    try:
        if node.op not in OPERATORS:
            remedy = _REMEDIES.get(node.op, "end the network in front of it, with outputs=[...]")
            raise Refusal("is not an operator on codes", remedy)
        OPERATORS[node.op](ctx, node)
        for output in node.outputs:
            ctx.check_samples(output)
    except DAMAGED as error:
        place = f"{node.label} {node.name!r}"
        raise ValueError(f"{ctx.graph.name} must be whole: {place} is damaged; copy or export it again") from error
