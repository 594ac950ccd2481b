"""Modules of PyTorch that are trained in block floating point with lazy update [lazy-update].

The module stays the user's: :func:`convert` puts integers in the place of its weights, and its ``forward`` computes on
blocks of integers. Bits are those of :class:`concord.train.Trainer`. Needs the extra ``torch``.
"""

from concord.train.torch.blocks import BlockTensor
from concord.train.torch.convert import CannotConvert, convert
from concord.train.torch.export import export_onnx, graph_of
from concord.train.torch.optimiser import SGD

__all__ = ["SGD", "BlockTensor", "CannotConvert", "convert", "export_onnx", "graph_of"]
