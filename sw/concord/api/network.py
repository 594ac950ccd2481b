"""A compiled network for Python programs: it runs on a device, describes itself, and is saved to a folder."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from concord import host
from concord.api.compiling import Compilation
from concord.api.samples import call_inputs
from concord.api.summary import Summary, summary
from concord.compiler.emission.package import Package
from concord.compiler.ir.expected_error import ExpectedError
from concord.compiler.ir.input_record import InputRecord
from concord.frameworks import source_of
from concord.host import Device
from concord.host.rates import Rates, rates
from concord.image import Image
from concord.networks.folder import NETWORK_FOLDER, package_of, save_package
from concord.networks.host_share import share_warnings
from concord.networks.samples import arrays_by_name, inputs_of
from concord.program.flags import FlagDiagnostic, not_finite
from concord.spec.blocks import shortages
from concord.spec.config import NpuConfig
from concord.spec.stored import MODEL, TFLITE
from concord.utils.arrays import Array


class FlagWarning(UserWarning):
    """Inputs are unlike what a network was compiled for, or values were cut off or overflowed: results may be wrong."""


class FlagError(RuntimeError):
    """Flags of a run as an error; ``flags`` has the records."""

    def __init__(self, flags: list[FlagDiagnostic]):
        self.flags = flags
        super().__init__(_text(flags))


class Network:
    """A compiled network.

    Made by :func:`concord.compile` and :func:`concord.load`.

    Members
    -------
    package : Package
        Image, arrangement of inputs and outputs, and what the host computes.
    model : bytes
        The model that it was compiled from, of ONNX or of TensorFlow Lite; empty of a network on codes in a folder that
        was written before folders of these had it.
    compilation : Compilation or None
        How it was compiled; ``None`` if it was loaded.
    """

    def __init__(self, package: Package, model: bytes, compilation: Compilation | None = None):
        self.package, self.model, self.compilation = package, model, compilation

    def __repr__(self) -> str:
        shapes = [f"{name} {list(shape)}" for name, shape in {**self.inputs, **self.outputs}.items()]
        return f"<Network for {self.config.name}: {', '.join(shapes)}>"

    @property
    def image(self) -> Image:
        """Program and constants."""
        return self.package.image

    @property
    def config(self) -> NpuConfig:
        """The NPU that it was compiled for."""
        return self.package.config

    @property
    def inputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of one sample of every input."""
        return self.package.input_shapes

    @property
    def outputs(self) -> dict[str, tuple[int, ...]]:
        """Shape of one sample of every result."""
        return self.package.output_shapes

    @property
    def warnings(self) -> list[str]:
        """Doubts about the results: assumptions, codes that are not exact, flags of samples.

        An expected error above 5 %, with what it is from. A share of the NPU below a tenth. And what the board of the
        configuration lacks for it.
        """
        if self.compilation is not None:
            compiled = self.compilation.compiled
            warnings = [*share_warnings(compiled), *compiled.warnings]
        else:
            warnings = self.package.warnings
        return [*warnings, *shortages(self.config)]

    @property
    def preset_text(self) -> str:
        """The preset of the board that was taken, and the reason; empty if it was named or the network was loaded."""
        return "" if self.compilation is None else self.compilation.preset

    @property
    def expected_error(self) -> ExpectedError | None:
        """Errors of the result and of the layers against double precision, measured when it was compiled.

        On the samples of the calibration, or on synthetic ones that are like what was assumed of the inputs.
        """
        return self.package.expected_error

    @property
    def input_records(self) -> Mapping[str, InputRecord]:
        """Records of the inputs, with which :meth:`run` compares them."""
        return self.package.input_records

    @property
    def source(self) -> str:
        """Origin of the model: its framework and how it was exported, or who wrote the ONNX file."""
        return source_of(self.model)

    def report(self) -> str:
        """The network at a glance, as text: NPU, layers, weights, cycles, rates, copies, warnings.

        ``concord report`` and :func:`concord.report.analyse` have errors and cycles of every layer.
        """
        return self._summary.text

    def _repr_html_(self) -> str:
        """The network at a glance as HTML, for notebooks."""
        return self._summary.html

    @property
    def _summary(self) -> Summary:
        lowered = None if self.compilation is None else self.compilation.compiled.lowered
        return summary(
            self.image,
            (self.inputs, self.outputs),
            self.source,
            self.rates,
            self.warnings,
            self.package.host_graph,
            lowered,
        )

    @property
    def evidence(self) -> str:
        """Evidence for the formats and the accumulator, as tables of text; empty without samples."""
        from rich.console import Console

        if self.compilation is None:
            return ""
        console = Console(width=120, markup=False)
        with console.capture() as captured:
            for chosen in (self.compilation.formats, self.compilation.mantissas):
                if chosen is not None:
                    console.print(chosen.table())
            for line in self.compilation.accumulator:
                console.print(line, soft_wrap=True)
        return captured.get()

    @cached_property
    def rates(self) -> Rates:
        """Cycles, bytes and samples per second on the board."""
        return rates(self.image, self.package.arrangement.batch)

    def __call__(
        self,
        *inputs: Mapping[str, npt.ArrayLike] | npt.ArrayLike,
        on: str | Device = "emulator",
        strict: bool = False,
    ) -> Any:
        """Results as a module has them: the array alone if there is one output, else arrays by name.

        Parameters
        ----------
        inputs : arrays, or a mapping of str to array
            One array for each input, in the order of :attr:`inputs`, or all of them by name: a batch ``[samples,
            *shape]``, or one sample ``shape``, whose results have no axis of samples. Tensors of PyTorch will do.
        on, strict
            As for :meth:`run`, with its errors.

        Returns
        -------
        array, or dict of str to array
            ``[samples, *shape]``, or ``shape`` of one sample.

        Raises
        ------
        TypeError
            If a target or a device has no name in the call, or the inputs are a loader of batches.
        ValueError
            If there are not as many arrays as inputs.
        """
        if any(isinstance(item, str | Device) for item in inputs):
            raise TypeError("on must be given by its name, as in network(x, on=device): what has no name is an input")
        names = list(self.inputs)
        named = arrays_by_name(names, call_inputs(names, inputs[0] if len(inputs) == 1 else inputs))
        single = {name for name, shape in self.inputs.items() if np.shape(named[name]) == shape}
        if single and len(single) < len(self.inputs):
            others = sorted(set(self.inputs) - single)
            raise ValueError(f"inputs must all be one sample or all be batches, not {sorted(single)} and {others}")
        batch = {name: np.asarray(values)[None] for name, values in named.items()} if single else named
        outputs = self._run(batch, on, strict)
        results = {name: values[0] for name, values in outputs.items()} if single else outputs
        return next(iter(results.values())) if len(results) == 1 else results

    def run(
        self,
        inputs: Mapping[str, npt.ArrayLike] | npt.ArrayLike,
        on: str | Device = "emulator",
        *,
        strict: bool = False,
    ) -> dict[str, Array]:
        """Results of a batch, the part of the host included, with the element types of the model.

        Parameters
        ----------
        inputs : mapping of str to array, array, or tuple of arrays
            ``[samples, *shape]`` by input; the array alone if there is one input; or one array for each input, in the
            order of :attr:`inputs`.
        on : str or Device
            ``"emulator"``, ``"rtl"``, the name of a serial port, or a device from :func:`concord.connect`. All give the
            same bits. A device stays open, and gets the image of this network if it has another one.
        strict : bool
            Whether raised flags are an error; else they are a :class:`FlagWarning`.

        Raises
        ------
        FlagError
            With ``strict``, if inputs are unlike what the network was compiled for (before anything runs), if values
            were cut off or overflowed, or if a result is not finite.
        TypeError
            If ``on`` is neither a name nor a device, or the inputs are a loader of batches.
        ValueError
            If the inputs do not fit the network, or ``on`` is no target.
        concord.host.DeviceError
            If the device does not do what it should.
        """
        if not isinstance(on, str | Device):
            hint = "several inputs are a tuple or a mapping"
            raise TypeError(f"on must be the name of a target or a device, not {type(on).__name__}; {hint}")
        return self._run(call_inputs(list(self.inputs), inputs), on, strict)

    def _run(
        self, inputs: Mapping[str, npt.ArrayLike] | npt.ArrayLike, on: str | Device, strict: bool
    ) -> dict[str, Array]:
        """Body of :meth:`run`; a warning is about the line that called the method which calls this one."""
        named = inputs if isinstance(inputs, Mapping) else inputs_of(list(self.inputs), inputs)
        flags = self.package.input_flags(named)
        if flags and strict:
            raise FlagError(flags)
        with nullcontext(on) if isinstance(on, Device) else host.connect(on, self.config) as device:
            if device.image is not self.image:
                device.load(self.image)
            device.clear_flags()
            ports = device.run(self.package.pack(named, rounded=True))
            outputs = self.package.finish(named, ports)
            flags += self.package.flags(device.flags()) + self.package.host_flags(named, ports) + not_finite(outputs)
        if flags and strict:
            raise FlagError(flags)
        if flags:
            warnings.warn(_text(flags), FlagWarning, stacklevel=3)
        return self.package.typed(outputs)

    def save(self, folder: str | Path) -> None:
        """Write it to a folder, which the command line and :func:`concord.load` take; whole or not at all.

        Raises
        ------
        ValueError
            If something else than a compiled network is there.
        OSError
            If it cannot be written.
        """
        save_package(self.package, Path(folder), self.model)

    @classmethod
    def load(cls, folder: str | Path) -> Network:
        """Read a folder; ``ValueError`` if it is no compiled network, or damaged."""
        path = Path(folder)
        data = NETWORK_FOLDER.read(path)
        return cls(package_of(path, data), data.get(MODEL) or data.get(TFLITE, b""))


def connect(target: str, network: Network | Image | NpuConfig | None = None, **options: Any) -> Device:
    """A device, with a network loaded if one is given; a context manager that closes it.

    Parameters
    ----------
    target : str
        ``"emulator"``, ``"rtl"``, or the name of a serial port such as ``"/dev/ttyUSB0"``.
    network : Network, Image, NpuConfig or None
        What to load, or what the device should be. May be left out for a board with a named configuration.
    options
        ``link``, ``baud``, ``library`` and ``trace`` of :func:`concord.host.connect`.

    Raises
    ------
    ValueError
        If it is no target.
    concord.host.MismatchError
        If the device has another configuration.
    concord.host.LinkError
        If it does not answer.
    """
    config = network if network is None or isinstance(network, NpuConfig) else network.config
    device = host.connect(target, config, **options)
    if isinstance(network, Network | Image):
        try:
            device.load(network.image if isinstance(network, Network) else network)
        except BaseException:
            device.close()
            raise
    return device


def _text(flags: list[FlagDiagnostic]) -> str:
    lines = dict.fromkeys(flag.hint for flag in flags)
    return "\n  ".join(["flags were raised, results may be wrong:", *lines])
