"""A network on codes in files: the same codes, and everything that does not belong together is refused."""

import dataclasses
import hashlib
import importlib
import inspect
import pkgutil
import shutil
import subprocess
import sys
from pathlib import Path
from types import UnionType
from typing import Union, get_args, get_origin, get_type_hints

import numpy as np
import pytest
from numpy.typing import NDArray
from onnxruntime.quantization import QuantFormat, QuantType

import concord.integer
from concord.frontend.codes import load
from concord.image.container import read_file, write_file
from concord.integer.graph import IntegerOperation
from concord.networks.codes import PROGRAM_FILE, ProgramError
from concord.networks.folder import NETWORK_FOLDER, PackageError, load_codes, load_package, save_codes
from concord.networks.records import _RENAMED, RecordReader, RecordWriter
from concord.report.code_facts import facts_of
from concord.transfer import CodeRange, Codes, TransferError, TransferTable, transfer_table
from concord.transfer.store import _KIND
from support.commands import run
from support.integer_nets import SHAPE, quantised, small_network

#: Contents of a model that nobody reads.
MODEL = b"a model" * 20
#: Files of a network on codes without an NPU.
FILES = ("model.onnx", "net.program", "net.tables", "manifest.json")
#: Folders that were written before networks on codes had the same folders as others.
BEFORE = Path(__file__).parent / "before"
TABLE = transfer_table(Codes.symmetric(4, 1), ["relu"], Codes.symmetric(4, 1))


@pytest.fixture(scope="module")
def samples():
    return np.random.default_rng(1).normal(size=(4, *SHAPE)).astype(np.float32)


