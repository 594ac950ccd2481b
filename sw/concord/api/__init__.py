"""The Python interface of Concord: :func:`concord.compile`, :func:`concord.load` and :func:`concord.connect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord.api.compiling import CompileRequest, trained_for
from concord.api.network import FlagError, FlagWarning, Network, connect
from concord.api.options import Options, Widths
from concord.api.targets import Target, compile_for
from concord.frameworks import onnx_bytes
from concord.frontend import import_model
from concord.frontend.selection import Selection
from concord.graph.states import with_states
from concord.networks.quantised_model import with_pairs
from concord.networks.samples import as_arrays, labels_of, samples_of
from concord.spec.config import NpuConfig
from concord.utils.parallel import Engine

__all__ = ["FlagError", "FlagWarning", "Network", "compile", "connect", "load"]


def compile(  # it does not hide the builtin where modules are imported by name, as here
    model: str | Path | bytes | Any,
    *,
    example: Any = None,
    board: str | None = None,
    preset: str | None = None,
    config: NpuConfig | str | Path | None = None,
    link: str | None = None,
    calibrate: Mapping[str, npt.ArrayLike] | npt.ArrayLike | None = None,
    labels: npt.ArrayLike | None = None,
    mantissa: int | str | Mapping[str, int] | None = None,
    budget: str | None = None,
    input_range: Mapping[str, tuple[float, float]] | tuple[float, float] | None = None,
    accumulator: str | int | None = None,
    guard: int | None = None,
    batch: int = 1,
    output_format: str | Mapping[str, str] | None = None,
    quick: bool = False,
    partition: str = "ends",
    states: Mapping[str, str] | None = None,
    shape: Mapping[str, int | Sequence[int]] | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    fix: Mapping[str, npt.ArrayLike] | None = None,
    workers: int | None = None,
    cluster: str | None = None,
) -> Network:
    """Compile a network, as ``concord compile`` does.

    Parameters
    ----------
    model : str, Path, bytes, onnx.ModelProto, or an object of another framework
        The network: an ONNX file, its contents, or what they mean; a module, ``ExportedProgram`` or ``ONNXProgram`` of
        PyTorch; a fitted estimator or pipeline of scikit-learn; a model of Keras (:mod:`concord.frameworks`).
    example : array, tuple of arrays, or mapping of str to array, optional
        What a module of PyTorch is called with, ``[samples, *shape]`` by input; by default ``calibrate``. The module is
        exported with the first sample, in evaluation mode, and has the mode again that it had.
    board : str, optional
        For this board, such as ``"ulx3s-85f"``: for the preset with which a user gets most samples per second over its
        link, of those that take the network. ``preset_text`` of the result says which one and why. Without any of the
        three it is the board ``"ulx3s-85f"``.
    preset : str, optional
        For the NPU with this name, such as ``"ecp5-25f"``; with ``board`` it must be one of its presets.
    config : NpuConfig, str or Path, optional
        For this NPU, or the one of this file (:func:`concord.spec.config_file.read_config`); ``warnings`` of the result
        say if its board, or ``board``, has too little for it.
    link : str, optional
        What carries bytes between host and board, such as ``"uart"``; by default the board's first one.
    calibrate : mapping of str to array, or array, optional
        Samples by input, ``[samples, *shape]``; the array alone if there is one input. Formats are chosen by what they
        do to these samples. Without them exponents are dynamic, and tables cover what is to be expected.
    labels : array of int, optional
        A class for every sample: with them ``mantissa="auto"`` keeps a budget of accuracy.
    mantissa : int, str or mapping of str to int, optional
        Bits of the mantissas of the NPU; ``"auto"`` for the least memory within the budget; or bits of the weights of
        some layers by name. Texts and lists of texts are those of ``--mantissa``.
    budget : str, optional
        For ``"auto"``: points of accuracy or agreement that may be lost, ``"0.5"``, or a relative error, ``"5%"``.
    input_range : pair of float, or mapping of str to pair, optional
        Least and greatest value of the input, or of inputs by name, where there are no samples.
    accumulator : str or int, optional
        ``"full"``: no sum can leave it, the default. ``"auto"``: as many bits as the network needs. Or so many bits.
    guard : int, optional
        For ``"auto"``: bits above what the samples need.
    batch : int
        Samples per run, for networks of products and element-wise operations.
    output_format : str or mapping of str to str, optional
        ``"binary16"`` or ``"narrow"`` for all outputs, or for outputs by name.
    quick : bool
        Take from the samples what they say without a search: nothing is compared. It takes a fraction of the time, and
        leaves more error. ``evidence`` says what was left out.
    partition : str
        What the host may compute of the network: ``"none"``; ``"ends"``, what has no product in front of it or none
        behind it, such as an embedding of whole numbers or the place of the greatest result; or ``"any"``, then also
        what the NPU does not take of a network that it refuses as a whole.
    states : mapping of str to str, optional
        Inputs that the NPU keeps between runs, and the output of a run that each of them is in the next one: the state
        of a recurrent cell, or the keys and values of a decoder. They begin with zeros.
    shape : mapping of str to int or sequence of int, optional
        Sizes of inputs by name, batch axis included, or of open dimensions by their names.
    inputs, outputs : sequence of str
        Tensors of the model that become its inputs or outputs: only the part in between is compiled.
    fix : mapping of str to array, optional
        Values of inputs that become constants; a number stands for an array of it.
    workers : int, optional
        Processes that share the samples; the result does not depend on them.
    cluster : str, optional
        Address of a Dask cluster that does so instead.

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
    target = Target.of(board, preset, config, link)
    if calibrate is None and (labels, workers, cluster) != (None, None, None):
        raise ValueError("labels, workers and cluster must be given with calibrate: they are about its samples")
    calibrate = as_arrays(calibrate)
    path, data = Path(model) if isinstance(model, str | Path) else None, onnx_bytes(model, example, calibrate)
    selection = Selection(shape or {}, inputs, outputs, fix or {})
    data = selection.of(data)
    options = Options(
        _widths(mantissa), budget, board is None and config is None, _ranges(input_range), accumulator, guard, batch,
        [output_format] if isinstance(output_format, str) else
        [f"{name}={kind}" for name, kind in (output_format or {}).items()], quick, partition,
    )  # fmt: skip
    options.check(calibrate is not None)
    graph = with_states(import_model(data), states or {})
    samples = None if calibrate is None else samples_of(graph, calibrate)
    classes = None
    if samples is not None and labels is not None:
        count = len(next(iter(samples.values())))
        if (classes := labels_of({"y": np.asarray(labels)}, (), count)) is None:
            raise ValueError(f"labels must be integers, one for each of the {count} samples")
    graph, reference = with_pairs(data, graph, samples, options.input_ranges(graph))
    trained = trained_for(path if selection == Selection() else None, options)
    request = CompileRequest(graph, options, samples, classes, trained, reference)
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


def _widths(mantissa: int | str | Sequence[str] | Mapping[str, int] | None) -> Widths:
    if mantissa is None:
        return Widths()
    if isinstance(mantissa, Mapping):
        return Widths(layers=dict(mantissa))
    return Widths.parse([str(mantissa)] if isinstance(mantissa, int | str) else list(mantissa))


def _ranges(
    ranges: Mapping[str, tuple[float, float]] | tuple[float, float] | None,
) -> Sequence[str] | Mapping[str, tuple[float, float]]:
    if ranges is None:
        return ()
    return ranges if isinstance(ranges, Mapping) else [f"{ranges[0]!r},{ranges[1]!r}"]
