"""A compiled network that can be run: image, arrangement of inputs and outputs, and the part of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.ir.expected_error import ExpectedError
from concord.compiler.ir.input_record import InputRecord
from concord.compiler.ir.quantised_model import QuantisedModel
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.functions import function
from concord.golden.real_numbers import real_numbers
from concord.graph import execute
from concord.graph.ir import Graph
from concord.graph.ops.elementwise import FunctionAttributes
from concord.image import Image
from concord.program.flags import DOMAIN, INPUT_RANGE, FlagDiagnostic, diagnose_flags
from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.utils.arrays import FloatArray


class PackageDevice(Protocol):
    """What a package needs of a device, which :class:`concord.host.device.PackageDevice` has."""

    def run(self, inputs: Mapping[str, npt.ArrayLike]) -> Any:
        """Outputs by port for a batch of inputs by port."""

    def clear_flags(self) -> None:
        """Clear all sticky flags."""

    def flags(self) -> dict[int, tuple[Flag, ...]]:
        """Sticky flags by the address of the instruction that its chain begins with."""


@dataclass(frozen=True)
class Package:
    """A compiled network that can be run.

    Parameters
    ----------
    image : Image
        Program and constants.
    arrangement : Arrangement
        Of inputs and outputs.
    host_graph : Graph or None
        What the host computes from the outputs of the NPU.
    formats : Formats
        What it was compiled with.
    quantised_model : QuantisedModel or None
        How far it is from the quantised model that it was made of, if it was made of one and that was measured.
    input_records : mapping of str to InputRecord
        What is known of inputs, by name.
    expected_error : ExpectedError or None
        What was measured when it was compiled, if anything was.
    """

    image: Image
    arrangement: Arrangement
    host_graph: Graph | None
    formats: Formats = DEFAULT
    quantised_model: QuantisedModel | None = None
    input_records: Mapping[str, InputRecord] = field(default_factory=dict)
    expected_error: ExpectedError | None = None

    @property
    def config(self) -> NpuConfig:
        """The configuration it was compiled for."""
        return self.image.config

    @property
    def warnings(self) -> list[str]:
        """What was measured when it was compiled and a user should know, a line each."""
        warnings = [] if self.quantised_model is None else self.quantised_model.warnings
        return warnings if self.expected_error is None else [*warnings, *self.expected_error.warnings]

    def input_flags(self, inputs: Mapping[str, npt.ArrayLike]) -> list[FlagDiagnostic]:
        """Inputs that are unlike what is known of them, each with what is so and what helps; empty if there are none.

        The flag ``INPUT_RANGE`` is one of the host: nothing needs to run.

        Raises
        ------
        TypeError
            If an input is not made of real numbers.
        ValueError
            If a name or a shape is wrong.
        """
        self.arrangement.check_names(inputs)
        diagnostics = []
        for name, record in self.input_records.items():
            values = real_numbers(f"input {name!r}", inputs[name])
            self.arrangement.check_shape(name, values.shape)
            mismatch = record.mismatch(values, self.arrangement.grids.get(name))
            if mismatch is not None:
                where = f"input {name}"
                diagnostics.append(FlagDiagnostic(where, None, "", INPUT_RANGE, mismatch.meaning, mismatch.advice))
        return diagnostics

    def finish(self, inputs: Mapping[str, npt.ArrayLike], ports: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
        """Results of a batch from the ports of the NPU, the host's part included."""
        return self.host_outputs(inputs, self._outputs(inputs, ports))

    def _outputs(
        self, inputs: Mapping[str, npt.ArrayLike], ports: Mapping[str, npt.ArrayLike]
    ) -> dict[str, FloatArray]:
        """Outputs of the NPU for a batch."""
        return self.arrangement.unpack(ports, len(np.asarray(next(iter(inputs.values())))))

    def _read_by(
        self, host_graph: Graph, inputs: Mapping[str, npt.ArrayLike], outputs: Mapping[str, FloatArray]
    ) -> dict[str, FloatArray]:
        """What the host's part reads: inputs of the network as the model reads them, and outputs of the NPU."""
        return {
            name: self.arrangement.rounded(name, inputs[name]) if name in inputs else outputs[name]
            for name in host_graph.inputs
        }

    def host_outputs(
        self, inputs: Mapping[str, npt.ArrayLike], outputs: dict[str, FloatArray]
    ) -> dict[str, FloatArray]:
        """Results of a batch from the outputs of the NPU: what the host computes from them.

        A sample has the same bits in every batch. The order in which NumPy and BLAS add up depends on shapes and on
        where elements are in memory, so each sample is computed by itself, from contiguous arrays. A zero that the
        host computes is +0, for NumPy does not say which one a maximum is.
        """
        if self.host_graph is None:
            return outputs
        read = self._read_by(self.host_graph, inputs, outputs)
        batch = {name: np.ascontiguousarray(values, dtype=np.float64) for name, values in read.items()}
        samples = range(max(len(values) for values in batch.values())) or (0,)
        single = [execute.run(self.host_graph, {name: x[k : k + 1] for name, x in batch.items()}) for k in samples]
        computed = {name for node in self.host_graph.nodes for name in node.outputs}
        return {
            name: np.concatenate([results[name] for results in single]) + (0.0 if name in computed else -0.0)
            for name in single[0]
        }

    def host_flags(
        self, inputs: Mapping[str, npt.ArrayLike], ports: Mapping[str, npt.ArrayLike]
    ) -> list[FlagDiagnostic]:
        """Functions of the host that have read negative numbers, for which they are not defined.

        Double precision has NaN there; the host computes the function as the NPU does: the root of a negative number
        is 0. The flag is ``DOMAIN``.

        Parameters
        ----------
        inputs : mapping of str to array
            Of the batch.
        ports : mapping of str to array
            What the NPU has computed.
        """
        if self.host_graph is None:
            return []
        nodes = [node for node in self.host_graph.nodes if node.op == "Function"]
        read = {node.name: node.attributes(FunctionAttributes).functions[0][0] for node in nodes}
        limited = [node for node in nodes if function(read[node.name]).constant_below_zero]
        if not limited:
            return []
        host_inputs = self._read_by(self.host_graph, inputs, self._outputs(inputs, ports))
        values = execute.run(self.host_graph, host_inputs, keep=[node.inputs[0] for node in limited])
        diagnostics = []
        for node in limited:
            x = values[node.inputs[0]]
            bad = int((x < 0).reshape(len(x), -1).any(axis=1).sum())
            if bad:
                name = read[node.name]
                meaning = f"{name} reads negative numbers in {bad} of {len(x)} samples; floats have NaN there"
                advice = "numbers that are not below zero in front of it, such as by a Relu; it is computed on the host"
                diagnostics.append(FlagDiagnostic(node.name, None, "", DOMAIN, meaning, advice))
        return diagnostics

    def run(self, device: PackageDevice, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, FloatArray]:
        """Results of a batch on a device that has the image loaded; clears the flags before.

        What the batch raises is in :meth:`flags`; results alone do not say whether values were cut off.
        """
        device.clear_flags()
        return self.finish(inputs, device.run(self.arrangement.pack(inputs, rounded=True)))

    def flags(self, device: PackageDevice) -> list[FlagDiagnostic]:
        """The flags of the last :meth:`run`, by layer, with what they mean; empty if there are none."""
        return diagnose_flags(self.image, device.flags())
