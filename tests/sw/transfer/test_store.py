"""Transfer tables of a network: shared, kept in a file, and checked."""

import io
import json
import zipfile
from fractions import Fraction

import numpy as np
import pytest

from concord.image import Image
from concord.image.container import ImageError, read_file, write_file
from concord.spec.formats import Rounding
from concord.transfer import (
    Binary16,
    CodeRange,
    Codes,
    TransferError,
    TransferSet,
    TransferTable,
    table_index,
    transfer_table,
)
from concord.transfer.records import target_of, target_record
from concord.transfer.store import _KIND
from support.random_schemes import fixed_point, of_range, symmetric

A = symmetric(8, 0.05)
UP, TENTH = (CodeRange.UNSIGNED, Rounding.NEAREST_AWAY), Fraction(1, 10)


def cube(x):
    return x**3


def network():
    """Seven sites, five tables."""
    tables = TransferSet()
    tables.add("a", transfer_table(A, ["sigmoid"], Codes(8, 1 / 256, 0, CodeRange.UNSIGNED)))
    tables.add("b", transfer_table(A, ["relu"], A))
    tables.add("c", transfer_table(symmetric(8, 3), ["relu"], symmetric(8, 3)))  # no step shows in the codes
    tables.add("d", transfer_table(of_range(9, -0.1, 0.3), [("elu", {"alpha": 0.1}), "tanh"], fixed_point(2, 13)))
    tables.add("e", transfer_table(table_index(-9, 9, 2), ["exp", ("mul", {"by": Fraction(1, 3)})], Binary16()))
    tables.add("f", transfer_table(A, ["sigmoid", "relu"], Codes(8, 1 / 256, 0, CodeRange.UNSIGNED)))
    tables.add("g", transfer_table(A, [cube], Codes(16, 0.25, -5, rounding=Rounding.NEAREST_AWAY)))
    return tables


@pytest.fixture
def path(tmp_path):
    """The tables of the network, in a file."""
    file = tmp_path / "net.tables"
    network().save(file)
    return file


def rewritten(path, change):
    """Change a file and give it a checksum that agrees."""
    header, arrays = read_file(path, _KIND)
    plain = {key: value for key, value in header.items() if key not in ("format", "version", "sha256")}
    arrays = {name: array.copy() for name, array in arrays.items()}
    change(plain, arrays)
    write_file(path, plain, arrays, _KIND)


def test_equal_tables_are_stored_once():
    report = network().report()
    assert (report.sites, report.tables) == (7, 5)
    assert report.users == (("a", "f"), ("b", "c"), ("d",), ("e",), ("g",))
    assert report.nbytes == 255 + 255 + 512 * 2 + 19 * 2 + 255 * 2
    assert report.unshared == report.nbytes + 255 + 255
    assert str(report) == "7 sites, 5 tables, 2082 bytes (2592 without sharing)"


def test_every_difference_makes_a_table_of_its_own():
    source = symmetric(4, 1)
    base = list(range(-7, 8))
    tables = TransferSet()
    one_entry = [*base[:-1], 6]
    variants = [
        TransferTable(source, (), symmetric(8, 1), base),
        TransferTable(source, (), symmetric(8, 1), one_entry),
        TransferTable(source, (), symmetric(8, 1), [-6, *base[1:]]),
        TransferTable(table_index(-6, 8, 0), (), symmetric(8, 1), base),  # another range of codes
        TransferTable(source, (), symmetric(16, 1), base),  # another width
    ]
    assert [tables.add(f"{k}", table) for k, table in enumerate(variants)] == [0, 1, 2, 3, 4]
    assert tables.add("same", variants[1]) == 1
    assert np.array_equal(tables.apply("same", [7, 0]), [6, 0]) and tables.apply("0", 7) == 7