@pytest.fixture(scope="module")
def network(samples, tmp_path_factory):
    options = {"quant_format": QuantFormat.QDQ, "activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    return load(quantised(tmp_path_factory.mktemp("small"), small_network(), samples, **options))


@pytest.fixture
def folder(network, tmp_path):
    save_codes(network, str(tmp_path / "net"), MODEL)
    return tmp_path / "net"


def test_the_same_codes(network, folder, samples):
    loaded = load_codes(folder)
    want, got = (item.run({"x": samples}, every=True) for item in (network, loaded))
    assert want.keys() == got.keys() and len(want) > 10
    assert all(np.array_equal(want[name], got[name]) and want[name].dtype == got[name].dtype for name in want)
    assert loaded.report() == network.report() and loaded.scheme("y") == network.scheme("y")
    assert facts_of(loaded) == facts_of(network)


def test_the_same_network_gives_the_same_bytes(network, folder, tmp_path):
    save_codes(load_codes(folder), tmp_path / "again", MODEL)
    for name in FILES:
        assert (folder / name).read_bytes() == (tmp_path / "again" / name).read_bytes()


@pytest.mark.slow
def test_onnx_is_not_needed(folder, samples, tmp_path):
    np.save(tmp_path / "x.npy", samples)
    code = f"""
import sys
sys.modules["onnx"] = sys.modules["onnxruntime"] = None
import numpy as np
from pathlib import Path
from concord.networks.folder import load_codes
network = load_codes({str(folder)!r})
print(int(network.run({{"x": np.load({str(tmp_path / "x.npy")!r})}})["y"].sum()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(result.stdout) == load_codes(folder).run({"x": samples})["y"].sum()


def change(folder, name, kind, changed):
    """Change a file of a folder, whose checksums are right afterwards."""
    header, arrays = read_file(folder / name, kind)
    plain = {key: value for key, value in header.items() if key not in ("format", "version", "sha256")}
    changed(plain)
    write_file(folder / name, plain, arrays, kind)
    NETWORK_FOLDER.seal(folder)


@pytest.mark.parametrize(
    "name, kind, error", [("net.program", PROGRAM_FILE, ProgramError), ("net.tables", _KIND, TransferError)]
)
def test_other_versions_are_refused(folder, name, kind, error):
    other = dataclasses.replace(kind, version=99)
    header, arrays = read_file(folder / name, kind)
    plain = {key: value for key, value in header.items() if key not in ("format", "version", "sha256")}
    write_file(folder / name, plain, arrays, other)
    NETWORK_FOLDER.seal(folder)
    with pytest.raises(error, match=f"{name} must have {kind.name} version {kind.version}, not 99"):
        load_codes(folder)


def test_tables_of_another_network_are_refused(network, folder):
    """Also if they are as many, of the same sizes and names: an entry is another."""
    tables = load_codes(folder).tables
    other = type(tables)()
    for name in tables.sites:
        table = tables.table(name)
        entries = table.entries.copy()
        entries[3] ^= 1
        other.add(name, dataclasses.replace(table, entries=entries))
    other.save(folder / "net.tables")
    with pytest.raises(PackageError, match=r"net\.tables is damaged or from elsewhere: manifest"):
        load_codes(folder)
    NETWORK_FOLDER.seal(folder)
    with pytest.raises(ProgramError, match=r"net\.tables must be the tables of net\.program, not those of anoth"):
        load_codes(folder)


def first_operation(header):
    return header["operations"][0]


@pytest.mark.parametrize(
    "changed, reason",
    [
        (lambda header: first_operation(header).update(kind="operations.NoSuch"), "kind must be a class of conc"),
        (lambda header: first_operation(header).update(kind="shapes.fixed_sizes"), "kind must be a class with"),
        (lambda header: first_operation(header).update(kind="nowhere.NoSuch"), "kind must be a class of"),
        (lambda header: first_operation(header)["fields"].pop("inputs"), "missing 1 required"),
        (lambda header: first_operation(header)["fields"].update(more=1), "unexpected keyword argument 'more'"),
        (lambda header: first_operation(header)["fields"]["weight"].update(array=99), "list index out of range"),
        (lambda header: first_operation(header)["fields"].update(inputs=["no"]), r"made before it, not \['no'\]"),
        (lambda header: header["operations"].reverse(), "must read what is made before it"),
        (lambda header: header["operations"].append(header["schemes"]["x_QuantizeLinear_Output"]), "KeyError"),
        (lambda header: header["operations"].append([]), r"record must be of an operation, not \[\]"),
        (lambda header: header["schemes"].clear(), "tensors must be made and have schemes, and inputs shapes, unlike"),
        (lambda header: header["shapes"].clear(), r"unlike \['x'\]"),
        (lambda header: header["outputs"].update(y="no"), r"unlike \['no'\]"),
        (lambda header: header.pop("aliases"), "KeyError"),
    ],
)  # fmt: skip
def test_programs_that_do_not_hold_together_are_refused(folder, changed, reason):
    change(folder, "net.program", PROGRAM_FILE, changed)
    with pytest.raises(ProgramError, match=rf"net\.program has contents that are not valid here: .*{reason}"):
        load_codes(folder)


def test_other_folders_are_refused(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackageError, match=r"must be a compiled network: npu\.image, network\.npz, model\.onnx, manif"):
        load_codes(tmp_path / "empty")
    with pytest.raises(PackageError, match="must have a program for an NPU: this network on codes was compiled witho"):
        load_package(folder)


@pytest.mark.parametrize("place", [BEFORE / "codes", BEFORE / "codes_npu"], ids=lambda place: place.name)
def test_folders_of_before(place, tmp_path):
    """They have no model, and the arrangement in a file of its own; what is written in their place has neither."""
    x = np.float32([[1, 2], [-3, 0.5], [12, -12]])
    np.savez(tmp_path / "x.npz", x=x)
    want = np.uint8([[136, 137], [119, 138], [138, 118]])
    net = shutil.copytree(place, tmp_path / "net")
    for words in ([], ["--exact"]):
        code, output = run("run", net, "-i", tmp_path / "x.npz", "-o", tmp_path / "y.npz", *words)
        assert code == 0, output
        assert np.array_equal(np.load(tmp_path / "y.npz")["y"], want)
    code, output = run("derive", net, "-o", tmp_path / "made.c")
    origin = hashlib.sha256((net / "net.program").read_bytes()).hexdigest()
    assert code == 0 and origin in (tmp_path / "made.h").read_text()
    save_codes(load_codes(net), net, MODEL)
    assert sorted(path.name for path in net.iterdir()) == sorted(FILES)


def modules():
    """All modules of networks on codes; those that need what is not installed are left out."""
    found = []
    for item in pkgutil.walk_packages(concord.integer.__path__, "concord.integer."):
        try:
            found.append(importlib.import_module(item.name))
        except ModuleNotFoundError as error:
            assert not str(error.name).startswith("concord")
    return found


def kinds(base):
    """The classes with all fields below a class, of all modules."""
    known = {module.__name__ for module in modules()}
    below = [base, *(kind for child in base.__subclasses__() for kind in kinds(child))]
    return [
        kind
        for kind in dict.fromkeys(below)
        if dataclasses.is_dataclass(kind) and not inspect.isabstract(kind) and kind.__module__ in known
    ]


def example(hint, rng):
    """A value of a type, as fields of operations have them."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return example(arguments[0], rng)
    if origin is tuple:
        items = [arguments[0]] * 2 if arguments[-1] is Ellipsis else arguments
        return tuple(example(item, rng) for item in items)
    if origin is np.ndarray:
        kind = np.float32 if hint == NDArray[np.float32] else np.int64
        return rng.integers(-70000, 70000, (3, 2)).astype(kind)
    if isinstance(hint, type) and issubclass(hint, Codes):
        return Codes(5, 0.1, 3, CodeRange.UNSIGNED)
    if hint is TransferTable:
        return TABLE
    plain = {int: 1 << 40, bool: True, str: "text", type(None): None, np.float32: np.float32(0.1)}
    return plain[hint] if hint in plain else made(kinds(hint)[0], rng)


def made(kind, rng):
    """An object with examples in all fields."""
    hints = get_type_hints(kind)
    return kind(**{item.name: example(hints[item.name], rng) for item in dataclasses.fields(kind)})


def same(a, b):
    """Whether two fields or objects hold the same, of the same types."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if dataclasses.is_dataclass(a) and not isinstance(a, Codes | TransferTable):
        return all(same(getattr(a, item.name), getattr(b, item.name)) for item in dataclasses.fields(a))
    return all(map(same, a, b)) and len(a) == len(b) if isinstance(a, tuple) else a == b


@pytest.mark.parametrize("kind", kinds(IntegerOperation), ids=lambda kind: kind.__name__)
def test_every_operation_comes_back(kind):
    """Whatever its fields are; a new class is here by itself."""
    operation = made(kind, np.random.default_rng(3))
    writer = RecordWriter(lambda table: "site")
    record = writer.record(operation)
    reader = RecordReader(writer.arrays, {"site": TABLE}.__getitem__)
    assert same(reader.operation(record), operation)


@pytest.mark.parametrize("old", _RENAMED)
def test_folders_have_the_names_of_classes_that_are_gone(old):
    """What a class that took the place of others has besides is what these were."""
    kind, besides = _RENAMED[old]
    module, _, name = kind.rpartition(".")
    operation = made(getattr(importlib.import_module(f"concord.integer.{module}"), name), np.random.default_rng(5))
    operation, writer = dataclasses.replace(operation, **besides), RecordWriter(lambda table: "site")
    items = writer.record(operation)["fields"]
    record = {"kind": old, "fields": {key: item for key, item in items.items() if key not in besides}}
    assert same(RecordReader(writer.arrays, {"site": TABLE}.__getitem__).operation(record), operation)


@pytest.mark.parametrize("shift", [{}, {"shift": 128}])
def test_folders_have_products_with_fields_of_their_requantisation(shift):
    """The zero point is added in front of the rounding, so that halves go to other codes with each one."""
    fields = {"name": "mul", "inputs": ["a", "b"], "output": "y", "zeros": [3, -1], "ratio": {"float32": "0x1p-1"},
              "zero_point": 5, "low": 0, "high": 20, **shift}  # fmt: skip
    product = RecordReader([], {}.__getitem__).operation({"kind": "operations.CodeProduct", "fields": fields})
    codes = np.arange(3 - 9, 3 + 40)
    halves = (codes - 3) / 2
    want = (np.rint(halves + 5 + shift.get("shift", 0)) - shift.get("shift", 0)).clip(0, 20)
    assert np.array_equal(product.run(codes, np.zeros_like(codes)), want)
    assert not np.array_equal(want, (np.rint(halves) + 5).clip(0, 20))


def test_every_move_and_requantisation_comes_back():
    rng = np.random.default_rng(4)
    for module in modules():
        for _, kind in inspect.getmembers(module, inspect.isclass):
            if kind.__module__ != module.__name__ or not dataclasses.is_dataclass(kind) or not hasattr(kind, "apply"):
                continue
            value, writer = made(kind, rng), RecordWriter(lambda table: "site")
            reader = RecordReader(writer.arrays, {"site": TABLE}.__getitem__)
            assert same(reader.value(writer.record(value)), value)


@pytest.mark.parametrize("values, size", [((-128, 127), 1), ((-129, 0), 2), ((0, 128), 2), ((-(1 << 15), 0), 2),
                                          ((-(1 << 15) - 1, 0), 4), ((0, 1 << 15), 4), ((-(1 << 31) - 1, 0), 8),
                                          ((), 1)])  # fmt: skip
def test_integers_are_as_narrow_as_their_values(values, size):
    writer = RecordWriter(lambda table: "")
    record = writer.record(np.array(values, dtype=np.int64))
    made = RecordReader(writer.arrays, {}.__getitem__).value(record)
    assert writer.arrays[0].itemsize == size and made.dtype == np.int64 and made.tolist() == [*values]


@pytest.mark.parametrize("value", [0.5, {"a": 1}, [1], np.zeros(2), b"a", Codes, lambda: 1])
def test_what_no_record_can_hold_is_refused(value):
    with pytest.raises(TypeError, match="must be"):
        RecordWriter(lambda table: "").record(value)
