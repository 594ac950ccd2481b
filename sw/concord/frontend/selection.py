"""A part of a model, for inputs of chosen sizes: what a user asks for is made in the ONNX file, before anything else.

So the compiled folder holds the model that was compiled, and everything that reads it sees the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.frontend.load import captured, chosen_shape, input_values, is_fixed, live_order, load
from concord.spec.names import unknown_name
from concord.utils.arrays import Array
from concord.utils.npz import read_npy

_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True)
class Selection:
    """Part of a model that is read.

    Parameters
    ----------
    shapes : mapping of str to int or sequence of int
        The shape of an input by its name, batch axis included, or an open size by its name.
    inputs : sequence of str
        Tensors that become the inputs; what computes them is left out. Empty for the inputs of the model.
    outputs : sequence of str
        Tensors that become the outputs. Empty for the outputs of the model.
    fixed : mapping of str to array
        Values of inputs that become constants. A number stands for an array of it.
    """

    shapes: Mapping[str, int | Sequence[int]] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    outputs: Sequence[str] = ()
    fixed: Mapping[str, npt.ArrayLike] = field(default_factory=dict)

    @classmethod
    def parse(cls, shapes: Sequence[str], inputs: str | None, outputs: str | None, fixed: Sequence[str]) -> Selection:
        """Selection that options of a command line ask for.

        Parameters
        ----------
        shapes : sequence of str
            ``NAME=1,3,64,64`` of an input, or ``NAME=8`` of an open size.
        inputs, outputs : str, optional
            Names with commas in between.
        fixed : sequence of str
            ``NAME=VALUE``: a number, numbers with commas in between, or the name of an npy file.

        Raises
        ------
        ValueError
            For anything else, and for a name that is there twice.
        """
        sizes = {name: _sizes(text, value) for name, value, text in _pairs("shape", "NAME=1,3,64,64", shapes)}
        values = {name: _value(text, value) for name, value, text in _pairs("fix", "NAME=VALUE", fixed)}
        return cls(sizes, _names("inputs", inputs), _names("outputs", outputs), values)

    def of(self, model: bytes) -> bytes:
        """The ONNX file of what is taken; the same bytes if that is everything.

        Raises
        ------
        ValueError
            If the model is not valid ONNX, a name is not in it, a shape or a value does not fit, or something that is
            needed is neither computed nor an input.
        """
        if not (self.shapes or self.inputs or self.outputs or self.fixed):
            return model
        proto = load(model)
        names = [*_tensors(proto)]
        for what, wanted in (("inputs", self.inputs), ("outputs", self.outputs)):
            for name in wanted:
                if name not in names:
                    raise unknown_name(f"tensor of {what}", names, name)
                if wanted.count(name) > 1:
                    raise ValueError(f"{what} must name a tensor once, not {name!r} twice")
        self._settle_sizes(proto)
        if self.inputs or self.outputs:
            self._cut(proto)
        for name, value in self.fixed.items():
            _fix(proto, name, np.asarray(value))
        return bytes(proto.SerializeToString())

    def _settle_sizes(self, proto: Any) -> None:
        """Give open sizes their numbers, wherever they are named."""
        values = {value.name: value for value in input_values(proto)}
        dims = {name: value.type.tensor_type.shape.dim for name, value in values.items()}
        symbols = {dim.dim_param for of_input in dims.values() for dim in of_input if not is_fixed(dim)} - {""}
        sizes: dict[str, int] = {}
        origin: dict[str, str] = {}

        def note(symbol: str, size: int, source: str) -> None:
            if sizes.setdefault(symbol, size) != size:
                raise ValueError(
                    f"shapes must give the size {symbol!r} one number, not {sizes[symbol]} of {origin[symbol]} and "
                    f"{size} of {source}"
                )
            origin.setdefault(symbol, source)

        for name, shape in self.shapes.items():
            whole = [shape] if isinstance(shape, int) else list(shape)
            if name in dims:
                for dim, size in zip(dims[name], chosen_shape(name, whole, dims[name]), strict=True):
                    if not is_fixed(dim) and dim.dim_param:
                        note(dim.dim_param, size, f"input {name!r}")
                    dim.dim_value = size
            elif name in symbols and len(whole) == 1:
                if whole[0] < 1:
                    raise ValueError(f"size {name!r} must be at least 1, not {whole[0]}")
                note(name, whole[0], f"{name!r}")
            elif name not in self.inputs:
                raise unknown_name("name of a shape", [*dims, *sorted(symbols)], name)
        del proto.graph.value_info[:]
        for value in (*proto.graph.input, *proto.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param in sizes:
                    dim.dim_value = sizes[dim.dim_param]

    def _cut(self, proto: Any) -> None:
        """Leave out what the outputs do not need and what the new inputs stand for."""
        import onnx

        known = {value.name: value for value in input_values(proto)}
        if self.inputs or set(self.outputs) - {value.name for value in proto.graph.output}:
            inferred = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph
            known |= {value.name: value for value in (*inferred.output, *inferred.value_info)}
        outputs = [known.get(name) or _tensor(name) for name in self.outputs] or list(proto.graph.output)
        outputs = [_copy(value) for value in outputs]
        inputs = [
            self._new_input(known.get(name), name)
            for name in self.inputs or [item.name for item in input_values(proto)]
        ]
        named = {value.name for value in inputs}
        for node in proto.graph.node:
            for k, name in enumerate(node.output):
                if name in named:
                    node.output[k] = f"{name} before the cut"
        del proto.graph.output[:]
        proto.graph.output.extend(outputs)
        nodes = [proto.graph.node[k] for k in live_order(proto.graph)]
        read = {name for node in nodes for name in (*node.input, *captured(node))} | {item.name for item in outputs}
        if missing := [value.name for value in input_values(proto) if value.name in read - named]:
            raise ValueError(
                f"inputs must include {', '.join(missing)}, which the outputs need: name it, or fix it to a value"
            )
        if idle := [name for name in self.inputs if name not in read]:
            raise ValueError(f"inputs must be needed for the outputs, and {', '.join(idle)} is not")
        weights = [item for item in proto.graph.initializer if item.name in read]
        for items, wanted in (
            (proto.graph.node, nodes),
            (proto.graph.input, [value for value in inputs if value.name in read]),
            (proto.graph.initializer, weights),
        ):
            copies = [_copy(item) for item in wanted]
            del items[:]
            items.extend(copies)

    def _new_input(self, value: Any, name: str) -> Any:
        """An input of this name, with the shape that was chosen for it, or what is known of it."""
        value = _tensor(name) if value is None else _copy(value)
        tensor = value.type.tensor_type
        if name in self.shapes:
            shape = self.shapes[name]
            whole = [shape] if isinstance(shape, int) else list(shape)
            sizes = chosen_shape(name, whole, tensor.shape.dim)
            tensor.ClearField("shape")
            for size in sizes:
                tensor.shape.dim.add().dim_value = size
        elif value.type.HasField("tensor_type") and not tensor.HasField("shape"):
            raise ValueError(f"input {name!r} must have a shape, which the model does not say: --shape {name}=")
        return value


def _pairs(option: str, form: str, texts: Sequence[str]) -> list[tuple[str, str, str]]:
    """Name, value and whole text of every ``NAME=VALUE``."""
    pairs = [(*text.rpartition("=")[::2], text) for text in texts]
    for k, (name, value, text) in enumerate(pairs):
        if not name or not value or name in [before for before, _, _ in pairs[:k]]:
            raise ValueError(f"{option} must be {form}, once for each name, not {text!r}")
    return pairs


def _sizes(text: str, value: str) -> list[int]:
    try:
        return [int(size) for size in value.split(",")]
    except ValueError as error:
        raise ValueError(f"shape must be NAME=1,3,64,64 with whole numbers, not {text!r}") from error


def _value(text: str, value: str) -> Array:
    if value.endswith(".npy"):
        path = Path(value)
        if not path.is_file():
            raise ValueError(f"fix must name an npy file that exists, not {value!r}")
        return read_npy(path)
    parts = [part.strip() for part in value.split(",")]
    try:
        numbers = [_TRUTH[part.lower()] if part.lower() in _TRUTH else _number(part) for part in parts]
    except ValueError as error:
        raise ValueError(f"fix must be NAME=VALUE with numbers or an npy file, not {text!r}") from error
    return np.asarray(numbers[0] if len(numbers) == 1 else numbers)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        return float(text)


def _names(option: str, text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise ValueError(f"{option} must be names with commas in between, not {text!r}")
    return names


def _tensors(proto: Any) -> dict[str, None]:
    """Names of what is computed or an input, in the order of the file."""
    outputs = [name for node in proto.graph.node for name in node.output if name]
    return dict.fromkeys([*(value.name for value in input_values(proto)), *outputs])


def _tensor(name: str) -> Any:
    """A tensor of floats of which nothing is known."""
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info(name, TensorProto.FLOAT, None)


def _copy(message: Any) -> Any:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _fix(proto: Any, name: str, value: Array) -> None:
    """Make an input a constant."""
    from onnx import helper, numpy_helper

    inputs = {item.name: item for item in input_values(proto)}
    if name not in inputs:
        raise unknown_name("fixed input", inputs, name)
    tensor = inputs[name].type.tensor_type
    dims = list(tensor.shape.dim)
    if value.ndim <= 1 and len(dims) != value.ndim:  # a list has no shape yet, a number fills any
        sizes = [dim.dim_value if is_fixed(dim) else 1 for dim in dims]
        if value.ndim == 0:
            value = np.full(sizes, value)
        elif value.size == int(np.prod(sizes)):
            value = value.reshape(sizes)
    chosen_shape(name, value.shape, dims)
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    with np.errstate(over="ignore", invalid="ignore"):
        cast = value.astype(dtype)
    if value.dtype.kind not in "biuf" or (np.dtype(dtype).kind in "biu" and (cast != value).any()):
        raise ValueError(f"fixed value of {name!r} must be numbers of the type {np.dtype(dtype).name}")
    if np.dtype(dtype).kind not in "biu" and not np.isfinite(cast.astype(np.float64)).all():
        raise ValueError(f"fixed value of {name!r} must be finite in {np.dtype(dtype).name}")
    proto.graph.input.remove(inputs[name])
    proto.graph.initializer.append(numpy_helper.from_array(cast, name))
