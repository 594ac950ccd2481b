"""SGD with lazy update, as an optimiser of PyTorch."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from concord.spec.training import TRAIN_EXP_MAX
from concord.train.optimiser import Optimiser
from concord.train.parameters import Parameter, UpdateCounts
from concord.train.settings import exact
from concord.train.tensor import Dyadic, added, saturations
from concord.train.torch.convert import session_of
from concord.train.torch.modules import Integers


class SGD(torch.optim.Optimizer):
    """The rules of :class:`concord.train.optimiser.Optimiser` for a converted module; schedulers of PyTorch set ``lr``.

    Parameters
    ----------
    model : Module
        From :func:`concord.train.torch.convert`.
    lr, momentum, weight_decay : float
        Numbers as they are written: 0.1 is a tenth, rounded to 16 bits where it is used. Decay is of weights, not of
        biases and normalisations.

    Attributes
    ----------
    counts : UpdateCounts
        What the updates have come to so far: refused, vanished, grown; and how many numbers have saturated, in passes
        of the module as well. The first of these give a ``RuntimeWarning``.
    """

    def __init__(self, model: nn.Module, lr: float, momentum: float = 0.0, weight_decay: float = 0.0):
        if not lr > 0 or not 0 <= momentum < 1 or not 0 <= weight_decay < 1:
            values = f"{lr!r}, {momentum!r} and {weight_decay!r}"
            raise ValueError(f"lr must be above 0, momentum and weight_decay from 0 to below 1, not {values}")
        self.session = session_of(model)
        self.session.counts = self.counts = UpdateCounts()
        self._warned = False
        self._integers = {
            id(m.holder): m for m in model.modules() if isinstance(m, Integers) and isinstance(m.holder, Parameter)
        }
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": 0}
        super().__init__([m.get_buffer("weight") for m in self._integers.values()], defaults)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self.session.gradients.clear()

    def step(self, closure: Callable[[], Any] | None = None) -> None:
        """Update every parameter that has a gradient, by lazy update."""
        if closure is not None:
            raise ValueError("closure must be None; call the module, backward and step by themselves")
        (group,) = self.param_groups
        rate = Dyadic.nearest(exact(group["lr"])).value
        if not rate > 0:
            raise ValueError(f"lr must be above 0, not {group['lr']!r}")
        rule = Optimiser(Dyadic.nearest(exact(group["momentum"])), exact(group["weight_decay"]))
        formats = self.session.formats
        for key, (parameter, gradients) in self.session.gradients.items():
            with saturations(self.counts):
                gradient = added(gradients.parts, formats.intermediate)
                self.counts.add(rule.step(parameter, gradient, gradients.samples, rate, formats, self.session.noise))
            self._integers[key].sync()
        if self.counts.saturated and not self._warned:
            self._warned = True
            warnings.warn(
                f"{self.counts.saturated:,} numbers needed an exponent above {TRAIN_EXP_MAX} and were cut off "
                "(saturated): what is trained from here on is wrong; smaller inputs, or a smaller lr, keep them",
                RuntimeWarning,
                stacklevel=2,
            )
        group["steps"] += 1
        self.session.end_step(group["steps"])

    def state_dict(self) -> dict[str, Any]:
        """Rates, the number of steps, and momentum as integers and exponents."""
        self.state.clear()
        for module in self._integers.values():
            parameter = module.holder
            assert isinstance(parameter, Parameter)
            if parameter.velocity is not None:
                velocity = torch.from_numpy(parameter.velocity.copy())
                self.state[module.get_buffer("weight")] = {"velocity": velocity, "velocity_exp": parameter.velocity_exp}
        state: dict[str, Any] = super().state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what :meth:`state_dict` has given."""
        super().load_state_dict(state_dict)
        for module in self._integers.values():
            parameter = module.holder
            assert isinstance(parameter, Parameter)
            state = self.state.get(module.get_buffer("weight"))
            parameter.velocity, parameter.velocity_exp = None, 0
            if state:
                velocity = state["velocity"]
                if velocity.dtype != torch.int32 or tuple(velocity.shape) != parameter.blocks.shape:
                    raise ValueError(
                        f"velocity of {parameter.name} must be int32 {list(parameter.blocks.shape)}, not "
                        f"{velocity.dtype} {list(velocity.shape)}"
                    )
                parameter.velocity, parameter.velocity_exp = velocity.numpy().copy(), int(state["velocity_exp"])
        self.session.end_step(self.param_groups[0]["steps"])
