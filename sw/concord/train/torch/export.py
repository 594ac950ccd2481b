"""A converted module as a graph, and as an ONNX file."""

from __future__ import annotations

import torch
from torch import nn

from concord.graph.ir import Graph
from concord.graph.ops import operator_of
from concord.graph.passes import dead
from concord.train.export import export_onnx as write
from concord.train.torch.blocks import BlockTensor
from concord.train.torch.convert import session_of


def graph_of(model: nn.Module, example: torch.Tensor) -> Graph:
    """The layers a converted module passes in evaluation, with the weights that evaluation reads.

    Parameters
    ----------
    model : Module
        From :func:`concord.train.torch.convert`, with one output.
    example : Tensor
        At least one sample ``[samples, ...]``; ``forward`` must not depend on its values.

    Raises
    ------
    ValueError
        If the module does not return one block.
    """
    session_of(model)
    training = model.training
    model.eval()
    try:
        output = model(example[:1])
    finally:
        model.train(training)
    if not isinstance(output, BlockTensor):
        raise ValueError(f"a module must return one block to be exported, not {type(output).__name__}")
    name, _ = output.made
    tape = output.tape
    nodes = []
    for record in tape.records:
        node = record.node
        attributes = record.layer.attributes
        if operator_of(node).affine is not None and "bias" not in attributes:
            attributes["bias"] = attributes["weight"].reshape(len(attributes["weight"]), -1)[:, 0] * 0.0
        if node.op == "LSTM":  # its cell state is not there
            node = node.replace(outputs=(*node.outputs, ""))
        nodes.append(node.with_attrs(**attributes))
    graph = Graph("network", nodes, ["x"], [name], dict(tape.shapes), {"x", name})
    dead.run(graph)
    graph.check()
    return graph


def export_onnx(model: nn.Module, example: torch.Tensor) -> bytes:
    """The bytes of an ONNX file of a converted module, which ``concord compile`` takes (:func:`graph_of`).

    Normalisations are folded; weights are those that evaluation reads, bit for bit.
    """
    return write(graph_of(model, example))
