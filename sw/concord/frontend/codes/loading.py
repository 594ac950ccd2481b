"""Quantised networks from files of ONNX and of TensorFlow Lite."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from concord.frontend.codes.importer import import_integer_graph
from concord.integer.composing import composed
from concord.integer.graph import IntegerGraph
from concord.integer.network import IntegerNetwork
from concord.integer.pairs import with_pair_tables
from concord.spec.rounding_rules import ROUNDINGS
from concord.utils.foreign import require_tflite, tflite_contents


def _graph_of(model: Any, outputs: Sequence[str] | None, rounding: str | None) -> IntegerGraph:
    """The graph of a TensorFlow Lite file, or of a model in ONNX."""
    data = tflite_contents(model)
    known = ROUNDINGS["onnx" if data is None else "tflite"]
    if rounding is not None and rounding not in known:
        kind = "an ONNX model" if data is None else "a TensorFlow Lite file"
        raise ValueError(f"rounding of {kind} must be {' or '.join(known)}, not {rounding!r}")
    if data is None:
        return import_integer_graph(model, outputs, rounding != "onnx")
    name = Path(model).name if isinstance(model, str | Path) else "model"
    require_tflite(name)
    from concord.frontend.codes.tflite.importer import import_tflite_graph

    return import_tflite_graph(data, name, outputs, single=rounding == "tflite-single")


def load(
    model: str | Path | bytes | Any,
    outputs: Sequence[str] | None = None,
    *,
    compose: bool = True,
    pairs: bool = True,
    rounding: str | None = None,
) -> IntegerNetwork:
    """Load a quantised network.

    Parameters
    ----------
    model : path, bytes or ModelProto
        An ONNX model as of :func:`import_integer_graph`, or a TensorFlow Lite file or its contents.
    outputs : sequence of str, optional
        Tensors of the model at which the network ends; those of the model if it is left out.
    compose : bool
        Make one table of several in a row, and leave out those that change nothing. Results are the same; without it,
        every tensor of codes of the model is computed.
    pairs : bool
        With ``compose``, make tables of operations of two tensors of few bits, too. An NPU has no tables with two
        indices.
    rounding : str, optional
        Rule by which results are rounded, one of those for the kind of file in
        :data:`concord.spec.rounding_rules.ROUNDINGS`; the first one if it is left out.

    Raises
    ------
    UnquantisedModel
        If the model is not on codes alone: every reason.
    ValueError
        If it is no valid model, an output is no tensor of it, the rule is none for the kind of file, or the extra
        ``tflite`` is needed and not installed.
    """
    graph = _graph_of(model, outputs, rounding)
    if compose:
        graph = composed(graph)
    if compose and pairs:
        graph = composed(with_pair_tables(graph))
    return IntegerNetwork.of(graph)
