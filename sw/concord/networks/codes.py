"""A network on codes as two files: what is computed, and its tables [transfer-lut].

net.program   operations, weights and schemes
net.tables    tables of point-wise functions, equal ones once (:class:`concord.transfer.TransferSet`)
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from concord.image.container import FileKind, read_file, write_file
from concord.integer.graph import IntegerGraph
from concord.integer.network import IntegerNetwork
from concord.integer.operations import TableOperation
from concord.integer.wide import WIDE
from concord.integer.wide_numbers import WideNumbers
from concord.networks.records import RecordReader, RecordWriter
from concord.spec.stored import PROGRAM, TABLES
from concord.transfer import Codes, TransferSet
from concord.transfer.records import target_of, target_record


class ProgramError(ValueError):
    """A network on codes that is none, or a damaged one."""


PROGRAM_FILE = FileKind("integer program", "an integer program", 1, ProgramError)
#: The kind of a tensor of wide numbers.
_WIDE = WideNumbers.__name__


def write_codes(network: IntegerNetwork, part: Path) -> None:
    """Write the two files of a network to a folder that is being made."""
    graph = network.graph
    sites = {id(part.table): part.output for part in graph.operations if isinstance(part, TableOperation)}
    writer = RecordWriter(lambda table: sites[id(table)])
    header = {
        "name": graph.name,
        "schemes": {name: _record(scheme) for name, scheme in graph.schemes.items()},
        "inputs": graph.inputs,
        "outputs": graph.outputs,
        "aliases": graph.aliases,
        "shapes": {name: list(shape) for name, shape in graph.shapes.items()},
        "operations": [writer.record(operation) for operation in graph.operations],
        "tables": network.tables.digest,
    }
    write_file(part / PROGRAM, header, {f"array_{k}": array for k, array in enumerate(writer.arrays)}, PROGRAM_FILE)
    network.tables.save(part / TABLES)


def codes_of(folder: Path, data: Mapping[str, bytes]) -> IntegerNetwork:
    """Network in the files of a folder; neither onnx nor the model is needed for that.

    Raises
    ------
    ProgramError
        If a file is damaged, of another version or of another network.
    TransferError
        The same of the tables alone.
    """
    tables = TransferSet.load(folder / TABLES, data[TABLES])
    header, arrays = read_file(folder / PROGRAM, PROGRAM_FILE, data[PROGRAM])
    if header.get("tables") != tables.digest:
        raise ProgramError(f"{folder / TABLES} must be the tables of {PROGRAM}, not those of another network")
    try:
        return _network(header, [arrays[f"array_{k}"] for k in range(len(arrays))], tables)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        raise ProgramError(f"{folder / PROGRAM} has contents that are not valid here: {error!r}") from error


def _network(header: Mapping[str, Any], arrays: list[NDArray[Any]], tables: TransferSet) -> IntegerNetwork:
    reader = RecordReader(arrays, tables.table)
    graph = IntegerGraph(
        header["name"],
        {name: _scheme(record) for name, record in header["schemes"].items()},
        header["inputs"],
        header["outputs"],
        [reader.operation(record) for record in header["operations"]],
        header["aliases"],
        {name: tuple(sizes) for name, sizes in header["shapes"].items()},
    )
    _check(graph)
    return IntegerNetwork(graph, tables)


def _record(scheme: Codes | WideNumbers) -> dict[str, Any]:
    return {"kind": _WIDE} if isinstance(scheme, WideNumbers) else target_record(scheme)


def _scheme(record: dict[str, Any]) -> Codes | WideNumbers:
    if record.get("kind") == _WIDE:
        return WIDE
    scheme = target_of(record)
    if not isinstance(scheme, Codes):
        raise ValueError(f"scheme must be Codes, not {scheme!r}")
    return scheme


def _check(graph: IntegerGraph) -> None:
    """``ValueError`` unless every tensor has a scheme, and is made before it is read."""
    made = set(graph.inputs.values())
    for operation in graph.operations:
        if missing := set(operation.inputs) - made:
            raise ValueError(f"{operation.name!r} must read what is made before it, not {sorted(missing)}")
        made.add(operation.output)
    named = {*graph.outputs.values(), *graph.aliases.values()}
    if missing := (made - set(graph.schemes)) | (named - made) | (set(graph.inputs) - set(graph.shapes)):
        raise ValueError(f"tensors must be made and have schemes, and inputs shapes, unlike {sorted(missing)}")
