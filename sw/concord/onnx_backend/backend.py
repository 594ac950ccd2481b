"""The backend interface of ONNX (``onnx.backend.base``)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any
from unittest import SkipTest

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from concord.api.network import Network
from concord.compiler.calibration.calibration import function_ranges
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.lowered import Unsupported
from concord.compiler.model import compile_graph
from concord.frontend import UnsupportedModel, import_model
from concord.frontend.load import load
from concord.graph import execute
from concord.host import Device
from concord.onnx_backend.values import as_written, inputs_of, named, with_shapes
from concord.program.allocator import CapacityError
from concord.spec.config import NpuConfig
from concord.spec.presets import ECP5_85F
from concord.utils.arrays import Array

#: The arithmetic of ``ecp5-85f`` with memories for all that instructions can address: what is prepared without another.
BACKEND_NPU = ECP5_85F.replace(narrow_depth=16384, wide_depth=16384, matrix_depth=16384, program_depth=4096)
_Arrays = dict[str, Array]


class NotForBackend(UnsupportedModel, SkipTest):
    """The model cannot be compiled; ONNX's tests are skipped with the reasons."""


class PreparedModel(BackendRep):
    """A model that runs again and again.

    It is compiled when it is run, for the shapes of the inputs, and again if they change. Inputs that must be constant
    in a network, such as weights, axes and bounds, are made constants with the values that they have: as few as
    possible. Tables cover the values of the first run.

    Parameters
    ----------
    model : ModelProto
        The model.
    config : NpuConfig
        What it is compiled for.
    on : str or Device
        Where it runs, as for :meth:`concord.Network.run`.
    """

    def __init__(self, model: Any, config: NpuConfig, on: str | Device = "emulator"):
        self.model, self.config, self.on = model, config, on
        self._ready: _Specialised | None = None

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Outputs in the order of the model, with the types that it has for them.

        Parameters
        ----------
        inputs : sequence of array, mapping of str to array, or array
            In the order of the model, or by name.
        kwargs
            None is known.

        Raises
        ------
        NotForBackend
            If the model cannot be compiled: every reason.
        ValueError
            If inputs are missing.
        """
        values = inputs_of(self.model)
        if others := [item for item in values if not item.type.HasField("tensor_type")]:
            kinds = [f"input {item.name!r}: must be a tensor, not a {item.type.WhichOneof('value')}" for item in others]
            raise NotForBackend(self.model.graph.name, kinds)
        arrays = {name: np.asarray(x) for name, x in named([item.name for item in values], inputs).items()}
        if self._ready is None or not self._ready.fits(arrays):
            self._ready = _specialised(self.model, arrays, self.config)
        results = self._ready.run(arrays, self.on)
        return namedtupledict("Outputs", list(results))(*results.values())


class _Specialised:
    """A compiled network for inputs of these shapes, with constants of these values."""

    def __init__(self, proto: Any, network: Network, arrays: _Arrays):
        self.proto, self.network = with_shapes(proto), network
        self.shapes = {name: values.shape for name, values in arrays.items()}
        self.constants = {name: values for name, values in arrays.items() if name not in network.inputs}

    def fits(self, arrays: _Arrays) -> bool:
        return {name: values.shape for name, values in arrays.items()} == self.shapes and all(
            np.array_equal(arrays[name], values) for name, values in self.constants.items()
        )

    def run(self, arrays: _Arrays, on: str | Device) -> dict[str, Any]:
        x = {name: floats(arrays[name]).reshape(1, *shape) for name, shape in self.network.inputs.items()}
        results = self.network.run(x, on)
        return {item.name: as_written(item, results[item.name][0]) for item in self.proto.graph.output}


def floats(values: Array) -> Array:
    """Numbers in bfloat16, which NumPy has not, as float32; others as they are."""
    return values if values.dtype.kind == "f" else values.astype(np.float32)


def _is_float(values: Array) -> bool:
    return values.dtype.kind == "f" or values.dtype.name == "bfloat16"


def _with_constants(model: Any, arrays: _Arrays, kept: tuple[str, ...]) -> Any:
    """The model for inputs of these shapes, with all of them constant but those that are kept."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    for item in inputs_of(proto):
        shape, values = item.type.tensor_type.shape, arrays[item.name]
        if len(shape.dim) not in (0, values.ndim):
            raise ValueError(f"input {item.name!r} must have {len(shape.dim)} axes, not {values.ndim}")
        del shape.dim[:]
        shape.SetInParent()
        for size in values.shape:
            shape.dim.add(dim_value=size)
    proto.graph.initializer.extend(
        numpy_helper.from_array(values, name) for name, values in arrays.items() if name not in kept
    )
    return proto


