"""From an image, or the folder of a compiled network, to a model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from concord.compiler.codes.package import CodesPackage
from concord.compiler.emission.package import Package
from concord.compiler.ir.layout import BORDER
from concord.derive import ir
from concord.derive.build import Builder, input_limit, narrowed
from concord.derive.chains import ClassNodes
from concord.derive.checks import check
from concord.derive.classes import Class, Grouping, elements_of, group
from concord.derive.clean import cleaned
from concord.derive.flags import with_flags
from concord.derive.flow import Flow, constant, symbolic_run
from concord.derive.lanes import LaneAnalysis
from concord.derive.live import Lines, live
from concord.derive.loops import LoopBuilder
from concord.golden import binary16
from concord.graph.equalised import ChannelScale
from concord.graph.host_rules import operations
from concord.graph.ir import Graph
from concord.image import Image
from concord.image.ports import Port
from concord.networks.folder import load_image, load_package
from concord.utils.arrays import Ids


@dataclass(frozen=True)
class ObservedModel:
    """A model whose outputs are all of its tensors that are vectors of the machine, for who compares them.

    Parameters
    ----------
    model : Model
        Takes and gives the samples of a run together: inputs have an axis of ``group`` samples in front if that is not
        1. The host's part is not in it.
    group : int
        Number of samples of a run.
    flow : Flow
        The symbolic run.
    place : Ids ``[vectors, N]``
        Where the elements of the vectors of the flow are: an element of all outputs of a run, one after the other;
        ``MISSING`` for what the model does not have, and less than that for constants: ``MISSING - 1 - pattern``.
    """

    model: ir.Model
    group: int
    flow: Flow
    place: Ids


#: Of an element that is not part of a model.
MISSING = -1


def derive(path: Path, flags: bool = False) -> ir.Model:
    """The model of a compiled network (a folder) or of an image (a file), with its sticky flags if they are wanted."""
    return derive_package(load_package(path), flags) if path.is_dir() else derive_image(load_image(path), flags)


def derive_package(package: Package, flags: bool = False) -> ir.Model:
    """The model of a compiled network, in the shapes of the network.

    Only its image says what is computed; the folder says how samples become ports, and what the host does after it.
    With ``flags`` the model computes all that the program does, also what nobody reads, for its sticky flags.
    """
    return _of_package(package, flags).model()


def derive_image(image: Image, flags: bool = False) -> ir.Model:
    """The model of an image, in the shapes of its ports; ``flags`` as for :func:`derive_package`."""
    return _of_image(image, flags).model()


def observe(what: Package | Image) -> ObservedModel:
    """The model of a compiled network or of an image with everything that it computes as outputs."""
    return (_of_image(what) if isinstance(what, Image) else _of_package(what)).observed()


def _of_package(package: Package, flags: bool = False) -> _Derivation:
    if isinstance(package, CodesPackage):
        raise ValueError("package must be in block floating point; of one on codes, derive its arithmetic")
    kept = {state.result for state in package.image.states}  # outputs of the type of the inputs that they become
    package = package.carried  # a model has no memory: states are inputs and outputs
    for part in (package.front, package.host_graph):
        if part is not None:
            operations(part)  # refuses what cannot be derived
    arrangement, batch = package.arrangement, package.arrangement.batch
    front = (batch,) if batch > 1 else ()
    inputs, shapes, prepared = {}, {}, {}
    for name, order in arrangement.inputs.items():
        offset = arrangement.input_offsets.get(name, 0.0)
        border = constant(binary16.encode(np.array([0.0 - offset])))[0]
        inputs[name] = np.where(order == BORDER, border, order)
        shapes[name] = front + tuple(arrangement.shapes[name])
        grid = arrangement.grids.get(name)
        codes = None if grid is None else (grid.exponent, grid.least, grid.greatest)
        prepared[name] = _prepared(codes, offset, arrangement.channel_scales.get(name), arrangement.shapes[name])
    outputs = {
        name: ids.reshape(front + tuple(arrangement.shapes[name]))
        for name, ids in arrangement.outputs.items()
        if package.host_graph is None or name not in arrangement.inputs  # the host reads inputs as they are given
    }
    types = {name: kind for name, kind in package.output_types.items() if name not in kept}
    whole = _Derivation(package.image, inputs, shapes, outputs, prepared, batch, package.host_graph, False, flags)
    return replace(whole, front=package.front, output_types=types)


def _prepared(
    grid: ir.InputGrid | None, offset: float, scale: ChannelScale | None, shape: ir.Shape
) -> dict[str, Any] | None:
    """Fields of the node that prepares an input; ``None`` if there is nothing to do."""
    if grid is None and not offset and scale is None:
        return None
    fields: dict[str, Any] = {"grid": grid, "offset": offset}
    if scale is not None:
        trailing = scale.shape[len(scale.shape) - len(shape) :]
        fields["factors"] = np.ldexp(1.0, -scale.powers()).reshape(trailing)
        if scale.offsets:
            fields["middles"] = np.array(scale.offsets).reshape(trailing)
    return fields


def _of_image(image: Image, flags: bool = False) -> _Derivation:
    image, inputs, shapes = image.carried, {}, {}
    for port in image.inputs:
        inputs[port.name] = _padded(np.arange(port.elements).reshape(port.shape or (1,)), image.config.native)
        shapes[port.name] = port.shape
    outputs = {port.name: np.arange(port.elements).reshape(port.shape) for port in image.outputs}
    return _Derivation(image, inputs, shapes, outputs, {}, 1, None, True, flags)


def _padded(ids: Ids, native: int) -> Ids:
    """Elements of a port as vectors; what is added is +0."""
    lines = ids.reshape(-1, ids.shape[-1])
    return np.pad(lines, ((0, 0), (0, -lines.shape[1] % native)), constant_values=-1).reshape(-1, native)


@dataclass(frozen=True)
class _Derivation:
    """An image, and how its ports become inputs and outputs of a model."""

    image: Image
    inputs: dict[str, Ids]
    shapes: dict[str, ir.Shape]
    outputs: dict[str, Ids]
    prepared: dict[str, dict[str, Any] | None]
    batch: int
    host_partition: Graph | None
    constants: bool
    flags: bool = False
    front: Graph | None = None
    output_types: dict[str, str] = field(default_factory=dict)

    def model(self) -> ir.Model:
        """The model."""
        model, builder = self._built()
        if not self.flags:
            return _checked(model)[0]
        model, always = _checked(model)
        chains = sorted(
            (instance for instance in builder.flow.instances if instance.pc >= 0), key=lambda instance: instance.pc
        )
        return with_flags(model, dict.fromkeys(instance.where for instance in chains), always)

    def observed(self) -> ObservedModel:
        """The model with its tensors as outputs."""
        model, builder = self._built()
        native, lanes = builder.native, np.arange(builder.native)
        nodes, outputs, start = list(model.body.nodes), [], 0
        own = np.full(len(builder.elements) * native, MISSING, dtype=np.int64)
        for tensor, vectors in builder.known:
            output = ir.Value(builder.names.new("observed"), tensor.value.shape, ir.Type.REAL)
            nodes.append(ir.ToReal(output=output, layer="observed", x=tensor.value))
            outputs.append(output)
            positions, rows = np.indices((*vectors.shape, native))[:2]
            lane = rows * native + lanes
            at = tensor.index(positions, lane)
            there = (tensor.place[lane] >= 0) & (at < output.size)
            own[vectors[..., None] * native + lanes] = np.where(there, start + at, MISSING)
            start += output.size
        names = model.names | {output.name: output.name for output in outputs}
        elements = builder.elements
        place = np.where(elements < 0, MISSING + elements, own[np.maximum(elements, 0)])
        whole = replace(
            model,
            body=ir.Body(tuple(nodes)),
            outputs=tuple(outputs),
            names=names,
            group=1,
            host_partition=None,
            front=None,
            output_types={},
        )
        return ObservedModel(_checked(whole)[0], self.batch, builder.flow, place)

    def _built(self) -> tuple[ir.Model, Builder]:
        """The model with nodes that nobody needs, and what built it."""
        image, shapes = self.image, self.shapes
        sizes = {name: prod(shape) for name, shape in shapes.items()}
        flow = symbolic_run(image, self.inputs, sizes, flags=self.flags)
        grouping = group(flow, LaneAnalysis(flow), self.constants and not self.flags)  # constants raise flags, too
        ports = {port.name: port for port in image.outputs}
        eids_of = {name: _elements(flow, grouping, ports[name], ids, image) for name, ids in self.outputs.items()}
        needed = np.concatenate([eids.ravel() for eids in eids_of.values()]) if eids_of else np.zeros(0, np.int64)
        needed = np.concatenate([needed, _computed(flow)]) if self.flags else needed
        builder = Builder(flow, grouping.elements)
        names: dict[str, str] = {}
        inputs = []
        for name, shape in shapes.items():
            value = ir.Value(builder.names.new(name), shape, ir.Type.REAL)
            names[value.name] = name
            inputs.append(value)
            builder.know_input(_input_value(builder, value, self.prepared.get(name)), flow.inputs[name])
        _classes(builder, grouping, live(flow, grouping, needed))
        results = []
        for name, eids in eids_of.items():
            x = builder.read(eids, name, "result")
            output = ir.Value(builder.names.new(name), eids.shape, ir.Type.REAL, x.batched)
            builder.add(ir.ToReal(output=output, layer=name, x=x), (np.inf, 0))
            names[output.name] = name
            results.append(output)
        title = str(image.metadata.get("name", "program"))
        body = ir.Body(tuple(builder.nodes))
        grids = {name: fields["grid"] for name, fields in self.prepared.items() if fields and fields["grid"]}
        model = ir.Model(title, tuple(inputs), body, tuple(results), names, self.batch, self.host_partition, grids)
        return replace(model, front=self.front, output_types=self.output_types), builder


def _checked(model: ir.Model) -> tuple[ir.Model, dict[str, int]]:
    """A model without what nobody needs, and the flag words that it raises in every run."""
    model, always = cleaned(model)
    check(model)
    return model, always


def _computed(flow: Flow) -> Ids:
    """Elements of all vectors that chains compute."""
    native = flow.config.native
    made = [instance.wide for instance in flow.instances if instance.pc >= 0 and instance.computes]
    made += [instance.narrow for instance in flow.instances if instance.pc >= 0 and instance.narrow is not None]
    vectors = np.concatenate([np.zeros(0, np.int64), *(some.ravel() for some in made)])
    return np.asarray(vectors[:, None] * native + np.arange(native)).ravel()


def _input_value(builder: Builder, x: ir.Value, prepared: dict[str, Any] | None) -> ir.Value:
    """Value of an input after the steps of the host that come before the memories."""
    if prepared is not None:
        output = ir.Value(builder.names.new(x.name, "prepared"), x.shape, ir.Type.REAL)
        builder.add(ir.Prepare(output=output, layer=x.name, x=x, **prepared), input_limit())
        x = output
    output = ir.Value(builder.names.new(x.name, "half"), x.shape)
    return builder.add(ir.ToBinary16(output=output, layer=x.name, x=x), input_limit())


def _elements(flow: Flow, grouping: Grouping, port: Port, ids: Ids, image: Image) -> Ids:
    """Elements of an output, by the elements of its port."""
    eids = grouping.elements[flow.outputs[port.name]]
    if port.name in image.feeding.lanes:
        sent = np.asarray(image.feeding.lanes[port.name])
        eids = np.where(np.arange(eids.shape[1]) < sent[:, None], eids, -1)
    last = port.shape[-1] if port.shape else 1
    lines = eids.reshape(port.elements // last, -1)[:, :last]
    return np.asarray(lines.reshape(-1)[ids])


def _classes(builder: Builder, grouping: Grouping, lines: dict[Class, Lines]) -> None:
    for together in grouping.groups:
        chain_class = together.classes[0]
        if together.recurrent:
            LoopBuilder(builder, together, lines).build()
        elif lines[chain_class].used:
            _flat(builder, chain_class, lines[chain_class])


def _flat(builder: Builder, chain_class: Class, lines: Lines) -> None:
    """A class that is no recurrence: its members are more positions."""
    operands = chain_class.operands()
    outer = sum(member.shape[0] for member in chain_class.members)
    front = tuple(size for size in (outer, chain_class.representative.shape[1]) if size > 1)

    def read(number: int, pick: Callable[[Ids], Ids], broadcast: bool) -> ir.Value:
        eids = np.concatenate([pick(elements_of(v, builder.elements, chain_class.outside)) for v in operands[number]])
        eids = eids.reshape(*front, *eids.shape[1:])
        return builder.read(narrowed(eids) if broadcast else eids, chain_class.representative.layer)

    def read_matrix(pick: Callable[[Ids], Ids]) -> ir.Value:
        eids = np.stack([pick(elements_of(v, builder.elements))[0] for v in operands[-1]])
        if (eids == eids[:1]).all():
            return builder.read(eids[0], chain_class.representative.layer, "matrix")
        groups = np.repeat(eids, [member.shape[0] for member in chain_class.members], axis=0)
        return builder.read(groups, chain_class.representative.layer, "matrix")

    wide, narrow = ClassNodes(builder, chain_class, lines, read, read_matrix).build()
    if chain_class.representative.computes:
        builder.know(
            lines.tensor(wide, chain_class.representative.shape[2] * builder.native),
            np.concatenate([m.wide for m in chain_class.members]),
        )
    if narrow is not None:
        together = np.concatenate([m.narrow for m in chain_class.members if m.narrow is not None])
        builder.know(lines.tensor(narrow, chain_class.representative.shape[2] * builder.native), together)
