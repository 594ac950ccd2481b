"""Contents of a TensorFlow Lite file: tensors and operators, read through the schema of the package ``tflite``."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import tflite

from concord.frontend.limits import LARGEST_TENSOR, MOST_NODES

Values = npt.NDArray[Any]
#: The number of SAME in the schema.
_SAME_PADDING = 0

#: Types of elements that tensors may have.
DTYPES: dict[str, type[np.generic]] = {
    "FLOAT32": np.float32, "FLOAT16": np.float16, "INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16,
    "INT32": np.int32, "INT64": np.int64, "BOOL": np.bool_,
}  # fmt: skip
#: Exceptions that reading a damaged file may raise.
DAMAGED = (struct.error, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, MemoryError)


@dataclass(frozen=True)
class FlatTensor:
    """A tensor of the file.

    Parameters
    ----------
    name : str
        As in the file.
    shape : tuple of int
        Its axes; images are ``[batch, height, width, channels]``.
    kind : str
        Type of the elements, as the schema calls it.
    scales, zeros : array
        Of the codes, one or one for each element of an axis; empty if it has none.
    axis : int
        The axis with a scale for each element.
    data : array or None
        What a constant holds, as in the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    scales: npt.NDArray[np.float32]
    zeros: npt.NDArray[np.int64]
    axis: int
    data: Values | None

    @property
    def coded(self) -> bool:
        """True if the elements are codes."""
        return self.kind in ("INT8", "UINT8", "INT16", "INT32", "INT64") and self.scales.size > 0

    @property
    def scheme(self) -> tuple[Any, ...]:
        """Type, scales and zero points."""
        return self.kind, *self.scales.tolist(), *self.zeros.tolist()

    @property
    def real(self) -> Values | None:
        """Values of the codes of a constant; other constants as they are, ``None`` for a tensor that is computed."""
        if self.data is None or not self.coded:
            return None if self.data is None else self.data.astype(np.float32) if self.kind == "FLOAT16" else self.data
        along = [-1 if axis == self.axis and self.scales.size > 1 else 1 for axis in range(max(len(self.shape), 1))]
        return ((self.data - self.zeros.reshape(along)) * self.scales.reshape(along)).astype(np.float32)

    def with_real(self, values: Values) -> FlatTensor:
        """The tensor as a constant of these numbers."""
        return replace(self, data=values.astype(np.float32), kind="FLOAT32", scales=np.zeros(0, np.float32))


@dataclass(frozen=True)
class FlatOperator:
    """An operator: its name in the schema, numbers of its tensors (-1 is none), and its options."""

    name: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Any


class FlatOptions:
    """Options of an operator, read as those of the schema are: ``options.Axis()``.

    Parameters
    ----------
    base : options of the schema, optional
        Of which all others are taken.
    **values
        By their names in the schema.
    """

    def __init__(self, base: Any = None, **values: Any) -> None:
        self._base, self._values = base, values

    def __getattr__(self, name: str) -> Any:
        if name in self._values:
            return lambda: self._values[name]
        return getattr(self._base, name)