def test_a_file_gives_back_the_same_bits(tmp_path):
    tables, path = network(), tmp_path / "net.tables"
    tables.save(path)
    first = path.read_bytes()
    loaded = TransferSet.load(path)
    assert loaded.sites == tables.sites and loaded.report() == tables.report()
    for name in tables.sites:
        assert loaded.table(name) == tables.table(name)
        assert loaded.table(name).entries.dtype == tables.table(name).entries.dtype
    loaded.save(path)
    assert path.read_bytes() == first
    loaded.check({"cube": cube})


@pytest.mark.slow
@pytest.mark.parametrize("always_exact", [False, True])
def test_the_check_finds_any_changed_entry(tmp_path, always_exact):
    path = tmp_path / "net.tables"
    for k in range(5):
        network().save(path)
        rewritten(path, lambda header, arrays, k=k: arrays[f"table_{k}"].__setitem__(-1, 0 if k != 4 else 1))
        with pytest.raises(TransferError, match=r"the entry of site '[a-g]' for code \d+ must be .*, not \d \(1 of"):
            TransferSet.load(path).check({"cube": cube}, always_exact=always_exact)
    tables = network()
    tables.check(always_exact=always_exact)


def test_the_check_finds_a_changed_step(path):
    rewritten(path, lambda header, arrays: header["sites"][0]["source"].update(scale="1/21"))
    with pytest.raises(TransferError, match="the entry of site 'a'"):
        TransferSet.load(path).check({"cube": cube})


def test_a_callers_function_must_be_given_again(path):
    with pytest.raises(ValueError, match="operator cube must be given as a callable"):
        TransferSet.load(path).check()
    with pytest.raises(TransferError, match="site 'g'"):
        TransferSet.load(path).check({"cube": lambda x: x**5})


