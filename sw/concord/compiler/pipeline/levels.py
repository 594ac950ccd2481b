"""The levels of the compiler: what passes make of a network, how large it is and how it reads."""

from __future__ import annotations

from collections.abc import Iterator

from concord.compiler.emission import invariants as emission
from concord.compiler.emission.emit import Emitter, all_tensors
from concord.compiler.ir.layers import AnyLayer, Layer, LayerWindow, Operand, Recurrent, Reduction
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering import invariants as lowering
from concord.compiler.lowering.lowered import Lowered
from concord.compiler.memory import invariants as memory
from concord.compiler.memory.plan import Plan
from concord.compiler.pipeline.states import Filled, Planned
from concord.graph.level import GRAPH
from concord.graph.passes import dtypes
from concord.graph.passes.dtypes import Types
from concord.image import Image
from concord.pipeline.manager import Level
from concord.program.assembler import disassemble
from concord.spec.isa import Mem
from concord.spec.memmap import RegionId

#: Entries of a list that are shown.
_SHOWN = 8


def formats_text(formats: Formats) -> Iterator[str]:
    """Chosen formats, by kind and name."""
    for kind, chosen in formats.to_dict().items():
        pairs = chosen.items() if isinstance(chosen, dict) else enumerate(chosen)
        yield from (f"{kind} {name}: {_some(value)}" for name, value in pairs)
    yield from (f"weights {name}: rounded for samples" for name in formats.weights)


def _some(value: object) -> str:
    """A value, of a long list only the beginning."""
    if isinstance(value, list | tuple) and len(value) > _SHOWN:
        return f"{', '.join(map(str, value[:_SHOWN]))}, ... ({len(value)})"
    return str(value)


def formats_size(formats: Formats) -> int:
    """Number of choices."""
    return len(formats.weights) + sum(map(len, formats.to_dict().values()))


def lowered_text(lowered: Lowered) -> Iterator[str]:
    """Inputs, layers in execution order, outputs."""
    for name, (storage, order) in lowered.inputs.items():
        yield f"input {name}: {'x'.join(map(str, order.shape))} in {storage.vectors} vectors"
    for index, layer in enumerate(lowered.layers):
        yield f"layer {index} {layer.name}: {', '.join(layer.nodes)}"
        yield from (f"  {line}" for line in _layer(layer))
    for name in lowered.graph.outputs:
        places = ", ".join(storage.root.name for storage in lowered.storages.of(lowered.views[name]))
        yield f"output {name} in {places}{', narrow' if name in lowered.narrow else ''}"


def _layer(layer: AnyLayer) -> Iterator[str]:
    walk = layer.source
    yield f"reads {layer.source_tensor} in {walk.storage.root.name}, {walk.height}x{walk.width}x{walk.tiles} vectors"
    if isinstance(layer, Recurrent):
        direction = "backward" if layer.backward else "forward"
        yield f"{layer.time_steps} time steps, {direction}, gates {', '.join(layer.cell.gates)}"
    else:
        yield from _chain(layer)
    shape = "x".join(map(str, layer.out))
    yield f"writes {layer.tensor} to {layer.target.root.name}, {shape} vectors"


def _chain(layer: Layer) -> Iterator[str]:
    if layer.reduction is not Reduction.NONE:
        weight = "" if layer.weight is None else f", weights {'x'.join(map(str, layer.weight.shape))}"
        yield f"{layer.reduction.value}{weight}{_window(layer.window)}"
    for mfu_op in layer.mfu_ops:
        table = "" if mfu_op.spec is None else f" table of {'+'.join(name for name, _ in mfu_op.spec[0])}"
        yield f"{mfu_op.op.name.lower()}{table}{'' if mfu_op.operand is None else f' {_operand(mfu_op.operand)}'}"


def _window(window: LayerWindow) -> str:
    if window.taps == 1:
        return ""
    sizes = zip(("window", "stride", "dilation"), (window.kernel, window.stride, window.dilation), strict=True)
    return "".join(f", {name} {y}x{x}" for name, (y, x) in sizes)


