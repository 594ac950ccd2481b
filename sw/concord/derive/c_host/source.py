"""The files of a host in C: a network with its image, and the library beside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from importlib.resources import files
from pathlib import Path

from concord.compiler.codes.package import CodesPackage
from concord.derive.c.texts import C_WORDS, array, comment, literal, number_array
from concord.derive.c_host.plan import ByteRange, GroupFormat, HostError, HostInput, HostPart, HostPlan, plan
from concord.derive.c_host.spec_header import spec_header
from concord.derive.names import Names
from concord.graph.ir import Shape
from concord.image.columns import columns_of, digest_of, digest_start, writes_columns
from concord.image.words import to_bytes
from concord.networks.folder import load
from concord.spec.feeder import SCRIPT_WORD
from concord.spec.link import CRC_BYTES, HEADER, TARGET
from concord.spec.memmap import RegionId, regions
from concord.spec.stored import IMAGE
from concord.utils.files import check_place, write_text

#: Files of the library, which are the same for all networks.
LIBRARY = ("concord_host.h", "concord_host.c")
SPEC_HEADER = "concord_spec.h"
#: Requests on the way at the most, and bytes of data in one and of a reply at the most: buffers of the network.
_SLOTS, _SLOT_BYTES, _REPLY_BYTES = 8, 256, 256
#: One WAIT takes at most this part of a second.
_WAIT_SECONDS = 0.1


def write_c_host(
    source: Path, path: Path, bytes_of: Mapping[str, ByteRange] | None = None, npu_part: bool = False
) -> str:
    """Write the host for a compiled network or an image: ``path``, its header, and the library beside it.

    Returns what was written, for people. Errors are those of :func:`concord.networks.folder.load` and
    :class:`concord.derive.c_host.plan.HostError`.
    """
    if path.suffix != ".c" or not re.fullmatch(r"[a-z]\w*", path.stem, re.ASCII) or path.stem.startswith("concord_"):
        raise ValueError(f"output must be a file like net.c, whose name can begin names in C, not {path.name!r}")
    image, package = load(source)
    if isinstance(package, CodesPackage):
        raise HostError(f"{source} is a network on codes, of which there is no host in C: its image is {IMAGE}")
    if writes_columns(image.program):
        raise HostError(f"{source} has tensors in the external memory, and hosts in C load weights alone there")
    made = plan(image, package, bytes_of, npu_part)
    texts = c_files(made, path.stem)
    for name in (*texts, f"{path.stem}.columns"):
        check_place(path.parent / name)
    for name, text in texts.items():
        write_text(path.parent / name, text)
    beside = [name for name in texts if name != path.name]
    if columns := column_bytes(made):
        (path.parent / f"{path.stem}.columns").write_bytes(columns)
        beside.append(f"{path.stem}.columns with {len(columns):,} bytes for the external memory")
    sizes = f"{len(made.inputs)} inputs, {len(made.outputs)} outputs, {_image_bytes(made):,} bytes of image"
    return f"{sizes}; beside it {', '.join(beside)}"


def column_bytes(made: HostPlan) -> bytes:
    """Bytes that a source gives ``net_load``: all that is for the external memory, segment by segment."""
    return b"".join(segment.data for segment in columns_of(made.image))


def c_files(made: HostPlan, name: str) -> dict[str, str]:
    """Texts of all files by name; ``name`` is what names in C begin with."""
    writer = _Writer(made, name)
    library = files("concord.derive.c_host") / "library"
    texts = {f"{name}.c": writer.source(), f"{name}.h": writer.header(), SPEC_HEADER: spec_header()}
    return texts | {part: (library / part).read_text(encoding="utf-8") for part in LIBRARY}


def _segments(made: HostPlan) -> list[tuple[RegionId, int, bytes]]:
    """Region, first word and bytes of what is loaded; columns last."""
    image = made.image
    program = to_bytes(image.program, regions(made.config)[RegionId.PROGRAM].nbytes).tobytes()
    parts = [*(part for part in image.segments if part.region is not RegionId.DRAM), *columns_of(image)]
    return [(RegionId.PROGRAM, 0, program), *((part.region, part.start, part.data) for part in parts)]


def _image_bytes(made: HostPlan) -> int:
    return sum(len(data) for region, _, data in _segments(made) if region is not RegionId.DRAM)


class _Writer:
    """Writes the texts of one network."""

    def __init__(self, made: HostPlan, name: str):
        self.made, self.name, self.upper = made, name, name.upper()
        names = Names(C_WORDS)
        self.inputs = [names.new(port.name) for port in made.inputs]
        names = Names(C_WORDS)
        self.outputs = [names.new(port.name) for port in made.outputs]
        self._columns = columns_of(made.image)
        self._arrays: list[str] = []
        self._spans: dict[tuple[str, ...], str] = {}
        config = made.config
        words = [regions(config)[region].nbytes for region in (RegionId.WIDE, RegionId.NARROW)]
        self._slots = _SLOTS if config.request_buffer else 1
        self._slot_bytes = max(*words, min(config.max_payload - TARGET.nbytes, _SLOT_BYTES))
        overhead = HEADER.nbytes + CRC_BYTES
        self._reply_bytes = overhead + max(*words, min(config.max_payload, _REPLY_BYTES))

    @property
    def _load_parameters(self) -> str:
        return f"{self.name}_npu *npu" + (", const concord_source *columns" if self._columns else "")

    @property
    def _digest_start(self) -> int | None:
        return digest_start(self._columns, self.made.config) if self._columns else None

    # The header --------------------------------------------------------------------------------------

    def header(self) -> str:
        """The text of the header."""
        name, upper, config = self.name, self.upper, self.made.config
        title, columns = comment(str(self.made.image.metadata.get("name", "program"))), len(column_bytes(self.made))
        lines = [
            f"/* {title}, for {comment(config.name)}: written by `concord derive --to c-host`. */",
            *([f"/* Left out: {comment(self.made.left_out)}. */"] if self.made.left_out else []),
            f"\n#ifndef {upper}_H\n#define {upper}_H\n",
            '#include "concord_host.h"\n',
            '#ifdef __cplusplus\nextern "C" {\n#endif\n',
            f"#define {upper}_FINGERPRINT {config.fingerprint:#018x}ULL",
            *([f"/* Bytes of {name}.columns. */", f"#define {upper}_COLUMNS {columns}U"] if columns else []),
            "\n/* What a run takes. */",
            "typedef struct {",
            *(
                _member(c_name, port.shape, port.name, port.book is not None)
                for c_name, port in zip(self.inputs, self.made.inputs, strict=True)
            ),
            f"}} {name}_inputs;",
            "\n/* What a run gives. */",
            "typedef struct {",
            *(
                _member(c_name, port.shape, port.name)
                for c_name, port in zip(self.outputs, self.made.outputs, strict=True)
            ),
            f"}} {name}_outputs;",
            "\n/* A connection, with its buffers. */",
            "typedef struct {",
            "    concord_device device;",
            f"    uint8_t slots[{self._slots * self._slot_bytes}], reply[{self._reply_bytes}];",
            f"}} {name}_npu;\n",
            f"extern const concord_network {name}_network;\n",
            "/* See concord_host.h. */",
            f"concord_result {name}_connect({name}_npu *npu, const concord_line *line);",
            f"concord_result {name}_load({self._load_parameters});",
            f"concord_result {name}_run({name}_npu *npu, const {name}_inputs *inputs, {name}_outputs *outputs);",
            *self._streamed(),
            "\n#ifdef __cplusplus\n}\n#endif",
            "\n#endif",
        ]
        return "\n".join(lines) + "\n"

    def _streamed(self) -> list[str]:
        """Declarations of what there is with a feeder, or why there is none."""
        made, name = self.made, self.name
        if made.route is None:
            return [f"\n/* Inputs are laid out by the host: {comment(made.laid_out)}. */"]
        return [
            f"\n/* Inputs go to the feeder: {comment(made.route.text)}.",
            f" * Up to {self.upper}_DEPTH samples may be put before the result of the first is taken. */",
            f"#define {self.upper}_DEPTH {made.route.depth}",
            f"concord_result {name}_put({name}_npu *npu, const {name}_inputs *inputs);",
            f"concord_result {name}_get({name}_npu *npu, {name}_outputs *outputs);",
        ]

    # The source --------------------------------------------------------------------------------------

    def source(self) -> str:
        """The text of the source."""
        name = self.name
        body = "\n\n".join([*self._tables(), self._network(), *self._functions()])
        return f'/* See {name}.h. */\n\n#include "{name}.h"\n\n{body}\n'

    def _tables(self) -> list[str]:
        made, table = self.made, regions(self.made.config)
        rows = []
        for k, (region, start, data) in enumerate(_segments(made)):
            if data:
                array_name = "NULL" if region is RegionId.DRAM else f"segment_{k}"
                if region is not RegionId.DRAM:
                    self._arrays.append(number_array("uint8_t", array_name, data))
                rows.append(
                    f"{{CONCORD_REGION_{region.name}, {table[region].nbytes}, {start}, {len(data)}, {array_name}}}"
                )
        if self._digest_start is not None:
            self._arrays.append(number_array("uint8_t", "digest", digest_of(self._columns)))
        inputs = [self._input(k, port) for k, port in enumerate(made.inputs)]
        outputs = [f"offsetof({self.name}_outputs, {c_name})" for c_name in self.outputs]
        phases = []
        for k, phase in enumerate(made.phases):
            parts = [self._part(part) for part in (*phase.inputs, *phase.outputs)]
            self._arrays.append(array("concord_part", f"parts_{k}", parts))
            phases.append(f"{{{phase.pc}, {len(phase.inputs)}, {len(phase.outputs)}, parts_{k}}}")
        layers, route = self._layers(), self._route()
        return [
            *self._arrays,
            *([f"static const concord_route route = {{{route}}};"] if route else []),
            array("concord_segment", "segments", rows),
            array("concord_input", "input_ports", inputs),
            array("uint32_t", "output_places", outputs),
            *([array("concord_phase", "phases", phases)] if phases else []),
            *([array("concord_layer", "layers", layers)] if layers else []),
        ]

    def _route(self) -> str:
        """Fields of the route; empty if there is none."""
        route, table = self.made.route, regions(self.made.config)
        if route is None:
            return ""
        words = {"script": (route.script, RegionId.SCRIPT), "codes": (route.codes, RegionId.CODES)}
        names, sizes = [], []
        for name, (listed, region) in words.items():
            data = to_bytes(listed, table[region].nbytes).tobytes()
            if data:
                self._arrays.append(number_array("uint8_t", name, data))
            names.append(name if data else "NULL")
            sizes.append(str(len(data)))
        parts = [self._part(part) for part in (*route.inputs, *route.outputs)]
        self._arrays.append(array("concord_part", "route_parts", parts))
        numbers = [len(route.inputs), len(route.outputs), "route_parts", min(route.chunk, self._slot_bytes)]
        return ", ".join(map(str, [*names, *sizes, *numbers, route.result_bytes, route.depth]))

    def _layers(self) -> list[str]:
        metadata = self.made.image.metadata
        starts = metadata.get("program", [])
        return [f"{{{pc}, {literal(str(metadata['layers'][layer]['name']))}}}" for pc, layer in starts]

    def _input(self, number: int, port: HostInput) -> str:
        grid = powers = middles = "NULL"
        if port.grid is not None:
            grid = f"&grid_{number}"
            fields = f"{port.grid.exponent}, {port.grid.least}, {port.grid.greatest}"
            self._arrays.append(f"static const concord_grid grid_{number} = {{{fields}}};")
        if port.powers.any():
            powers = f"powers_{number}"
            self._arrays.append(array("int8_t", powers, map(str, port.powers.tolist())))
        if port.middles.any():
            middles = f"middles_{number}"
            self._arrays.append(array("double", middles, map(_double, port.middles.tolist())))
        place = f"offsetof({self.name}_inputs, {self.inputs[number]})"
        book, kind = "NULL", "CONCORD_FLOATS"
        if port.book is not None:
            book, kind = f"book_{number}", "CONCORD_BYTES"
            self._arrays.append(number_array("uint16_t", book, port.book.reshape(-1).tolist()))
        tables = f"{grid}, {powers}, {middles}, {_double(port.offset)}, {len(port.powers)}, {port.inner}, {book}"
        return f"{{{place}, {kind}, {port.border:#06x}, {tables}}}"

    def _part(self, part: HostPart) -> str:
        rows = tuple(f"{{{s.first}, {s.step}, {s.stride}, {s.count}, {s.repeats}}}" for s in part.spans)
        if rows not in self._spans:
            self._spans[rows] = f"spans_{len(self._spans)}"
            self._arrays.append(array("concord_span", self._spans[rows], rows))
        form = f"CONCORD_{GroupFormat(part.format).name}"
        numbers = f"{part.lanes}, {part.last}, {part.tiles}, {part.groups}, {part.address}"
        return f"{{{part.port}, {form}, {numbers}, {self._spans[rows]}}}"

    def _network(self) -> str:
        config, made = self.made.config, self.made
        wait = max(1, min(int(config.clock_hz * _WAIT_SECONDS), (1 << 32) - 1))
        fields = {
            "fingerprint": f"{config.fingerprint & 0xFFFF_FFFF:#010x}U",
            "fingerprint_high": f"{config.fingerprint >> 32:#010x}U",
            "native": config.native,
            "mantissa": config.act_mant,
            "mantissa_bytes": config.mantissa_bytes,
            "exponent_bits": config.act_exp_width,
            "narrow_bytes": config.narrow_word.nbytes,
            "script_word": SCRIPT_WORD.nbytes,
            "exponent_least": config.act.exp_min,
            "exponent_greatest": config.act.exp_max,
            "program_depth": config.program_depth,
            "payload": config.max_payload,
            "window": config.request_buffer,
            "outbox": config.outbox_depth,
            "wait_cycles": f"{wait}U",
            "slots": self._slots,
            "slot_bytes": self._slot_bytes,
            "reply_bytes": self._reply_bytes,
            "segments": "segments",
            "inputs": "input_ports",
            "outputs": "output_places",
            "phases": "phases" if made.phases else "NULL",
            "route": "NULL" if made.route is None else "&route",
            "layers": "layers" if self._layers() else "NULL",
            "digest": "NULL" if self._digest_start is None else "digest",
            "digest_start": self._digest_start or 0,
            "segment_count": "sizeof segments / sizeof *segments",
            "phase_count": len(made.phases),
            "layer_count": len(self._layers()),
        }
        lines = "".join(f"    .{field} = {value},\n" for field, value in fields.items())
        return f"const concord_network {self.name}_network = {{\n{lines}}};"

    def _functions(self) -> Iterable[str]:
        name = self.name
        zeros = f"    static const {name}_outputs zeros;\n    *outputs = zeros; /* some elements are always zero */\n"
        zeros = "" if all(port.complete for port in self.made.outputs) else zeros
        yield (
            f"concord_result {name}_connect({name}_npu *npu, const concord_line *line)\n{{\n"
            f"    return concord_connect(&npu->device, &{name}_network, line, npu->slots, npu->reply);\n}}"
        )
        columns = "columns" if self._columns else "NULL"
        yield (
            f"concord_result {name}_load({self._load_parameters})\n{{\n"
            f"    return concord_load(&npu->device, {columns});\n}}"
        )
        yield (
            f"concord_result {name}_run({name}_npu *npu, const {name}_inputs *inputs, {name}_outputs *outputs)\n{{\n"
            f"{zeros}    return concord_run(&npu->device, inputs, outputs);\n}}"
        )
        if self.made.route is not None:
            yield (
                f"concord_result {name}_put({name}_npu *npu, const {name}_inputs *inputs)\n{{\n"
                "    return concord_put(&npu->device, inputs);\n}"
            )
            yield (
                f"concord_result {name}_get({name}_npu *npu, {name}_outputs *outputs)\n{{\n"
                f"{zeros}    return concord_get(&npu->device, outputs);\n}}"
            )


# Texts of C -----------------------------------------------------------------------------------------


def _double(value: float) -> str:
    """Exactly this number: with 17 digits a compiler that follows IEEE 754 reads it back."""
    return repr(float(value))


def _member(name: str, shape: Shape, original: str, coded: bool = False) -> str:
    sizes = "".join(f"[{size}]" for size in shape)
    text = "" if original == name else f" /* {comment(original)} */"
    return f"    {'uint8_t' if coded else 'float'} {name}{sizes};{text}"
