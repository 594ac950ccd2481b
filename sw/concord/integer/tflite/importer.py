"""A quantised TensorFlow Lite file to an integer graph with the codes of TensorFlow Lite's reference kernels."""

from __future__ import annotations

from collections.abc import Sequence

from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import DAMAGED, FlatModel
from concord.frontend.tflite_rewrites import read_network
from concord.frontend.tflite_rewriting import live_operators
from concord.integer.graph import IntegerGraph
from concord.integer.importer import UnquantisedModel
from concord.integer.tflite.lowering import LOWERED
from concord.integer.tflite.moving import MOVEMENTS
from concord.integer.tflite.operators import KERNELS, Operator
from concord.integer.tflite.reading import FlatReading, fresh_name

#: Operators that are executed on codes, by their names in the schema.
OPERATORS: dict[str, Operator] = {**KERNELS, **MOVEMENTS, **LOWERED}
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
    names: list[str] = []
    for tensor in model.tensors:
        names.append(fresh_name(tensor.name, names))
    ends = _ends(model, names, outputs)
    ctx = FlatReading(model, IntegerGraph(name), names, single=single)
    reasons = _read_inputs(ctx)
    unknown: set[int] = set()
    for operator in live_operators(model, ends):
        if unknown.intersection(operator.inputs):
            unknown.update(operator.outputs)
            continue
        place = f"{operator.name} {names[operator.outputs[0]]!r}"
        try:
            if operator.name not in OPERATORS:
                remedy = _REMEDIES.get(operator.name, "end the network in front of it, with outputs=[...]")
                raise Refusal("is not an operator on codes", remedy)
            OPERATORS[operator.name](ctx, operator)
        except Refusal as refusal:
            reasons.append(f"{place}: {refusal}")
            unknown.update(operator.outputs)
        except DAMAGED as error:
            raise ValueError(f"{name} must be whole: {place} is damaged; copy or export it again") from error
    for index in ends:
        if ctx.codes.get(index) in ctx.constants:
            reasons.append(f"output {names[index]!r}: must follow from an input; compute it outside the model")
        elif index in ctx.codes:
            ctx.graph.outputs[names[index]] = ctx.codes[index]
        elif index not in unknown:
            reasons.append(f"output {names[index]!r}: must be codes; quantise the whole network to int8")
    if reasons:
        raise UnquantisedModel(name, reasons)
    return ctx.graph


def _read_inputs(ctx: FlatReading) -> list[str]:
    """Enter the inputs, of codes or of floats that QUANTIZE reads; why some cannot be."""
    reasons = []
    for index in ctx.model.inputs:
        tensor, name = ctx.tensor(index), ctx.names[index]
        try:
            ctx.check_samples(index)
            if tensor.kind == "FLOAT32":
                ctx.floats[index] = name
            else:
                ctx.graph.schemes[name] = ctx.scheme(index)
                ctx.graph.inputs[name] = ctx.codes[index] = name
        except Refusal as refusal:
            reasons.append(f"input {name!r}: {refusal}")
        ctx.graph.shapes[name] = tensor.shape
    return reasons


def _ends(model: FlatModel, names: Sequence[str], outputs: Sequence[str] | None) -> list[int]:
    """Numbers of the tensors at which the network ends."""
    if outputs is None:
        return list(model.outputs)
    known = {index for operator in model.operators for index in operator.outputs} | set(model.inputs)
    if unknown := sorted(set(outputs) - {names[index] for index in known}):
        raise ValueError(f"outputs must be tensors of the model, not {unknown}")
    return [names.index(name) for name in outputs]
