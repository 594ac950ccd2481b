"""The Python interface of Concord: :func:`concord.compile`, :func:`concord.load` and :func:`concord.connect`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from inspect import Signature, cleandoc, signature
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import numpy as np

from concord.api.compiling import CompileRequest, trained_for
from concord.api.exact import codes_to_compile, compile_exact
from concord.api.network import FlagError, FlagWarning, Network, connect
from concord.api.options import input_ranges
from concord.api.samples import ENOUGH, arrays_for, example_for, read_samples, samples_of_example
from concord.api.targets import Target, compile_for
from concord.frameworks import onnx_bytes
from concord.frontend import import_model
from concord.frontend.selection import Selection
from concord.graph.states import states_of, with_states
from concord.networks.quantised_model import with_pairs
from concord.networks.samples import labels_of, samples_of
from concord.spec.compile_options import CompileOptions
from concord.utils.parallel import Engine

P = ParamSpec("P")
#: Entry in a docstring for the fields of the record.
_FIELDS = "options\n    The fields of :class:`concord.spec.compile_options.CompileOptions`, as keywords."

__all__ = ["FlagError", "FlagWarning", "Network", "compile", "connect", "load"]


def compile_with(
    record: Callable[P, CompileOptions],
) -> Callable[[Callable[[Any, CompileOptions], Network]], Callable[Concatenate[Any, P], Network]]:
    """A decorator that gives a function the fields of a record as keywords, in its signature and its docstring.

    Parameters
    ----------
    record : type
        The record.
    """

    def decorate(function: Callable[[Any, CompileOptions], Network]) -> Callable[Concatenate[Any, P], Network]:
        @wraps(function)
        def compiled(model: Any, *arguments: P.args, **keywords: P.kwargs) -> Network:
            return function(model, record(*arguments, **keywords))

        (model, _), keywords = (signature(item, eval_str=True).parameters.values() for item in (function, record))
        compiled.__signature__ = Signature([model, *keywords], return_annotation=Network)  # type: ignore[attr-defined]
        described = cleandoc(record.__doc__ or "").partition("----------\n")[2].partition("\n\nRaises")[0]
        compiled.__doc__ = cleandoc(function.__doc__ or "").replace(_FIELDS, described)
        return compiled  # type: ignore[return-value]  # which takes the model by its name, too

    return decorate


@compile_with(CompileOptions)
def compile(model: Any, options: CompileOptions) -> Network:  # where modules are imported by name, it hides no builtin
    """Compile a network, as ``concord compile`` does.

    Parameters
    ----------
    model : str, Path, bytes, onnx.ModelProto, or an object of another framework
        The network: an ONNX file, its contents, or what they mean; a module, ``ExportedProgram`` or ``ONNXProgram`` of
        PyTorch; a fitted estimator or pipeline of scikit-learn; a model of Keras (:mod:`concord.frameworks`).
    options
        The fields of :class:`concord.spec.compile_options.CompileOptions`, as keywords.

    Returns
    -------
    Network
        It can be run, and saved to a folder. ``warnings`` has what was assumed or is not exact.

    Raises
    ------
    TypeError
        If the model is none of these: what it is, and how to export it.
    ValueError
        If the model cannot be exported, or an extra is not installed that its exporter needs; if it has something that
        is not supported, with every reason; if it does not fit, with what would help; or if parameters are not possible
        or do not go together.
    """
    options.check_codes()
    target, labels, workers, cluster = Target.of(options), options.labels, options.workers, options.cluster
    selection = Selection(options.shape or {}, options.inputs, options.outputs, options.fix or {})
    if options.exact:
        if not options.names_npu:
            raise ValueError("exact must be given with preset or config: concord.frontend.codes.load needs no NPU")
        codes, data = codes_to_compile(model, selection, options)
        compilation = compile_exact(codes, options)
        return Network(compilation.compiled.package, data, compilation)
    if options.calibrate is None and (labels, workers, cluster) != (None, None, None):
        raise ValueError("labels, workers and cluster must be given with calibrate: they are about its samples")
    calibrate = read_samples(options.calibrate)
    path = Path(model) if isinstance(model, str | Path) else None
    data = onnx_bytes(model, options.example, example_for(model, calibrate))
    data = selection.of(data)
    options.check(calibrate is not None)
    graph = with_states(import_model(data), states_of(options.states))
    names = [name for name in graph.inputs if name not in graph.states]
    samples = None if calibrate is None else samples_of(graph, arrays_for(names, calibrate))
    example = None
    if samples is None and options.example is not None and not options.ranges:
        example = samples_of_example(names, options.example)
        if example is not None and len(next(iter(example.values()))) >= ENOUGH:
            samples, example = example, None
    classes = None
    if samples is not None and labels is not None:
        count = len(next(iter(samples.values())))
        if (classes := labels_of({"y": np.asarray(labels)}, (), count)) is None:
            raise ValueError(f"labels must be integers, one for each of the {count} samples")
    graph, reference = with_pairs(data, graph, samples, input_ranges(options.ranges, graph))
    trained = trained_for(path if selection == Selection() else None, options)
    request = CompileRequest(graph, options, samples, classes, trained, reference, example=example)
    if workers is None and cluster is None:
        compilation = compile_for(request, target)
    else:
        with Engine(workers, cluster) as engine:
            compilation = compile_for(replace(request, engine=engine), target)
    return Network(compilation.compiled.package, data, compilation)


def load(folder: str | Path) -> Network:
    """Read a compiled network.

    Parameters
    ----------
    folder : str or Path
        What ``concord compile`` or :meth:`Network.save` has written.

    Raises
    ------
    ValueError
        If it is no compiled network, or damaged.
    """
    return Network.load(folder)
