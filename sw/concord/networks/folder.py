"""A compiled network as a folder.

npu.image     program and constants (:mod:`concord.image`)
network.npz   arrangement of inputs and outputs, formats, weights that are not rounded to the nearest
model.onnx    the network, of which the host computes the end
manifest.json their hashes (:mod:`concord.utils.folders`)
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from concord.compiler.emission.package import Package
from concord.compiler.ir.arrangement import Arrangement
from concord.compiler.ir.expected_error import ExpectedError
from concord.compiler.ir.input_record import InputRecord
from concord.compiler.ir.quantised_model import QuantisedModel
from concord.compiler.ir.tensor_formats import Formats
from concord.compiler.lowering.host_partition import split, without_front
from concord.compiler.model import ACCUMULATOR, Compiled, compile_graph, with_front
from concord.frontend import import_model
from concord.frontend.load import one_file
from concord.graph.ir import Graph
from concord.image import Image
from concord.image.container import FileKind, read_file, write_file
from concord.spec.stored import IMAGE, MODEL
from concord.utils import foreign
from concord.utils.arrays import Array
from concord.utils.files import write_bytes
from concord.utils.folders import FolderKind

NETWORK = "network.npz"


class PackageError(ValueError):
    """A folder that is no compiled network, or a damaged one."""


NETWORK_FILE = FileKind("network", "a network", 11, PackageError)
NETWORK_FOLDER = FolderKind(
    "compiled network",
    "a compiled network",
    (IMAGE, NETWORK, MODEL),
    ("report.html", "report.json"),
    "compile the network again",
    PackageError,
)


def save_package(package: Package, folder: Path, model: Path | bytes) -> None:
    """Write everything to a folder, whole or not at all; ``model`` is the ONNX file, or its contents.

    Raises
    ------
    PackageError
        If something else than a compiled network is there.
    OSError
        If it cannot be written; a network that was there is unchanged.
    """
    network = model if isinstance(model, bytes) else one_file(model)
    with NETWORK_FOLDER.replacing(folder) as part:
        package.image.save(part / IMAGE)
        write_bytes(part / MODEL, network)
        _save_arrangement(package, part / NETWORK)


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
    """Read a folder; :class:`PackageError` or ``ImageError`` if it is none, or damaged."""
    return package_of(folder, NETWORK_FOLDER.read(folder))


def package_of(folder: Path, data: Mapping[str, bytes]) -> Package:
    """Package in a folder with these files; errors as for :func:`load_package`."""
    try:
        return _package_of(folder, data)
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise PackageError(
            f"{folder / NETWORK} has contents that are not valid here; compile the network again"
        ) from error


def _package_of(folder: Path, data: Mapping[str, bytes]) -> Package:
    header, arrays = read_file(folder / NETWORK, NETWORK_FILE, data[NETWORK])
    arrangement = Arrangement.of_record(header, arrays)
    weights = {name: arrays[f"weight_{k}"] for k, name in enumerate(header["weights"])}
    formats, measured = Formats.from_dict(header["formats"], weights), header.get("quantised_model")
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
    graph = _graph(data[MODEL], package.stay, package.partition, package.npu_nodes)
    parts = without_front(replace(graph, states=package.arrangement.state_results))
    try:
        compiled = compile_graph(parts.rest, package.config, package.formats, batch=package.arrangement.batch)
    except (LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise PackageError(f"{folder} must hold formats that its network can have: compile it again") from error
    image, kept = compiled.image, package.image
    if (image.program, image.segments, image.phases) != (kept.program, kept.segments, kept.phases):
        raise PackageError(f"{folder} must hold what its network compiles to, but does not: compile it again")
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