def test_damaged_files_are_refused(path):
    good = path.read_bytes()
    rng = np.random.default_rng(3)
    refused = 0
    for at in rng.choice(len(good), 60, replace=False):
        bad = bytearray(good)
        bad[at] ^= 1 << rng.integers(8)
        path.write_bytes(bad)
        try:
            loaded = TransferSet.load(path)
        except TransferError:
            refused += 1
            continue
        assert loaded.sites == network().sites  # a byte that carries nothing, such as the date of an archive member
        loaded.check({"cube": cube})
    assert refused > 45
    for cut in (0, 1, len(good) // 2, len(good) - 1):
        path.write_bytes(good[:cut])
        with pytest.raises(TransferError, match="is not a file of transfer tables, or it is damaged"):
            TransferSet.load(path)


def test_an_entry_changed_without_its_checksum_is_refused(path):
    with np.load(path) as archive:
        arrays = {name: archive[name].copy() for name in archive.files}
    arrays["table_0"][3] ^= 1
    with path.open("wb") as file:
        np.savez(file, **arrays)
    with pytest.raises(TransferError, match="is damaged: contents and checksum do not agree"):
        TransferSet.load(path)


def swap(header, arrays):
    header["sites"][0]["table"] = 1


@pytest.mark.parametrize(
    "change",
    [
        lambda header, arrays: header.pop("sites"),
        lambda header, arrays: header["low"].append(0),
        lambda header, arrays: arrays.update(extra=np.zeros(1)),
        lambda header, arrays: arrays.update(table_0=arrays["table_0"][1:]),
        lambda header, arrays: arrays.update(table_0=arrays["table_0"].astype(np.uint16)),
        lambda header, arrays: arrays.update(table_0=arrays["table_0"].astype(np.float64)),
        lambda header, arrays: arrays.update(table_0=arrays["table_1"]),
        lambda header, arrays: header["low"].__setitem__(0, -126),
        lambda header, arrays: header["low"].__setitem__(0, "-127"),
        lambda header, arrays: header["sites"][0].update(table=9),
        lambda header, arrays: header["sites"][0].update(table=-1),
        lambda header, arrays: header["sites"][0].update(table="0"),
        lambda header, arrays: header["sites"][0].update(table=True),
        lambda header, arrays: header["sites"][1].update(name="a"),
        lambda header, arrays: header["sites"][0].update(source={"kind": "Binary16"}),
        lambda header, arrays: header["sites"][0]["source"].update(kind="Logarithmic"),
        lambda header, arrays: header["sites"][0]["source"].update(scale="1/0"),
        lambda header, arrays: header["sites"][0]["source"].update(bits=17),
        lambda header, arrays: header["sites"][0]["source"].update(rounding="UP"),
        lambda header, arrays: header["sites"][0]["operators"][0].update(name="sine"),
        lambda header, arrays: header["sites"][0]["operators"][0].update(parameters={"alpha": "1"}),
        lambda header, arrays: header["sites"].pop(2) and header["sites"].pop(1),
        swap,
    ],
)
def test_files_that_do_not_hold_together_are_refused(path, change):
    rewritten(path, change)
    with pytest.raises(TransferError, match="has contents that are not valid here"):
        TransferSet.load(path)


def test_kinds_of_files_are_not_mixed_up(path):
    with pytest.raises(ImageError, match="is not an image: its header does not say so"):
        Image.load(path)
    write_file(path, {}, {})
    with pytest.raises(TransferError, match="is not a file of transfer tables: its header does not say so"):
        TransferSet.load(path)


def test_other_versions_are_refused(path):
    rewritten(path, lambda header, arrays: header.update(version=2))
    with pytest.raises(TransferError, match="must have transfer tables version 1, not 2"):
        TransferSet.load(path)


def test_the_file_is_a_plain_npz_with_json(path):
    """Whoever only looks values up needs numpy, or less."""
    with zipfile.ZipFile(path) as archive:
        header = json.loads(np.load(io.BytesIO(archive.read("header.npy"))).tobytes())
        site = next(site for site in header["sites"] if site["name"] == "b")
        entries = np.load(io.BytesIO(archive.read(f"table_{site['table']}.npy")))
    low = header["low"][site["table"]]
    assert [int(entries[j - low]) for j in (-127, -1, 0, 5, 127)] == [0, 0, 0, 5, 127]


def test_names_of_sites():
    tables = network()
    with pytest.raises(ValueError, match="name must be new, not that of the site 'a'"):
        tables.add("a", tables.table("b"))
    assert tables.report() == network().report()
    with pytest.raises(ValueError, match=r"name must be one of \['a', .*\], not 'z'"):
        tables.apply("z", 0)


RANGE = {"codes": "UNSIGNED", "rounding": "NEAREST_AWAY"}
THIRD = Fraction(1, 3)


@pytest.mark.parametrize(
    "record, want",
    [
        ({"kind": "UniformAffine", "bits": 5, "scale": "1/3", "zero_point": 3} | RANGE, Codes(5, THIRD, 3, *UP)),
        ({"kind": "MinMax", "bits": 9, "minimum": "-1/10", "maximum": "3"} | RANGE, of_range(9, -TENTH, 3, *UP)),
        ({"kind": "Symmetric", "bits": 8, "scale": "3", "rounding": "NEAREST_EVEN"}, symmetric(8, 3)),
        ({"kind": "FixedPoint", "integer": 2, "fraction": 13} | RANGE, fixed_point(2, 13, *UP)),
        ({"kind": "TableIndex", "first": 1, "last": 9, "scale": 2}, table_index(1, 9, 2)),
        ({"kind": "Binary16"}, Binary16()),
    ],
)
def test_records_of_earlier_versions_are_read(record, want):
    assert target_of(record) == want and target_of(target_record(want)) == want
    assert record["kind"] != "UniformAffine" or target_record(want) == record


def test_a_record_has_every_scale():
    codes = Codes(4, [0.5, TENTH], [1, -1], axis=2)
    assert target_of(json.loads(json.dumps(target_record(codes)))) == codes
    with pytest.raises(ValueError, match="kind must be one of codes or Binary16, not 'Other'"):
        target_of({"kind": "Other"})
