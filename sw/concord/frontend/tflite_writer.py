"""ONNX that is written tensor by tensor, each in the layouts that its readers want, or in that of the file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import TensorProto, helper, numpy_helper

from concord.frontend.context import OnnxNode
from concord.frontend.errors import Refusal
from concord.frontend.tflite_file import FlatModel, FlatOperator, FlatTensor, Values

#: Operator set of what is written: the first with codes of 16 bits.
OPSET = 21
#: Order of axes from ``[batch, height, width, channels]`` to ``[batch, channels, height, width]``, and back.
TO_CHANNELS, TO_ROWS = (0, 3, 1, 2), (0, 2, 3, 1)
#: Place of an axis of the first order in the second one.
CHANNELS_AXIS = (0, 2, 3, 1)


class LayoutWriter:
    """Nodes and constants of an ONNX graph, and the names that tensors of a file have there.

    A tensor of four axes has up to two names: with the channels last, as in the file, and with the channels in front,
    as convolutions of ONNX have them. The other one is made when it is asked for.
    """

    #: Whether tensors stay in the layout of the file, and are the codes themselves.
    of_codes = False

    def __init__(self, model: FlatModel):
        self.tensors = list(model.tensors)
        self.nodes: list[Any] = []
        self.initializers: list[Any] = []
        self.taken: set[str] = set()
        self._rows: dict[int, str] = {}
        self._channels: dict[int, str] = {}

    def fresh(self, name: str) -> str:
        """A name that nothing has."""
        name, count = name or "tensor", 1
        unique = name
        while unique in self.taken:
            unique, count = f"{name}.{count}", count + 1
        self.taken.add(unique)
        return unique

    def constant(self, values: npt.ArrayLike, name: str = "constant") -> str:
        """The name of a constant."""
        unique = self.fresh(name)
        self.initializers.append(numpy_helper.from_array(np.asarray(values, order="C"), unique))
        return unique

    def node(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        """The name of what an operator computes."""
        output = self.fresh(name or op.lower())
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=output, **attributes))
        return output

    def finish(self, name: str, output: str) -> None:
        """Let a tensor be an output, whose name is taken already."""
        self.nodes.append(helper.make_node("Identity", [name], [output], name=output))

    def in_channels(self, index: int) -> bool:
        """True if a tensor is there with the channels in front."""
        return index in self._channels

    def rows(self, index: int) -> str:
        """A tensor as the file has it."""
        if index not in self._rows:
            tensor = self.tensors[index]
            if index in self._channels:
                self._rows[index] = self._moved(self._channels[index], tensor, tensor.shape, TO_ROWS)
            elif tensor.data is not None:
                self._rows[index] = self.weights(index, tuple(range(len(tensor.shape))))
            else:
                raise LookupError(f"tensor {tensor.name!r} must be computed before it is read")
        return self._rows[index]

    def channels(self, index: int) -> str:
        """A tensor of four axes with the channels in front."""
        if index not in self._channels:
            tensor = self.tensors[index]
            if tensor.data is not None:
                self._channels[index] = self.weights(index, TO_CHANNELS)
            else:
                shape = tuple(tensor.shape[axis] for axis in TO_CHANNELS)
                self._channels[index] = self._moved(self.rows(index), tensor, shape, TO_CHANNELS)
        return self._channels[index]

    def _moved(self, name: str, tensor: FlatTensor, shape: Sequence[int], order: Sequence[int]) -> str:
        """A tensor in the other layout; its elements stay where they are if one of the two parts has one element."""
        if tensor.shape[1] * tensor.shape[2] == 1 or tensor.shape[3] == 1:
            return self.reshaped(name, shape)
        return self.node("Transpose", [name], f"{tensor.name} moved", perm=list(order))

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """A tensor with another shape."""
        return self.node("Reshape", [name, self.constant(np.array(shape, np.int64), "shape")])

    def weights(self, index: int, order: Sequence[int]) -> str:
        """A tensor with its axes in another order; constants that are codes stay codes."""
        tensor = self.tensors[index]
        if tensor.data is None:
            return self.node("Transpose", [self.rows(index)], perm=list(order))
        if not tensor.coded or tensor.kind == "INT64":  # DequantizeLinear has no integers of 64 bits
            return self.constant(np.transpose(np.asarray(tensor.real), order), tensor.name)
        if not np.isfinite(tensor.scales).all():
            reason = f"scales of {tensor.name!r} must be finite, not {tensor.scales.max():g}"
            raise Refusal(f"{reason}, as for inputs that are always 0", "convert the network to int8 or to floats")
        codes = self.constant(np.transpose(tensor.data, order), f"{tensor.name} codes")
        operands, attributes = [codes, *self._scale(tensor)], {}
        if tensor.scales.size > 1:
            attributes["axis"] = list(order).index(tensor.axis)
        return self.node("DequantizeLinear", operands, tensor.name, **attributes)

    def _scale(self, tensor: FlatTensor) -> list[str]:
        many = tensor.scales.size > 1
        scale = self.constant(tensor.scales if many else tensor.scales[0], "scale")
        if tensor.kind == "INT32":  # of a bias, which has no zero point
            return [scale]
        zeros = tensor.zeros.astype({"INT8": np.int8, "UINT8": np.uint8, "INT16": np.int16}[tensor.kind])
        return [scale, self.constant(zeros if many else zeros[0], "zero")]

    def put(self, index: int, name: str, channels: bool = False) -> None:
        """Let a tensor be what has been computed; if it holds codes, what its codes mean."""
        tensor = self.tensors[index]
        if tensor.coded and tensor.scales.size == 1 and tensor.kind != "INT32":
            scale = self._scale(tensor)
            codes = self.node("QuantizeLinear", [name, *scale], f"{tensor.name} codes")
            name = self.node("DequantizeLinear", [codes, *scale], tensor.name)
        self.same(index, name, channels)

    def same(self, index: int, name: str, channels: bool = False) -> None:
        """Let a tensor be what has been computed, without rounding it."""
        (self._channels if channels else self._rows)[index] = name

    def model(self, model: FlatModel, inputs: Sequence[str], outputs: Sequence[str]) -> Any:
        """The ``ModelProto``."""

        def info(name: str, index: int) -> Any:
            tensor = self.tensors[index]
            whole = tensor.kind in ("INT32", "INT64") and not tensor.coded and index in model.inputs
            kind = getattr(TensorProto, tensor.kind) if whole else TensorProto.FLOAT
            return helper.make_tensor_value_info(name, kind, tensor.shape)

        graph = helper.make_graph(
            self.nodes, "network",
            [info(name, index) for name, index in zip(inputs, model.inputs, strict=True)],
            [info(name, index) for name, index in zip(outputs, model.outputs, strict=True)],
            self.initializers,
        )  # fmt: skip
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)


class CodeNode(OnnxNode):
    """An operator of a file as a node that reads and makes codes, which its kernel computes."""

    def __init__(self, operator: FlatOperator, names: Sequence[str]):
        self.op = self.label = operator.name
        self.standard, self.attrs = False, {}
        self.inputs = [names[index] if index >= 0 else "" for index in operator.inputs]
        self.outputs = [names[index] for index in operator.outputs]
        self.name = self.outputs[0]
        self.operator, self.kernel, self.options = operator, operator.name, operator.options


class CodeWriter(LayoutWriter):
    """Nodes of ONNX that move codes: every tensor has one name, and the layout of the file.

    Members
    -------
    names : list of str
        Of the tensors of the file, each once.
    constants : dict of str to array
        Constants of the file as it has them, and those of nodes.
    """

    of_codes = True

    def __init__(self, model: FlatModel):
        super().__init__(model)
        self.names = [self.fresh(tensor.name) for tensor in model.tensors]
        self.operator = self.stem = ""
        named = zip(self.names, model.tensors, strict=True)
        self.constants: dict[str, Values] = {name: tensor.data for name, tensor in named if tensor.data is not None}

    def written(self, write: Callable[[LayoutWriter, FlatOperator], None], operator: FlatOperator) -> list[OnnxNode]:
        """The nodes that a function writes of an operator."""
        self.nodes.clear()
        self.operator, self.stem = operator.name, self.names[operator.outputs[0]]
        write(self, operator)
        nodes = [OnnxNode(node) for node in self.nodes]
        for node in nodes:
            node.kernel, node.options, node.name = operator.name, operator.options, self.stem
        return nodes

    def constant(self, values: npt.ArrayLike, name: str = "constant") -> str:
        unique = self.fresh(name)
        self.constants[unique] = np.asarray(values)
        return unique

    def node(self, op: str, inputs: Sequence[str], name: str = "", **attributes: Any) -> str:
        return super().node(op, inputs, name or f"{self.stem}/{op.lower()}", **attributes)

    def rows(self, index: int) -> str:
        return self.names[index]

    channels = rows

    def weights(self, index: int, order: Sequence[int]) -> str:
        """A weight with its axes in another order; ``Refusal`` for codes for which there is no kernel."""
        tensor = self.tensors[index]
        if tensor.data is not None and tensor.scales.size and np.isfinite(tensor.scales).all():
            single, kinds = tensor.scales.size == 1, ("INT8", "UINT8")
            if tensor.kind not in kinds[: 1 + single] or not (tensor.scales > 0).all():
                reason = f"weight must be codes of INT8 with positive scales, or of UINT8 with one, not {tensor.kind}"
                raise Refusal(reason, "quantise it to int8")
            if tensor.zeros.any() and not (single and (tensor.kind == "UINT8" or self.operator == "FULLY_CONNECTED")):
                raise Refusal("weight must have zero points of 0", "quantise it symmetrically")
            if not np.iinfo(tensor.data.dtype).min <= tensor.zeros[0] <= np.iinfo(tensor.data.dtype).max:
                raise Refusal(f"zero point of the weight must be one of its codes, not {tensor.zeros[0]}")
        return super().weights(index, order)

    def reshaped(self, name: str, shape: Sequence[int]) -> str:
        """A tensor with another shape, but for the samples, whose number stays."""
        return super().reshaped(name, (0, *shape[1:]))

    def put(self, index: int, name: str, channels: bool = False) -> None:
        """Let a tensor be what the last node makes."""
        self.nodes[-1].output[0] = self.names[index]

    same = put