def _specialised(model: Any, arrays: _Arrays, config: NpuConfig) -> _Specialised:
    """The model compiled for inputs like these, with as few of them made constants as possible; one is computed."""
    computed = [name for name, values in arrays.items() if _is_float(values)]
    refusals: dict[tuple[str, ...], ValueError] = {}
    for kept in (names for count in range(len(computed), 0, -1) for names in combinations(computed, count)):
        proto = _with_constants(model, arrays, kept)
        try:
            graph = import_model(proto)
            x = {name: floats(arrays[name]).reshape(1, *graph.sample_shape(name)) for name in graph.inputs}
            formats = Formats(ranges=function_ranges(graph, execute.run(graph, x, keep="all")))
            compiled = compile_graph(graph, config, formats)
        except (UnsupportedModel, Unsupported, CapacityError) as error:
            refusals[kept] = error
            continue
        return _Specialised(proto, Network(compiled.package, proto.SerializeToString()), arrays)
    # The compiler speaks of a model that the frontend takes; the frontend of what is left with most constants.
    of_compiler = [refusal for refusal in refusals.values() if not isinstance(refusal, UnsupportedModel)]
    cause = of_compiler[0] if of_compiler else refusals.get(tuple(computed[:1]))
    reasons = getattr(cause, "reasons", [str(cause)] if cause else ["inputs: at least one must be a tensor of floats"])
    raise NotForBackend(model.graph.name, reasons) from cause


class ConcordBackend(Backend):
    """Concord as a backend of ONNX: models run on the emulator, with the bits of the NPU."""

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True if ``device`` is ``"CPU"``, where the emulator runs; ``on`` of :meth:`prepare` names others."""
        return device.partition(":")[0] == "CPU"

    @classmethod
    def is_compatible(cls, model: Any, device: str = "CPU", **kwargs: Any) -> bool:
        """True if the frontend takes a model as it stands.

        One whose weights or axes are inputs may run nevertheless: they are made constants.
        """
        try:
            import_model(model)
        except ValueError:
            return False
        return cls.supports_device(device)

    @classmethod
    def prepare(
        cls,
        model: Any,
        device: str = "CPU",
        *,
        config: NpuConfig | None = None,
        on: str | Device = "emulator",
        **kwargs: Any,
    ) -> PreparedModel:
        """A model that can be run.

        Parameters
        ----------
        model : ModelProto
            The model.
        device : str
            ``"CPU"``.
        config : NpuConfig, optional
            What to compile for, by default :data:`BACKEND_NPU`.
        on : str or Device
            Where it runs, as for :meth:`concord.Network.run`.
        kwargs
            Of other backends; they are not used.

        Raises
        ------
        ValueError
            If the device is another one.
        NotForBackend
            If the model is not valid, or older than the frontend takes it.
        """
        if not cls.supports_device(device):
            raise ValueError(f"device must be CPU, not {device!r}; on='rtl' or a serial port are for prepare(..., on=)")
        try:
            checked = load(model)
        except ValueError as error:
            raise NotForBackend(model.graph.name, [str(error)]) from error
        return PreparedModel(checked, config or BACKEND_NPU, on)

    @classmethod
    def run_node(
        cls,
        node: Any,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Outputs of one operator.

        Parameters
        ----------
        node : NodeProto
            The operator.
        inputs : sequence of array, mapping of str to array, or array
            Of the operands that it has.
        outputs_info : sequence of tuple, optional
            Types and shapes of the outputs.
        kwargs
            ``opset_version``, and options of :meth:`prepare`.
        """
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        arrays = {name: np.asarray(v) for name, v in named([name for name in node.input if name], inputs).items()}
        types: list[tuple[Any, Any]] = [
            (helper.np_dtype_to_tensor_dtype(np.dtype(kind)), shape) for kind, shape in outputs_info or ()
        ]
        types = types or [(onnx.TensorProto.FLOAT, None)] * len(node.output)
        graph = helper.make_graph(
            [node],
            node.op_type,
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
                for name, v in arrays.items()
            ],
            [helper.make_tensor_value_info(name, *of) for name, of in zip(node.output, types, strict=False) if name],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, version)])
        return cls.prepare(model, device, **kwargs).run(arrays)