def _operand(operand: Operand) -> str:
    if operand.storage is None:
        return "constant"
    return f"{operand.tensor or operand.storage.name} in {operand.storage.root.name}"


def plan_text(plan: Plan) -> Iterator[str]:
    """Tensors in memories: addresses as soon as they have one, sizes, and the layers they live for."""
    for mem in Mem:
        copies = plan.within(mem)
        yield f"{mem.name.lower()} memory: {sum(copy.vectors for copy in copies)} vectors in {len(copies)} tensors"
        for copy in sorted(copies, key=lambda copy: (copy.addr, copy.first_use)):
            place = "not placed" if copy.addr < 0 else f"{copy.addr}..{copy.addr + copy.vectors - 1}"
            over = "" if copy.over is None else f", in the place of {copy.over.storage.name}"
            live = f"live {copy.first_use}..{copy.last_use}"
            yield f"  {place}: {copy.storage.name}, {copy.vectors} vectors, {live}{over}"
    for index, layer in enumerate(plan.lowered.layers):
        if index in plan.sources:
            yield f"layer {index} {layer.name} reads {plan.sources[index].name.lower()}"


def program_text(emitter: Emitter) -> Iterator[str]:
    """Allocations, and the instructions with the layers that they belong to."""
    for item in emitter.allocator.allocations.values():
        yield f"{item.region.name.lower()} {item.addr}..{item.addr + item.count - 1}: {item.name}"
    layers = emitter.plan.lowered.layers
    starts = {pc: layers[index].name for pc, index in emitter.places.items()}
    for pc, line in enumerate(disassemble(emitter.builder.words()).splitlines()):
        if pc in starts:
            yield f"      # {starts[pc]}"
        yield f"{pc:5} {line}"


def image_text(image: Image) -> Iterator[str]:
    """Segments of an image with their places, ports and phases."""
    yield f"{len(image.program)} instructions for {image.config.name}, fingerprint {image.config.fingerprint:#018x}"
    for part in image.segments:
        yield f"segment {part.region.name.lower()} {part.start}..{part.start + part.count - 1}"
    for what, ports in (("input", image.inputs), ("output", image.outputs)):
        for port in ports:
            shape = "x".join(map(str, port.shape))
            yield f"{what} {port.name}: {shape}, {port.region.name.lower()} from {port.address} on"
    yield from (f"phase from instruction {phase.pc} on" for phase in image.phases)
    yield from (f"fed raw: {feed.port}" for feed in image.feeding.feeds)
    for region, (count, depth) in image.loaded().items():
        yield f"{region.name.lower()} memory: {count} of {depth} words loaded"


def _plan_problems(plan: Plan, state: Planned) -> Iterator[str]:
    """The plan, with the constants in front of the tensors as soon as the data section is written."""
    program = state.program if isinstance(state, Filled) else None
    allocations = program.allocator.allocations.values() if program is not None and program.plan is plan else ()
    constants = (item for item in allocations if item.region is RegionId.WIDE and item.name != all_tensors(Mem.WIDE))
    return memory.problems(plan, state.types, state.config, sum(item.count for item in constants))


FORMATS = Level(Formats, "formats", formats_size, formats_text)
LOWERED = Level(
    Lowered, "layers", lambda lowered: len(lowered.layers), lowered_text, lambda lowered, _: lowering.problems(lowered)
)
TYPES = Level(Types, "tensors", lambda types: len(types.tensors), dtypes.text, lambda types, _: dtypes.problems(types))
PLAN = Level(Plan, "live ranges", lambda plan: len(plan.all()), plan_text, _plan_problems)
PROGRAM = Level(
    Emitter,
    "instructions",
    lambda program: len(program.builder),
    program_text,
    lambda program, _: emission.program_problems(program),
)
IMAGE = Level(
    Image,
    "words",
    lambda image: sum(count for count, _ in image.loaded().values()),
    image_text,
    lambda image, _: emission.image_problems(image),
)
#: All levels of the compiler.
LEVELS = (GRAPH, FORMATS, LOWERED, TYPES, PLAN, PROGRAM, IMAGE)
