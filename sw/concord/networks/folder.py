"""A compiled network as a folder.

npu.image     program and constants (:mod:`concord.image`)
network.npz   arrangement of inputs and outputs, formats, weights that are not rounded to the nearest
model.onnx    the network, of which the host computes the end; of one on codes it may be model.tflite
net.program   operations of a network on codes (:mod:`concord.networks.codes`)
net.tables    its tables
manifest.json their hashes (:mod:`concord.utils.folders`)

The first two are for an NPU. A network on codes may be without them. Folders of networks on codes that were written
before have no model, and the arrangement in npu.ports.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy.typing as npt

from concord.compiler.codes.package import CodesPackage, compile_codes, split_of
from concord.compiler.emission.package import Package
from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.ir.expected_error import ExpectedError
from concord.compiler.ir.input_record import InputRecord
from concord.compiler.ir.quantised_model import QuantisedModel
from concord.compiler.ir.tensor_formats import DEFAULT, Formats
from concord.compiler.lowering.host_partition import split, without_front
from concord.compiler.model import ACCUMULATOR, Compiled, compile_graph, with_front
from concord.frontend import import_model
from concord.frontend.load import one_file
from concord.graph.ir import Graph
from concord.image import Image
from concord.image.container import FileKind, read_file, write_file
from concord.integer.network import IntegerNetwork
from concord.networks.codes import codes_of, write_codes
from concord.spec.stored import IMAGE, MODEL, PROGRAM, TABLES, TFLITE
from concord.utils import foreign
from concord.utils.arrays import Array
from concord.utils.files import write_bytes
from concord.utils.folders import FolderForm, FolderKind
from concord.utils.foreign import is_tflite, tflite_contents

NETWORK = "network.npz"
#: Arrangement of a network on codes in folders of before.
_PORTS = "npu.ports"


class PackageError(ValueError):
    """A folder that is no compiled network, or a damaged one."""


NETWORK_FILE = FileKind("network", "a network", 11, PackageError)
#: File kind of the arrangement of a network on codes in folders of before.
_PORTS_FILE = FileKind("ports of a network on codes", "ports of a network on codes", 1, PackageError)
#: Reason for which a network on codes does not run on an NPU, and what helps.
_NO_PROGRAM = "this network on codes was compiled without one; compile --exact with --preset makes one"
_NAME, _CODES = "compiled network", (PROGRAM, TABLES)
NETWORK_FOLDER = FolderKind(
    _NAME,
    "a compiled network",
    (IMAGE, NETWORK, MODEL),
    ("report.html", "report.json"),
    "compile the network again",
    PackageError,
    (
        *(FolderForm(_NAME, (*_CODES, model)) for model in (MODEL, TFLITE)),
        *(FolderForm(_NAME, (*_CODES, model, IMAGE, NETWORK)) for model in (MODEL, TFLITE)),
        FolderForm("network on codes", _CODES),
        FolderForm("network on codes for an NPU", (*_CODES, IMAGE, _PORTS)),
    ),
)


def save_package(package: Package, folder: Path, model: Path | bytes) -> None:
    """Write everything to a folder, whole or not at all; ``model`` is the file of the model, or its contents.

    Raises
    ------
    PackageError
        If something else than a compiled network is there.
    OSError
        If it cannot be written; a network that was there is unchanged.
    """
    _save(folder, model, package, package.network if isinstance(package, CodesPackage) else None)


def save_codes(network: IntegerNetwork, folder: str | Path, model: Path | bytes) -> None:
    """Write a network on codes without an NPU; parameters and errors as for :func:`save_package`."""
    _save(Path(folder), model, None, network)


def _save(folder: Path, model: Path | bytes, package: Package | None, codes: IntegerNetwork | None) -> None:
    contents = model if isinstance(model, bytes) else tflite_contents(model) or one_file(model)
    with NETWORK_FOLDER.replacing(folder) as part:
        write_bytes(part / (TFLITE if is_tflite(contents) else MODEL), contents)
        if package is not None:
            package.image.save(part / IMAGE)
            _save_arrangement(package, part / NETWORK)
        if codes is not None:
            write_codes(codes, part)


def _save_arrangement(package: Package, path: Path) -> None:
    arranged, orders = package.arrangement.to_record()
    arrays: dict[str, Array] = dict(orders)
    arrays |= {f"weight_{k}": weight for k, weight in enumerate(package.formats.weights.values())}
    options: dict[str, Any] = {"weights": list(package.formats.weights), "formats": package.formats.to_dict()}
    options["partition"] = package.partition
    if package.npu_nodes is not None:
        options |= {"npu_nodes": sorted(package.npu_nodes), "stay": list(package.stay)}
    if package.quantised_model is not None:
        options["quantised_model"] = package.quantised_model.to_dict()
    options["input_records"] = {name: record.to_dict() for name, record in package.input_records.items()}
    if package.expected_error is not None:
        options["expected_error"] = package.expected_error.to_dict()
    write_file(path, {**arranged, **options}, arrays, NETWORK_FILE)


def load_package(folder: Path) -> Package:
    """Read a folder; :class:`PackageError` or ``ImageError`` if it is none, has no program for an NPU, or is damaged.

    Of a network on codes it may be ``ProgramError`` or ``TransferError``, too.
    """
    return package_of(folder, NETWORK_FOLDER.read(folder))


def load_codes(folder: str | Path) -> IntegerNetwork:
    """Network on codes in a folder, as it is; neither onnx nor the model is needed for that.

    Raises
    ------
    PackageError
        If the folder is no compiled network, or none on codes.
    ProgramError, TransferError
        If it is damaged.
    """
    path = Path(folder)
    data = NETWORK_FOLDER.read(path)
    if PROGRAM not in data:
        raise PackageError(f"{folder} must be a network on codes, of compile --exact: {PROGRAM} is missing")
    return codes_of(path, data)


def has_codes(path: Path) -> bool:
    """True if a folder is a network on codes, or was one."""
    return (path / PROGRAM).exists() or (path / TABLES).exists()


def has_program(path: Path) -> bool:
    """True if a folder has a program for an NPU, or if it is no network on codes."""
    return (path / IMAGE).exists() or not has_codes(path)


def package_of(folder: Path, data: Mapping[str, bytes]) -> Package:
    """Package in a folder with these files; errors as for :func:`load_package`."""
    if IMAGE not in data:
        raise PackageError(f"{folder} must have a program for an NPU: {_NO_PROGRAM}")
    network = codes_of(folder, data) if PROGRAM in data else None
    try:
        return _package_of(folder, data) if network is None else _codes_package_of(folder, data, network)
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise PackageError(
            f"{folder / (_PORTS if _PORTS in data else NETWORK)} has contents that are not valid here; compile the "
            "network again"
        ) from error


def _codes_package_of(folder: Path, data: Mapping[str, bytes], network: IntegerNetwork) -> CodesPackage:
    image = Image.load(folder / IMAGE, data=data[IMAGE])
    if _PORTS in data:
        header, arrays = read_file(folder / _PORTS, _PORTS_FILE, data[_PORTS])
        formats = DEFAULT
    else:
        header, arrays = read_file(folder / NETWORK, NETWORK_FILE, data[NETWORK])
        formats = _formats_of(header, arrays)
    arrangement, split = Arrangement.of_record(header, arrays), split_of(network, image.config)
    if not arrangement.fits(image) or set(arrangement.outputs) != set(split.npu.outputs):
        raise LookupError("ports")
    return CodesPackage(
        image=image, arrangement=arrangement, host_graph=None, formats=formats, network=network, split=split
    )


def _formats_of(header: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Formats:
    weights = {name: arrays[f"weight_{k}"] for k, name in enumerate(header["weights"])}
    return Formats.from_dict(header["formats"], weights)


def _package_of(folder: Path, data: Mapping[str, bytes]) -> Package:
    header, arrays = read_file(folder / NETWORK, NETWORK_FILE, data[NETWORK])
    arrangement = Arrangement.of_record(header, arrays)
    formats, measured = _formats_of(header, arrays), header.get("quantised_model")
    quantised = None if measured is None else QuantisedModel.from_dict(measured)
    nodes = header.get("npu_nodes")  # of a network of which the NPU computes what it holds
    stay = tuple(header.get("stay", ())) if quantised is None else quantised.stay
    graph = _graph(data[MODEL], stay, header["partition"], None if nodes is None else frozenset(nodes))
    graph = replace(graph, states=arrangement.state_results)
    image, parts = Image.load(folder / IMAGE, data=data[IMAGE]), without_front(graph)
    arrangement = replace(arrangement, beside=frozenset(parts.rest.inputs) - {*arrangement.inputs, *arrangement.states})
    if not arrangement.fits(image):
        raise LookupError("ports")
    records = {name: InputRecord.from_dict(values) for name, values in header["input_records"].items()}
    if not set(records) <= set(arrangement.inputs):
        raise LookupError("input records")
    expected = header.get("expected_error")  # of a network whose errors were measured
    return Package(
        image,
        arrangement,
        split(parts.rest)[1],
        formats,
        quantised_model=quantised,
        input_records=records,
        expected_error=None if expected is None else ExpectedError.from_dict(expected),
        front=parts.front,
        element_types=graph.element_types,
        partition=graph.partition,
        npu_nodes=graph.npu_nodes,
        stay=stay,
        texts=graph.texts,
        float_types=graph.float_types,
    )


def _graph(model: bytes, stay: tuple[str, ...], partition: str, npu_nodes: frozenset[str] | None) -> Graph:
    """The network of a file, with the pairs that were computed when it was compiled."""
    return replace(import_model(model, stay=stay), partition=partition, npu_nodes=npu_nodes)


def recompile(folder: Path) -> Compiled:
    """Compile the network in a folder once more, with the same options: what a folder does not hold are its layers.

    Raises
    ------
    PackageError
        If the folder is no compiled network, or the program or the constants differ from those in it.
    """
    data = NETWORK_FOLDER.read(folder)
    package = package_of(folder, data)
    if isinstance(package, CodesPackage):
        compiled = compile_codes(package.network, package.config)
        _check_same(folder, compiled, package)
        return compiled
    graph = _graph(data[MODEL], package.stay, package.partition, package.npu_nodes)
    parts = without_front(replace(graph, states=package.arrangement.state_results))
    try:
        compiled = compile_graph(parts.rest, package.config, package.formats, batch=package.arrangement.batch)
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise PackageError(f"{folder} must hold formats that its network can have: compile it again") from error
    _check_same(folder, compiled, package)
    image, kept = compiled.image, package.image
    if ACCUMULATOR in kept.metadata:
        image = replace(image, metadata={**image.metadata, ACCUMULATOR: kept.metadata[ACCUMULATOR]})
    known = replace(
        compiled.package,
        image=image,
        quantised_model=package.quantised_model,
        stay=package.stay,
        input_records=package.input_records,
        expected_error=package.expected_error,
    )
    return with_front(replace(compiled, package=known), parts, graph)


def _check_same(folder: Path, compiled: Compiled, package: Package) -> None:
    """Refuse a folder whose program or constants are not those of its network."""
    made, kept = compiled.image, package.image
    if (made.program, made.segments, made.phases) != (kept.program, kept.segments, kept.phases):
        raise PackageError(f"{folder} must hold what its network compiles to, but does not: compile it again")


def load(path: Path) -> tuple[Image, Package | None]:
    """The image of a compiled network and the package in its folder, or an image in a file, which has none.

    Raises
    ------
    ValueError
        As :func:`load_package` and :func:`load_image` do.
    """
    package = load_package(path) if path.is_dir() else None
    return (load_image(path) if package is None else package.image), package


def load_image(path: Path) -> Image:
    """The image in a file, or in the folder of a compiled network.

    Raises
    ------
    ValueError
        If it is neither; :class:`concord.image.ImageError` if the file is damaged.
    """
    if path.is_dir():
        return load_package(path).image
    if not zipfile.is_zipfile(path):
        kind = foreign.kind_of(path)
        first = "compile it first" if kind == foreign.ONNX else "concord compile makes one of an ONNX model"
        raise ValueError(
            f"{path} must be a compiled network or an image, not {kind}; {first}: concord compile MODEL.onnx -o NAME, "
            "then name the folder NAME"
        )
    return Image.load(path)
