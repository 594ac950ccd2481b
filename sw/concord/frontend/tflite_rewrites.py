"""Networks of TensorFlow Lite in the operators that both readers know: one for codes, one for floats.

A converter writes one layer as several operators: a dilated convolution as one between SPACE_TO_BATCH_ND and
BATCH_TO_SPACE_ND, steps of a recurrent layer as the parts of a transposed sequence, rows of a dense layer as samples.
Each rule here makes one of these forms again what it stands for. Elements and codes stay what they are.
"""

from __future__ import annotations

from dataclasses import replace

from concord.frontend.tflite_constants import folded
from concord.frontend.tflite_dilations import with_dilations, with_pads
from concord.frontend.tflite_file import DAMAGED, FlatModel, FlatOperator, FlatOptions, read_flat
from concord.frontend.tflite_loops import unrolled
from concord.frontend.tflite_parts import with_parts, with_upsampling
from concord.frontend.tflite_rewriting import POINT_WISE, FlatRewriting
from concord.frontend.tflite_sequences import with_lists, with_steps

#: Operators that work along the last axis, whatever is in front of it.
_OF_ROWS = frozenset({"FULLY_CONNECTED", "SOFTMAX", "LOG_SOFTMAX"})


def read_network(data: bytes) -> FlatModel:
    """The network in the contents of a TensorFlow Lite file, in the operators that its readers know.

    Raises
    ------
    ValueError
        As of :func:`~concord.frontend.tflite_file.read_flat`, if an operator does not fit its constants, or if a loop
        cannot be written out.
    """
    return rewritten(folded(unrolled(read_flat(data))))


def rewritten(model: FlatModel) -> FlatModel:
    """The network after all rules."""
    for rule in (with_dilations, with_pads, with_lists, with_steps, with_upsampling, with_parts, _with_samples):
        graph = FlatRewriting(model)
        try:
            rule(graph)
        except DAMAGED as error:
            raise ValueError(
                "the model must be whole: an operator does not fit its tensors; export it again"
            ) from error
        model = graph.model()
    return model


def _with_samples(graph: FlatRewriting) -> None:
    """Rows of one sample are no samples: RESHAPE to ``[rows, features]`` leaves an axis of one sample in front.

    This holds for what is computed of such rows, too, up to a RESHAPE back.
    """
    ranks = [len(graph.tensors[index].shape) for index in graph.source.inputs]
    single = ranks and all(graph.tensors[index].shape[:1] == (1,) for index in graph.source.inputs)
    rows = _rows(graph) if single else set()
    for index in rows:
        tensor = graph.tensors[index]
        graph.tensors[index] = replace(tensor, shape=(1, *tensor.shape))
    for operator in graph.source.operators:
        if operator.name == "FULLY_CONNECTED" and rows.issuperset(operator.outputs):
            operator = replace(operator, options=FlatOptions(operator.options, KeepNumDims=True))
        graph.operators.append(operator)


def _rows(graph: FlatRewriting) -> set[int]:
    """Tensors of rows of one sample, each of which has ``[rows, features]``."""
    rows: set[int] = set()
    for operator in graph.source.operators:
        shapes = [graph.tensors[index].shape for index in operator.outputs]
        if len(shapes) != 1 or not shapes[0] or shapes[0][0] == 1:
            continue
        computed = [k for k in operator.inputs if k >= 0 and graph.tensors[k].data is None]
        if operator.name == "RESHAPE" and graph.tensors[operator.inputs[0]].shape[:1] == (1,):
            rows.update(operator.outputs)
        elif operator.name in (*POINT_WISE, *_OF_ROWS) and computed and rows.issuperset(computed):
            rows.update(operator.outputs)
    while wrong := {index for index in rows if not _inside(graph, index, rows)}:
        rows -= wrong
    return rows


def _inside(graph: FlatRewriting, index: int, rows: set[int]) -> bool:
    """True if a tensor of rows is computed of such tensors alone, or is the shape of another one; and is read so."""
    maker, readers = graph.makers[index], graph.readers.get(index, ())
    computed = [k for k in maker.inputs if k >= 0 and graph.tensors[k].data is None]
    made = maker.name == "RESHAPE" or rows.issuperset(computed)
    read = all(
        reader.name == "RESHAPE" or rows.issuperset(reader.outputs) or _broadcasts(graph, reader, index)
        for reader in readers
    )
    return made and read and index not in graph.source.outputs


def _broadcasts(graph: FlatRewriting, operator: FlatOperator, index: int) -> bool:
    """True if an operator combines a tensor with one that has an axis of one sample in front."""
    shape = graph.tensors[operator.outputs[0]].shape
    rank = len(graph.tensors[index].shape)
    return operator.name in POINT_WISE and len(shape) == rank + 1 and shape[0] == 1
