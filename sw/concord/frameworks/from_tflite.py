"""Conversion of the contents of a TensorFlow Lite file to those of an ONNX file."""

from __future__ import annotations

from concord.frameworks.exported import finished
from concord.frontend import UnsupportedModel
from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import DAMAGED
from concord.frontend.tflite_operators import OPERATORS
from concord.frontend.tflite_rewrites import read_network
from concord.frontend.tflite_rewriting import live_operators
from concord.frontend.tflite_writer import LayoutWriter


def exported_tflite(data: bytes, name: str = "the TensorFlow Lite model") -> bytes:
    """The contents of an ONNX file of a TensorFlow Lite file.

    Inputs and outputs are floats with the names and the layout of the file, ``[batch, height, width, channels]`` of
    images; if the file has codes for them, they are what the codes mean. Codes of tensors and weights are kept, in QDQ
    form.

    Raises
    ------
    UnsupportedModel
        With every operator that is not known, or has an option that is not.
    ValueError
        If the file is damaged, or has something else that is not supported.
    """
    flat = read_network(data)
    writer = LayoutWriter(flat)
    inputs = [writer.fresh(flat.tensors[index].name) for index in flat.inputs]
    outputs = [writer.fresh(flat.tensors[index].name) for index in flat.outputs]
    for index, input_name in zip(flat.inputs, inputs, strict=True):
        writer.put(index, input_name)
    reasons = []
    for operator in live_operators(flat, flat.outputs):
        place = f"{operator.name} {flat.tensors[operator.outputs[0]].name!r}" if operator.outputs else operator.name
        if (write := OPERATORS.get(operator.name)) is None:
            reasons.append(f"{place}: operator is not supported; replace it, or compute it outside the model")
            continue
        try:
            write(writer, operator)
        except Refusal as error:
            reasons.append(f"{place}: {error}")
        except DAMAGED as error:
            if not reasons:  # after an operator that is missing, tensors are missing, too
                raise ValueError(f"{name} must be whole: {place} is damaged; copy or export it again") from error
    if reasons:
        raise UnsupportedModel(name, reasons)
    for index, output in zip(flat.outputs, outputs, strict=True):
        writer.finish(writer.rows(index), output)
    return finished(writer.model(flat, inputs, outputs), "TensorFlow Lite, converted with its codes")