@dataclass(frozen=True)
class FlatModel:
    """The network of a file.

    Parameters
    ----------
    tensors : tuple of FlatTensor
    operators : tuple of FlatOperator
        Each after those whose results it reads.
    inputs, outputs : tuple of int
        Numbers of tensors.
    others : tuple of FlatModel
        All networks of the file in their order, which WHILE refers to; empty if there is only this one.
    """

    tensors: tuple[FlatTensor, ...]
    operators: tuple[FlatOperator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    others: tuple[FlatModel, ...] = ()


def read_flat(data: bytes) -> FlatModel:
    """The network in the contents of a TensorFlow Lite file.

    Raises
    ------
    ValueError
        If the file is damaged, or has several networks, sparse tensors or types of elements that are not known.
    """
    try:
        model = tflite.Model.GetRootAsModel(bytearray(data), 0)
        graphs = [model.Subgraphs(k) for k in range(model.SubgraphsLength())]
        sizes = [max(graph.OperatorsLength(), graph.TensorsLength()) for graph in graphs]
        if sum(sizes) <= 8 * MOST_NODES:
            networks = tuple(_network(model, graph) for graph in graphs)
            loops = any(operator.name == "WHILE" for operator in networks[0].operators)
            if len(networks) == 1 or loops:
                return replace(networks[0], others=networks if loops else ())
    except _NotTaken as error:
        raise ValueError(str(error)) from error
    except DAMAGED as error:
        raise ValueError("the TensorFlow Lite model must be whole: it is damaged; copy or export it again") from error
    if sum(sizes) <= 8 * MOST_NODES:
        reason = f"a TensorFlow Lite model must have one network, not {len(sizes)}"
        raise ValueError(f"{reason}, unless WHILE repeats the others; export one signature alone")
    raise ValueError(f"a TensorFlow Lite model must have at most {MOST_NODES:,} operators, not {sum(sizes):,}")


def _network(model: Any, graph: Any) -> FlatModel:
    """One network of a file."""
    tensors = tuple(_tensor(model, graph.Tensors(k)) for k in range(graph.TensorsLength()))
    operators = tuple(_operator(model, graph.Operators(k)) for k in range(graph.OperatorsLength()))
    flat = FlatModel(tensors, operators, _numbers(graph.InputsAsNumpy()), _numbers(graph.OutputsAsNumpy()))
    _check(flat)
    return flat


class _NotTaken(Exception):
    """A whole file with something that is not supported."""


@cache
def _names(enumeration: str) -> dict[int, str]:
    return {value: name for name, value in vars(getattr(tflite, enumeration)).items() if not name.startswith("_")}


def _numbers(values: Any) -> tuple[int, ...]:
    return () if isinstance(values, int) else tuple(int(value) for value in values)


def _tensor(model: Any, tensor: Any) -> FlatTensor:
    name = (tensor.Name() or b"").decode("utf-8", "replace")
    shape, kind = _numbers(tensor.ShapeAsNumpy()), _names("TensorType").get(tensor.Type(), str(tensor.Type()))
    if kind not in DTYPES:
        raise _NotTaken(f"tensor {name!r} must have elements of {', '.join(DTYPES)}, not {kind}")
    if tensor.Sparsity() is not None:
        raise _NotTaken(f"tensor {name!r} must be dense, not sparse; export it without sparsity")
    if int(np.prod(shape, dtype=object)) > LARGEST_TENSOR or min(shape, default=0) < 0:
        raise _NotTaken(f"tensor {name!r} must have at most {LARGEST_TENSOR} elements, not {list(shape)}")
    raw = model.Buffers(tensor.Buffer()).DataAsNumpy()
    data = None if isinstance(raw, int) else np.frombuffer(raw.tobytes(), DTYPES[kind]).reshape(shape)
    codes = tensor.Quantization()
    scales = np.zeros(0, np.float32) if codes is None else _array(codes.ScaleAsNumpy(), np.float32)
    zeros = np.zeros(0, np.int64) if codes is None else _array(codes.ZeroPointAsNumpy(), np.int64)
    axis = 0 if codes is None else int(codes.QuantizedDimension())
    if zeros.size != scales.size:
        zeros = np.zeros(scales.size, np.int64)
    if scales.size > 1 and (axis >= len(shape) or shape[axis] != scales.size):
        raise ValueError("scales must be as many as elements of their axis")
    if data is None and tensor.IsVariable():  # a state, which is 0 at first
        data = np.full(shape, zeros[0] if zeros.size else 0, DTYPES[kind])
    return FlatTensor(name, shape, kind, scales, zeros, axis, data)


def _array(values: Any, dtype: type[np.generic]) -> Values:
    return np.zeros(0, dtype) if isinstance(values, int) else np.array(values, dtype)


def _operator(model: Any, operator: Any) -> FlatOperator:
    code = model.OperatorCodes(operator.OpcodeIndex())
    number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
    name = _names("BuiltinOperator").get(number, str(number))
    if name == "CUSTOM":
        name = f"CUSTOM {(code.CustomCode() or b'').decode('utf-8', 'replace')}"
    kind, table, options = _names("BuiltinOptions").get(operator.BuiltinOptionsType()), operator.BuiltinOptions(), None
    if kind not in (None, "NONE") and table is not None:
        options = getattr(tflite, str(kind))()
        options.Init(table.Bytes, table.Pos)
    return FlatOperator(name, _numbers(operator.InputsAsNumpy()), _numbers(operator.OutputsAsNumpy()), options)


def _check(model: FlatModel) -> None:
    """Numbers of tensors that are there, and a tensor that is computed before it is read."""
    known = {k for k, tensor in enumerate(model.tensors) if tensor.data is not None} | set(model.inputs) | {-1}
    for operator in model.operators:
        if not known.issuperset(operator.inputs) or not all(0 <= k < len(model.tensors) for k in operator.outputs):
            raise ValueError("operators must read what is there")
        if known.intersection(operator.outputs):
            raise ValueError("tensors must be made once")
        known.update(operator.outputs)
    if not known.issuperset(model.outputs) or not all(0 <= k < len(model.tensors) for k in model.inputs):
        raise ValueError("outputs must be there")


def window_pads(
    padding: int, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Elements before an image and after it, along both axes: as many as the size of the result needs."""
    totals = [0, 0]
    if padding == _SAME_PADDING:
        reach = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
        totals = [
            max((-(-size // step) - 1) * step + window - size, 0)
            for size, step, window in zip(sizes, strides, reach, strict=True)
        ]
    return [*(total // 2 for total in totals), *(total - total // 2 for total in totals)]


def operator_pads(
    options: Any, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> list[int]:
    """Elements before an image and after it: the option ``Pads`` of an operator, or what its padding makes."""
    if hasattr(options, "Pads"):
        return list(options.Pads())
    return window_pads(options.Padding(), sizes, kernel, strides, dilations)
