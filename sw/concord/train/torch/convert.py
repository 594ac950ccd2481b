"""Conversion of a module of PyTorch to one that is trained in integers."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import nn

from concord.functions import trainable
from concord.spec.training import TrainingFormats
from concord.train.network import CannotTrain
from concord.train.tensor import Tensor, quantised, saturations
from concord.train.torch.blocks import BlockTensor
from concord.train.torch.modules import BatchNorm, Integers, batch_norm, convolution, linear, recurrent
from concord.train.torch.tape import Session, Tape

#: Modules with weights, and what takes their place.
CONVERTED: dict[type[nn.Module], Callable[[str, nn.Module, TrainingFormats], nn.Module]] = {
    nn.Conv1d: convolution,
    nn.Conv2d: convolution,
    nn.Conv3d: convolution,
    nn.Linear: linear,
    nn.BatchNorm1d: batch_norm,
    nn.BatchNorm2d: batch_norm,
    nn.BatchNorm3d: batch_norm,
    nn.LSTM: recurrent,
    nn.GRU: recurrent,
}
#: Modules of PyTorch that stay as they are: what they call takes blocks.
KEPT: tuple[type[nn.Module], ...] = (
    nn.ReLU, *(getattr(nn, record.onnx) for record in trainable()), nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d,
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.Softmax, nn.Flatten, nn.Identity, nn.Dropout, nn.Sequential,
    nn.ModuleList, nn.ModuleDict, nn.CrossEntropyLoss, nn.MSELoss,
)  # fmt: skip


class CannotConvert(ValueError):
    """A module with parts that cannot be trained in integers."""


def convert(model: nn.Module, formats: TrainingFormats | None = None, seed: int = 1) -> nn.Module:
    """A copy of a module that computes, and is trained, in block floating point.

    Its weights become integers with lazy accumulators, which begin with the numbers of the module; no float weight is
    left. ``forward`` stays as it is. Call the copy with a tensor ``[samples, ...]``; what it returns is a
    :class:`concord.train.torch.BlockTensor`, of which ``cross_entropy`` and ``mse_loss`` make a loss with
    ``backward()``. :class:`concord.train.torch.SGD` updates it.

    Parameters
    ----------
    model : Module
        Modules with weights must be among :data:`CONVERTED`.
    formats : TrainingFormats, optional
        Widths, blocks and roundings.
    seed : int
        Of noise for stochastic rounding.

    Raises
    ------
    CannotConvert
        With everything that cannot be trained.
    """
    formats = formats or TrainingFormats()
    problems: list[str] = []
    root = _swapped(deepcopy(model), "", formats, problems)
    left = [name for name, _ in root.named_parameters()]
    if not problems and left:
        problems.append(f"parameters {', '.join(left)} of modules of your own")
    if problems:
        names = [kind.__name__ for kind in (*CONVERTED, *KEPT)]
        raise CannotConvert(
            f"modules must be among {', '.join(names)}, and your own without parameters; not so: {'; '.join(problems)}"
        )
    if not any(isinstance(module, Integers) for module in root.modules()):
        raise CannotConvert("module must have weights to train, and has none")
    entrance = _Entrance(Session(formats, seed), root)
    root.register_forward_pre_hook(entrance.enter)
    root.register_forward_hook(entrance.leave)
    object.__setattr__(root, "concord_session", entrance.session)
    return root


def session_of(model: nn.Module) -> Session:
    """Session that :func:`convert` has left; ``TypeError`` if a module is not converted."""
    session = getattr(model, "concord_session", None)
    if not isinstance(session, Session):
        raise TypeError(f"model must be what convert returned, not {type(model).__name__}")
    return session


def _swapped(module: nn.Module, name: str, formats: TrainingFormats, problems: list[str]) -> nn.Module:
    """A module with integers in the place of weights; what cannot be is noted."""
    make = CONVERTED.get(type(module))
    if make is not None:
        try:
            return make(name or "layer", module, formats)
        except (CannotTrain, ValueError) as error:
            problems.append(f"{name or 'the module'} ({type(module).__name__}): {error}")
            return module
    if type(module).__module__.startswith("torch.nn") and not isinstance(module, KEPT):
        problems.append(f"{name or 'the module'} ({type(module).__name__})")
        return module
    for key, child in module.named_children():
        setattr(module, key, _swapped(child, f"{name}.{key}" if name else key, formats, problems))
    return module


class _Entrance:
    """Hooks around the ``forward`` of a converted module."""

    def __init__(self, session: Session, root: nn.Module):
        self.session, self.root = session, root
        self.tape: Tape | None = None

    def enter(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Tensors become blocks of integers, as the batches of :class:`concord.train.Trainer` do."""
        tape = Tape(self.session, module.training)
        self.tape = tape
        return tuple(self._block(tape, x) if isinstance(x, torch.Tensor) else x for x in args)

    def _block(self, tape: Tape, x: torch.Tensor) -> BlockTensor:
        if x.dim() < 2 or not x.shape[0]:
            raise ValueError(f"inputs must be [samples, ...] with at least one sample, not {list(x.shape)}")
        values = x.detach().cpu().numpy().astype("float64")
        fmt = self.session.formats.activation
        with saturations(self.session.counts):
            integers = quantised(values.reshape(-1), fmt)
        mant = integers.mant.reshape(len(values), 1, *values.shape[1:])
        name = tape.name("x")
        tape.shapes[name] = (1, *values.shape[1:])
        return BlockTensor(tape, name, Tensor.of(mant, int(integers.exp), fmt.q_max))

    def leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Running statistics follow the batch."""
        tape, self.tape = self.tape, None
        if tape is not None and tape.training:
            norms = {m.norm.name: m for m in module.modules() if isinstance(m, BatchNorm)}
            for name, statistics in tape.context.seen.items():
                norms[name].norm.follow(statistics)
                norms[name].sync()
