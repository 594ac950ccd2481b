"""Modules and programs of PyTorch, by the exporters that PyTorch has itself."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch

from concord.frameworks.exported import finished, first_line, quiet
from concord.frontend.load import serialized

_NO_EXAMPLE = (
    "example must be what the module is called with, samples along the first axis, not None: "
    "concord.compile(module, example=x)"
)


def exported_torch(model: Any, example: Any = None, samples: Any = None) -> bytes:
    """The contents of an ONNX file of an object of PyTorch.

    Parameters
    ----------
    model : Module, ScriptModule, ExportedProgram or ONNXProgram
        A module is exported in evaluation mode, and has the mode again that it had. One that
        :func:`concord.train.torch.convert` returned has the weights that evaluation reads.
    example : array, tensor, tuple or mapping of these, optional
        For a module: what it is called with, ``[samples, *shape]``; of a mapping what ``forward`` has a parameter for.
        The first sample is taken. The others have shapes of their own.
    samples : array or mapping of arrays, optional
        For a module, if there is no example.

    Raises
    ------
    TypeError
        If it is another object of PyTorch.
    ValueError
        If it cannot be exported.
    """
    if isinstance(model, torch.nn.Module):
        if example is None and samples is None:
            raise ValueError(_NO_EXAMPLE)
        return _of_module(model, samples if example is None else example)
    if example is not None:
        raise ValueError(f"example must be left out: the {type(model).__name__} has its own")
    if isinstance(model, torch.export.ExportedProgram):
        return finished(exported_program(model), f"{_version()}: ExportedProgram, exported as it is")
    return serialized(model)  # an ONNXProgram has a model; of others it says what they are


def call_of(module: Any, example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and named arguments that one sample is to a module: the first one of ``example``."""
    reference = next((p for p in (*module.parameters(), *module.buffers()) if p.is_floating_point()), None)

    def first(values: Any) -> Any:
        tensor = torch.as_tensor(values if isinstance(values, torch.Tensor) else np.asarray(values)).detach()
        if tensor.dim() == 0 or not len(tensor):
            raise ValueError(f"example must have samples along its first axis, not the shape {list(tensor.shape)}")
        tensor = tensor[:1]
        if reference is None:
            return tensor.float() if tensor.dtype == torch.float64 else tensor
        return tensor.to(reference.device, reference.dtype if tensor.is_floating_point() else None)

    if isinstance(example, Mapping):
        parameters = inspect.signature(module.forward).parameters.values()
        names = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
        return (), {name: first(values) for name, values in example.items() if name in names}
    return tuple(map(first, example if isinstance(example, tuple) else (example,))), {}


def _of_module(module: Any, example: Any) -> bytes:
    if hasattr(module, "concord_session"):
        from concord.train.torch import export_onnx

        (sample, *others), named = call_of(module, example)
        if others or named:
            raise ValueError("example must be one array for a converted module")
        return export_onnx(module, sample)
    arguments, named = call_of(module, example)
    kind, trained = type(module).__name__, module.training
    with evaluated(module):
        shapes = [list(values.shape) for values in (*arguments, *named.values())]
        try:
            with torch.no_grad():
                module(*arguments, **named)
        except Exception as error:  # whatever a module of a user raises
            raise ValueError(
                f"example must be what {kind} can be called with, samples along the first axis; "
                f"with the shapes {shapes} it says: {first_line(error)}"
            ) from error
        if find_spec("onnxscript") is None or isinstance(module, torch.jit.ScriptModule):
            proto, exporter = _traced(module, arguments, named), "by tracing"
        else:
            proto, exporter = exported_program(module, arguments, named), "by torch.export"
    mode = "evaluation mode, and put back in training mode" if trained else "evaluation mode"
    return finished(proto, f"{_version()}: {kind}, exported {exporter} in {mode}")


def _version() -> str:
    return f"PyTorch {torch.__version__}"


@contextmanager
def evaluated(module: Any) -> Iterator[None]:
    """A module in evaluation mode; afterwards each of its parts has the mode that it had."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for part, training in modes:
            part.training = training


def exported_program(
    model: Any, arguments: tuple[Any, ...] = (), named: Mapping[str, Any] | None = None, names: Sequence[str] = ()
) -> Any:
    """The ``ModelProto`` that the exporter on :mod:`torch.export` makes; ``names`` are those of the inputs, if given.

    Raises
    ------
    ValueError
        If it cannot be exported, or the package onnxscript is not there.
    """
    if find_spec("onnxscript") is None:
        raise ValueError(
            f"the exporter for {type(model).__name__} needs the package onnxscript: pip install 'concord-npu[torch]'"
        )
    try:
        with quiet():
            program = torch.onnx.export(
                model,
                arguments,
                kwargs=dict(named) if named else None,
                input_names=list(names) or None,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
        return program.model_proto
    except Exception as error:  # the exporter has many, of several packages
        cause = error.__cause__ or error
        raise ValueError(
            f"{type(model).__name__} cannot be exported by torch.onnx.export: {first_line(cause)}; export it yourself, "
            "and give the file, the ExportedProgram or the ONNXProgram"
        ) from error


def _traced(module: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The ``ModelProto`` of the exporter of TorchScript, which needs no other package."""
    import onnx

    names = [] if isinstance(module, torch.jit.ScriptModule) else _parameter_names(module, len(arguments), named)
    buffer = io.BytesIO()
    try:
        with quiet(), torch.no_grad():
            torch.onnx.export(module, arguments, buffer, kwargs=named or None, dynamo=False, input_names=names or None)
    except Exception as error:
        raise ValueError(
            f"{type(module).__name__} cannot be exported by tracing: {first_line(error)}; with the package onnxscript "
            "(pip install 'concord-npu[torch]') the exporter on torch.export takes more"
        ) from error
    return onnx.load_model_from_string(buffer.getvalue())


def _parameter_names(module: Any, count: int, named: dict[str, Any]) -> list[str]:
    """Names of the arguments of ``forward``; empty if it has no names for them."""
    parameters = list(inspect.signature(module.forward).parameters.values())
    if named:
        return [p.name for p in parameters if p.name in named]
    names = [p.name for p in parameters if p.kind == p.POSITIONAL_OR_KEYWORD][:count]
    return names if len(names) == count else []
