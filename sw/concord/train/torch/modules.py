"""Modules that hold integers where those of PyTorch hold floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from concord.graph.ir import Graph, Node
from concord.spec.training import TrainingFormats
from concord.train.layers.base import TrainableLayer
from concord.train.layers.conv import Conv
from concord.train.layers.dense import Dense
from concord.train.layers.normalised import Normalised, norm_of
from concord.train.layers.recurrent import RecurrentLayer
from concord.train.network import TrainableNetwork, without_weights
from concord.train.norm import Norm, Running
from concord.train.parameters import Parameter
from concord.train.tensor import Tensor
from concord.train.torch.blocks import BlockTensor, PendingProduct
from concord.train.torch.functions import sizes
from concord.train.torch.tape import Tape


class Integers(nn.Module):
    """Arrays of integers as buffers: what training changes is what ``state_dict`` has.

    They stay on the CPU, whatever the module around them is moved to.

    Parameters
    ----------
    holder : Parameter or Running
        Whose arrays they are.
    """

    def __init__(self, holder: Parameter | Running):
        super().__init__()
        self.holder = holder
        self.names = ("weight", "acc", "exp") if isinstance(holder, Parameter) else ("mant", "exp")
        for name in self.names:
            self.register_buffer(name, torch.from_numpy(np.array(getattr(holder, name))))
        self._bind()

    def _bind(self) -> None:
        """Let the arrays of the holder be those of the buffers."""
        arrays = [self.get_buffer(name).numpy() for name in self.names]
        if isinstance(self.holder, Parameter):
            self.holder.replace(*arrays)
        else:
            self.holder.mant, self.holder.exp = arrays

    def sync(self) -> None:
        """Take over what the holder has now."""
        for name in self.names:
            self.get_buffer(name).numpy()[...] = getattr(self.holder, name)
        self._bind()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._bind()

    def _apply(self, fn: Any, recurse: bool = True) -> Integers:
        return self

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, metadata: Any, strict: bool, missing: Any, unexpected: Any, errors: Any
    ) -> None:
        for name in self.names:
            stored, own = state_dict.get(prefix + name), self.get_buffer(name)
            if stored is not None and (stored.dtype != own.dtype or stored.shape != own.shape):
                text = f"{stored.dtype} {list(stored.shape)}"
                errors.append(f"{prefix}{name} must be {own.dtype} {list(own.shape)}, not {text}")
                return
        super()._load_from_state_dict(state_dict, prefix, metadata, strict, missing, unexpected, errors)
        self._bind()


def block(x: Any, name: str) -> BlockTensor:
    """Check that ``x`` is a block, and return it; ``TypeError`` if it is none."""
    if not isinstance(x, BlockTensor):
        kind = type(x).__name__
        raise TypeError(f"{name} must be called by the module that was converted, with its blocks, not with {kind}")
    return x


class _Converted(nn.Module):
    """A module with a layer of integer training.

    Parameters
    ----------
    name : str
        Of the module in the converted one.
    """

    def __init__(self, name: str, layer: TrainableLayer):
        super().__init__()
        self.name, self.layer = name, layer
        for key, parameter in layer.parameters.items():
            self.add_module(key, Integers(parameter))


def _layer(node: Node, formats: TrainingFormats) -> TrainableLayer:
    """The layer of a node with weights, as :class:`concord.train.Trainer` has it."""
    return TrainableNetwork(Graph(node.name, [node], ["x"], ["y"], {}), formats).layers[0]


def _numbers(tensor: torch.Tensor | None, count: int = 0) -> Any:
    return np.zeros(count) if tensor is None else tensor.detach().cpu().numpy().astype(np.float64)


def shapes_only(attrs: dict[str, Any], *names: str) -> dict[str, Any]:
    """Attributes with zeros in the place of numbers, that take no memory: only their shapes are read."""
    return {name: np.broadcast_to(np.float64(0), np.shape(attrs[name])) for name in names}


class ProductModule(_Converted):
    """Conv1d, Conv2d, Conv3d or Linear."""

    layer: Conv | Dense

    def __init__(self, name: str, op: str, attrs: dict[str, Any], formats: TrainingFormats, bias: bool):
        layer = _layer(Node(op, name, ("x",), ("y",), attrs), formats)
        assert isinstance(layer, Conv | Dense)
        if not bias:
            layer.bias = None
        super().__init__(name, layer)
        self.op, self.attrs = op, attrs | shapes_only(attrs, "weight", "bias")

    def forward(self, x: Any) -> BlockTensor:
        source = block(x, self.name)
        return BlockTensor.waiting(PendingProduct(self, source))

    def give_bias(self, norm: Norm) -> bool:
        """Let the running mean of a normalisation take the bias over, which is zero from now on."""
        bias, self.layer.bias = self.layer.bias, None
        if bias is None:
            return False
        norm.begin_behind(bias)
        bias.replace(np.zeros_like(bias.weight), np.zeros_like(bias.acc), bias.exp)
        self.get_submodule("bias").sync()
        return True


def convolution(name: str, module: nn.Module, formats: TrainingFormats) -> ProductModule:
    """Conv1d, Conv2d and Conv3d."""
    assert isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d)
    weight = _numbers(module.weight)
    rank = weight.ndim - 2
    if module.padding_mode != "zeros" or isinstance(module.padding, str):
        raise ValueError(f"padding must be numbers, with zeros, not {module.padding!r} with {module.padding_mode}")
    pads = sizes(module.padding, rank)
    attrs = {
        "weight": weight,
        "bias": _numbers(module.bias, len(weight)),
        "group": module.groups,
        "strides": sizes(module.stride, rank),
        "pads": (*pads, *pads),
        "dilations": sizes(module.dilation, rank),
    }
    return ProductModule(name, "Conv", attrs, formats, module.bias is not None)


def linear(name: str, module: nn.Module, formats: TrainingFormats) -> ProductModule:
    """Linear."""
    assert isinstance(module, nn.Linear)
    weight = _numbers(module.weight)
    attrs = {"weight": weight, "bias": _numbers(module.bias, len(weight))}
    return ProductModule(name, "Dense", attrs, formats, module.bias is not None)


class BatchNorm(nn.Module):
    """BatchNorm1d to BatchNorm3d after a convolution or product, with which it becomes one layer."""

    def __init__(self, name: str, norm: Norm):
        super().__init__()
        self.name, self.norm = name, norm
        holders: dict[str, Parameter | Running] = {
            "scale": norm.scale,
            "shift": norm.shift,
            "mean": norm.mean,
            "variance": norm.variance,
        }
        for key, holder in holders.items():
            self.add_module(key, Integers(holder))
        self._layers: dict[str, Normalised] = {}

    def sync(self) -> None:
        """Let the buffers be what the statistics are."""
        for key in ("mean", "variance"):
            self.get_submodule(key).sync()

    def forward(self, x: Any) -> BlockTensor:
        source = block(x, self.name)
        product = source.take()
        if product is None:
            raise ValueError(f"{self.name} must be behind a convolution or Linear whose result nothing else reads")
        module: ProductModule = product.module
        if module.name not in self._layers:
            if self._layers:
                there = [*self._layers, module.name]
                raise ValueError(f"{self.name} must be behind one layer, not behind {' and '.join(there)}")
            if module.layer.weight.blocks.shape[0] != self.norm.scale.count:
                raise ValueError(f"{self.name} must have as many channels as {module.name}")
            if module.give_bias(self.norm):
                self.sync()
            self._layers[module.name] = Normalised(module.layer, self.norm, ("y",))
        if isinstance(module.layer, Dense) and product.source.dim() != 2:
            raise ValueError(f"{self.name} must read [samples, channels] behind {module.name}")
        layer, tape = self._layers[module.name], product.source.tape
        if self.norm.name in tape.context.seen:
            raise ValueError(f"{self.name} must be called once in a pass")
        ((name, tensor),) = tape.run(module.op, module.name, layer, [product.source.made], module.attrs)
        return BlockTensor(tape, name, tensor)


def batch_norm(name: str, module: nn.Module, formats: TrainingFormats) -> BatchNorm:
    """BatchNorm1d to BatchNorm3d."""
    assert isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)
    if not module.affine or not module.track_running_stats or module.momentum is None:
        raise ValueError("affine and track_running_stats must be True, and momentum a number")
    numbers = {
        "scale": _numbers(module.weight),
        "bias": _numbers(module.bias),
        "mean": _numbers(module.running_mean),
        "variance": _numbers(module.running_var),
        "epsilon": module.eps,
        "momentum": 1 - module.momentum,
    }
    return BatchNorm(name, norm_of(Node("BatchNorm", name, ("x",), ("y",), numbers), formats))


class States:
    """The last states of a recurrent module: one for each layer and direction.

    Parameters
    ----------
    tape : Tape
        Of the pass.
    ends : list of (str, Tensor)
        Of each layer, ``[directions, 1, hidden]`` in the graph.
    """

    def __init__(self, tape: Tape, ends: Sequence[tuple[str, Tensor]]):
        self.tape, self.ends = tape, list(ends)

    def __getitem__(self, index: int) -> BlockTensor:
        directions = self.tape.shapes[self.ends[0][0]][0]
        count = len(self.ends) * directions
        if not isinstance(index, int) or not -count <= index < count:
            raise TypeError(f"states must be taken one by one, with a number below {count}, not {index!r}")
        number, d = divmod(index % count, directions)
        taken = moved(self.tape, "Slice", self.ends[number], axes=(0,), starts=(d,), stops=(d + 1,), steps=(1,))
        hidden = self.tape.shapes[taken[0]][-1]
        return BlockTensor(self.tape, *moved(self.tape, "Reshape", taken, shape=(1, hidden)))


def moved(tape: Tape, op: str, made: tuple[str, Tensor], **attrs: Any) -> tuple[str, Tensor]:
    """Elements of a tensor of the graph in another order."""
    stem = op.lower()
    layer = without_weights(Node(op, stem, (made[0],), (stem,), attrs), [tape.shapes[made[0]]])
    return tape.run(op, stem, layer, [made], attrs)[0]


class RecurrentModule(nn.Module):
    """LSTM or GRU: a layer of integer training for each of its layers."""

    def __init__(self, name: str, module: nn.LSTM | nn.GRU, formats: TrainingFormats):
        super().__init__()
        self.name, self.op = name, type(module).__name__
        for number in range(module.num_layers):
            attrs = _recurrent_attrs(module, number)
            node = Node(self.op, f"{name}.{number}", ("x",), ("y", "h"), attrs)
            made = _Converted(node.name, _layer(node, formats))
            layer = made.layer
            assert isinstance(layer, RecurrentLayer)
            layer.node = layer.node.with_attrs(**shapes_only(attrs, "W", "R", "B"))
            self.add_module(str(number), made)

    def forward(self, x: Any, states: None = None) -> tuple[BlockTensor, Any]:
        source = block(x, self.name)
        if states is not None or source.dim() != 3:
            raise ValueError(f"{self.name} must read [samples, steps, features], without initial states")
        tape, made, ends = source.tape, source.made, []
        for module in self.children():
            assert isinstance(module, _Converted)
            steps = moved(tape, "Transpose", made, perm=(1, 0, 2))
            assert isinstance(module.layer, RecurrentLayer)
            node = module.layer.node
            every, end = tape.run(self.op, module.name, module.layer, [steps], node.attrs, 2)
            first = moved(tape, "Transpose", every, perm=(2, 0, 1, 3))
            _, count, directions, hidden = tape.shapes[first[0]]
            made = moved(tape, "Reshape", first, shape=(1, count, directions * hidden))
            ends.append(end)
        last = States(tape, ends)
        return BlockTensor(tape, *made), (last, None) if self.op == "LSTM" else last


#: Gates in the order of ONNX, as those of PyTorch.
_GATES = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}


def _recurrent_attrs(module: nn.LSTM | nn.GRU, number: int) -> dict[str, Any]:
    """Attributes of a layer, with its weights as ONNX has them."""
    op, size = type(module).__name__, module.hidden_size
    ends = [f"l{number}{way}" for way in (("", "_reverse") if module.bidirectional else ("",))]

    def gates(key: str) -> Any:
        matrices = [_numbers(getattr(module, f"{key}_{end}", None), len(_GATES[op]) * size) for end in ends]
        return np.stack([m.reshape(-1, size, *m.shape[1:])[_GATES[op]].reshape(m.shape) for m in matrices])

    names = ("Sigmoid", "Tanh", "Tanh")[: 3 if op == "LSTM" else 2]
    more: dict[str, Any] = {"linear_before_reset": True}
    if op == "LSTM":
        more = {"P": None, "input_forget": False, "initial_c": None}
    return {
        "W": gates("weight_ih"),
        "R": gates("weight_hh"),
        "hidden_size": size,
        "clip": None,
        "initial_h": None,
        "B": np.concatenate([gates("bias_ih"), gates("bias_hh")], axis=1),
        "direction": "bidirectional" if module.bidirectional else "forward",
        "activations": (names,) * len(ends),
        "activation_parameters": (({},) * len(names),) * len(ends),
    } | more


def recurrent(name: str, module: nn.Module, formats: TrainingFormats) -> RecurrentModule:
    """LSTM and GRU."""
    assert isinstance(module, nn.LSTM | nn.GRU)
    if not module.batch_first or module.dropout or getattr(module, "proj_size", 0):
        raise ValueError("batch_first must be True, and dropout and proj_size 0")
    return RecurrentModule(name, module, formats)
