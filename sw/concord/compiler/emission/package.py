"""A compiled network that can be run: image, arrangement of inputs and outputs, and the part of the host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.ir.expected_error import ExpectedError
from concord.compiler.ir.input_record import UNSEEN, InputRecord
from concord.compiler.ir.quantised_model import QuantisedModel
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.functions import function
from concord.golden.real_numbers import finite_numbers, real_numbers
from concord.graph import execute
from concord.graph.element_types import as_places, check_numbers, of_type, texts_at
from concord.graph.host_evaluation import run_on_host
from concord.graph.host_inputs import with_missing
from concord.graph.ir import Graph, Node, Shape
from concord.graph.ops.elementwise import FunctionAttributes
from concord.graph.ops.host import CategoriesAttributes
from concord.image import Image
from concord.program.flags import DOMAIN, INPUT_RANGE, FlagDiagnostic, diagnose_flags
from concord.spec.config import NpuConfig
from concord.spec.formats import Flag
from concord.utils.arrays import Array, FloatArray


class PackageDevice(Protocol):
    """Interface of a device for a package, which :class:`concord.host.device.PackageDevice` has."""

    def run(self, inputs: Mapping[str, npt.ArrayLike]) -> Any:
        """Outputs by port for a batch of inputs by port."""

    def clear_flags(self) -> None:
        """Clear all sticky flags."""


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
    front : Graph or None
        What the host computes from the inputs of the network: some of the inputs that are arranged.
    element_types : mapping of str to str
        Types of inputs and outputs of the network that are no floats, by name.
    float_types : mapping of str to str
        Types of outputs of the network that are floats, by name; double precision for those that are not there.
    texts : mapping of str to tuple of str
        Inputs and outputs of the network that are texts, by name: those whose places are computed with.
    partition : str
        What the host may compute, one of :data:`concord.spec.partition.PARTITIONS`.
    npu_nodes : frozenset of str or None
        Names of the nodes that the NPU computes, where their operators do not decide.
    stay : tuple of str
        Names of the pairs of a quantised model that are computed, of a network in part or from a folder.
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
    front: Graph | None = None
    element_types: Mapping[str, str] = field(default_factory=dict)
    partition: str = "ends"
    npu_nodes: frozenset[str] | None = None
    stay: tuple[str, ...] = ()
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    float_types: Mapping[str, str] = field(default_factory=dict)

    @property
    def config(self) -> NpuConfig:
        """The configuration it was compiled for."""
        return self.image.config

    @property
    def warnings(self) -> list[str]:
        """Warnings to a user from the measurements of the compilation, a line each; jumps of trees are among them."""
        warnings = [] if self.quantised_model is None else self.quantised_model.warnings
        expected = [] if self.expected_error is None else self.expected_error.warnings
        return [*warnings, *self.doubts, *expected]

    @property
    def doubts(self) -> list[str]:
        """Doubts about the results besides those from measurements, a line each."""
        return [*self.unseen, *self.jumps]

    @property
    def host_operations(self) -> list[str]:
        """Operators of the nodes that the host computes, one for each of them."""
        return [node.op for part in (self.front, self.host_graph) if part is not None for node in part.nodes]

    @property
    def unseen(self) -> list[str]:
        """Line about the inputs that neither samples nor the model tell anything of; empty if there are none."""
        records = {name: record for name, record in self.input_records.items() if record.source == UNSEEN}
        if not records:
            return []
        low, high = min(record.low for record in records.values()), max(record.high for record in records.values())
        names, inputs = ", ".join(records), "input" if len(records) == 1 else "inputs"
        ends, remedy = f"from {low:g} to {high:g}", "give samples (--calibrate) or an --input-range"
        what = f"no samples of {inputs} {names}: formats, tables and the expected error are for normal numbers {ends}"
        return [f"{what}; {remedy}"]

    @property
    def jumps(self) -> list[str]:
        """Trees of the host that compare what the NPU has rounded, a line each."""
        if self.host_graph is None:
            return []
        known = {*self.arrangement.inputs} | self.arrangement.beside
        return [
            f"{node.name}: trees compare numbers that the NPU rounds: where such a number is next to a threshold, "
            "results may be those of another leaf; trees need no Scaler in front, and without it they read the inputs"
            for node in _trees_behind(self.host_graph, {*self.host_graph.inputs} - known)
        ]

    @property
    def of_npu(self) -> Package:
        """The package without the host's part in front of the NPU; its inputs are those that are arranged."""
        return replace(self, front=None, element_types={}, texts={})

    @property
    def carried(self) -> Package:
        """The package with states that the host carries: inputs of a run, and outputs as inputs of the next one."""
        results, host = [state.result for state in self.image.states], self.host_graph
        if host is not None:
            host = replace(host, inputs=[*host.inputs, *results], outputs=[*host.outputs, *results])
        return replace(self, image=self.image.carried, arrangement=self.arrangement.carried, host_graph=host)

    @property
    def input_shapes(self) -> dict[str, Shape]:
        """Shape of a sample of every input of the network."""
        arranged = {name: self.arrangement.shapes[name] for name in self.arrangement.inputs}
        if self.front is None:
            return arranged
        first = {name: self.front.sample_shape(name) for name in self.front.inputs}
        return first | {name: shape for name, shape in arranged.items() if name not in self.front.outputs}

    @property
    def output_shapes(self) -> dict[str, Shape]:
        """Shape of a sample of every output of the network."""
        if self.host_graph is None:
            return {name: self.arrangement.shapes[name] for name in self.arrangement.outputs}
        return {name: self.host_graph.sample_shape(name) for name in self.host_graph.outputs}

    @property
    def output_types(self) -> dict[str, str]:
        """Types of the outputs of the network, by name: of texts that of their places."""
        places = dict.fromkeys(self.texts, "int64")
        kinds = {**self.float_types, **self.element_types, **places}
        return {name: kinds[name] for name in self.output_shapes if name in kinds}

    def arranged_inputs(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, npt.ArrayLike]:
        """The inputs that are arranged, from those of the network: some may be computed by the host.

        Raises
        ------
        TypeError
            If an input is not made of real numbers.
        ValueError
            If a name or a shape is wrong, or a number is none of the type of its input, or no index of its table.
        """
        inputs = as_places(inputs, self.texts)
        for name, values in inputs.items():
            if (kind := self.element_types.get(name)) is not None:
                check_numbers(f"input {name!r}", finite_numbers(f"input {name!r}", values), kind)
        if self.front is None:
            return inputs
        shapes = self.input_shapes
        if set(inputs) != set(shapes):
            raise ValueError(f"inputs must be {sorted(shapes)}, not {sorted(inputs)}")
        missing = with_missing(self.front) - {*self.arrangement.inputs}
        read = {name: finite_numbers(f"input {name!r}", inputs[name], name in missing) for name in self.front.inputs}
        for name, values in read.items():
            if values.shape[1:] != shapes[name] or not values.ndim:
                want = ", ".join(map(str, ("samples", *shapes[name])))
                raise ValueError(f"input {name!r} must have the shape ({want}), not {values.shape}")
        known = {*self.arrangement.inputs} | self.arrangement.beside
        own = {name: values for name, values in inputs.items() if name in known}
        return own | run_on_host(self.front, read)

    def npu_inputs(self, inputs: Mapping[str, npt.ArrayLike]) -> dict[str, npt.ArrayLike]:
        """Inputs of :meth:`arranged_inputs` that have ports: inputs that the host alone reads are left out."""
        arranged = self.arranged_inputs(inputs)
        return {name: values for name, values in arranged.items() if name not in self.arrangement.beside}

    def pack(self, inputs: Mapping[str, npt.ArrayLike], rounded: bool = False) -> dict[str, Array]:
        """Ports of a batch from the inputs of the network: the host's part in front, then the arrangement.

        Parameters and errors are those of :meth:`concord.compiler.ir.arrangement.Arrangement.pack` and of
        :meth:`arranged_inputs`.
        """
        return self.arrangement.pack(self.arranged_inputs(inputs), rounded)

    def typed(self, outputs: Mapping[str, FloatArray]) -> dict[str, Array]:
        """Outputs with the types that they have in the model, texts among them."""
        kinds = self.output_types
        return {
            name: texts_at(values, self.texts[name]) if name in self.texts else of_type(values, kinds.get(name))
            for name, values in outputs.items()
        }

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
        first, inputs = inputs, self.arranged_inputs(inputs)
        self.arrangement.check_names(inputs)
        diagnostics = [] if self.front is None else _undefined(self.front, as_places(first, self.texts))
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
        inputs = self.arranged_inputs(inputs)
        return self._host_outputs(inputs, self._outputs(inputs, ports))

    def _outputs(
        self, inputs: Mapping[str, npt.ArrayLike], ports: Mapping[str, npt.ArrayLike]
    ) -> dict[str, FloatArray]:
        """Outputs of the NPU for a batch."""
        return self.arrangement.unpack(ports, len(np.asarray(next(iter(inputs.values())))))

    def _read_by(
        self, host_graph: Graph, inputs: Mapping[str, npt.ArrayLike], outputs: Mapping[str, FloatArray]
    ) -> dict[str, FloatArray]:
        """Inputs of the host's part: inputs of the network as the model reads them, and outputs of the NPU."""
        return {
            name: self.arrangement.rounded(name, inputs[name]) if name in inputs else outputs[name]
            for name in host_graph.inputs
        }

    def host_outputs(
        self, inputs: Mapping[str, npt.ArrayLike], outputs: dict[str, FloatArray]
    ) -> dict[str, FloatArray]:
        """Results of a batch from the outputs of the NPU: what the host computes from them.

        A sample has the same bits in every batch (:func:`concord.graph.host_evaluation.run_on_host`).
        """
        return self._host_outputs(self.arranged_inputs(inputs), outputs)

    def _host_outputs(
        self, inputs: Mapping[str, npt.ArrayLike], outputs: dict[str, FloatArray]
    ) -> dict[str, FloatArray]:
        if self.host_graph is None:
            return outputs
        return run_on_host(self.host_graph, self._read_by(self.host_graph, inputs, outputs))

    def host_flags(
        self, inputs: Mapping[str, npt.ArrayLike], ports: Mapping[str, npt.ArrayLike]
    ) -> list[FlagDiagnostic]:
        """Numbers that the host has read from the NPU and that are not defined for it: the flag is ``DOMAIN``.

        Functions read negative numbers, for which double precision has NaN; the host computes them as the NPU does: the
        root of a negative number is 0. Categories read a number that is none.

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
        complete = _complete(self.host_graph)
        if not limited and not complete:
            return []
        inputs = self.arranged_inputs(inputs)
        host_inputs = self._read_by(self.host_graph, inputs, self._outputs(inputs, ports))
        values = execute.run(self.host_graph, host_inputs, keep=[node.inputs[0] for node in limited])
        diagnostics = _undefined(self.host_graph, host_inputs)
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
        return self.finish(inputs, device.run(self.pack(inputs, rounded=True)))

    def flags(self, raised: dict[int, tuple[Flag, ...]]) -> list[FlagDiagnostic]:
        """Flags by layer, with what they mean; empty if there are none.

        Parameters
        ----------
        raised : dict of int to tuple of Flag
            What a device tells after :meth:`run`: by the address of the instruction that its chain begins with.
        """
        return diagnose_flags(self.image, raised)


def _trees_behind(part: Graph, names: set[str]) -> list[Node]:
    """Trees of a host's part that depend on these of its inputs."""
    trees = []
    for node in part.nodes:
        if not names.isdisjoint(node.inputs):
            names = names.union(node.outputs)
            trees += [node] if node.op == "Trees" else []
    return trees


def _complete(part: Graph) -> list[Node]:
    """Nodes of a host's part that are defined for their categories alone."""
    nodes = [node for node in part.nodes if node.op == "Categories"]
    return [node for node in nodes if node.attributes(CategoriesAttributes).complete]


def _undefined(part: Graph, inputs: Mapping[str, npt.ArrayLike]) -> list[FlagDiagnostic]:
    """Categories that read a number that is none of them, in what the host computes from inputs."""
    nodes = _complete(part)
    if not nodes:
        return []
    values = execute.run(part, {name: inputs[name] for name in part.inputs}, keep=[node.inputs[0] for node in nodes])
    diagnostics = []
    for node in nodes:
        x = values[node.inputs[0]]
        known = np.isin(x, node.attributes(CategoriesAttributes).categories)
        if not known.all():
            bad = int((~known).reshape(len(x), -1).any(axis=1).sum())
            meaning = (
                f"it reads {x[~known][0]:g}, which is no category, in {bad} of {len(x)} samples, and has zeros for it"
            )
            advice = "categories alone, or zeros=1 in the model if others are meant to have zeros"
            diagnostics.append(FlagDiagnostic(node.name, None, "", DOMAIN, meaning, advice))
    return diagnostics
