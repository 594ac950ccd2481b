"""Files of arrays whose headers promise more than their bytes are refused before memory is asked for."""

import io
import zipfile

import numpy as np
import pytest
from numpy.lib import format as npy

from concord.utils.npz import NpzReader, read_npy, read_npz

HUGE = (1 << 20, 1 << 23)  # 64 TiB of float64


def header(shape, dtype="<f8"):
    """The header of an array with nothing behind it."""
    target = io.BytesIO()
    npy.write_array_header_1_0(target, {"descr": dtype, "fortran_order": False, "shape": shape})
    return target.getvalue()


def archive(path, data, compression=zipfile.ZIP_STORED, size=None):
    """A file with one member; ``size`` is what its directory says of the member's length."""
    with zipfile.ZipFile(path, "w", compression) as file:
        file.writestr("x.npy", data)
        if size is not None:
            file.filelist[0].file_size = size
    return path


def test_arrays_are_what_was_written(tmp_path):
    arrays = {
        "x": np.arange(12.0).reshape(3, 4),
        "turned": np.asfortranarray(np.ones((2, 5), np.int8)),
        "n": np.array(3),
    }
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "x.npz", **arrays)
        for found in (read_npz(tmp_path / "x.npz"), read_npz(tmp_path / "no", (tmp_path / "x.npz").read_bytes())):
            assert found.keys() == arrays.keys()
            for name, values in arrays.items():
                assert found[name].dtype == values.dtype and np.array_equal(found[name], values)


@pytest.mark.slow
def test_a_megabyte_of_zeros_may_be_short(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros(1 << 22))
    assert read_npz(tmp_path / "x.npz")["x"].shape == (1 << 22,)


@pytest.mark.parametrize("size", [None, 128 + (1 << 46)])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_header_that_promises_more(compression, size, tmp_path):
    """Alone, or with a directory that promises it as well."""
    path = archive(tmp_path / "x.npz", header(HUGE), compression, size)
    with pytest.raises(ValueError, match=r"x\.npz must be an npz file of arrays of numbers: x\.npy is"):
        read_npz(path)


@pytest.mark.parametrize("compression", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_compressions_are_refused(compression, tmp_path):
    path = archive(tmp_path / "x.npz", header((0,)), compression)
    with pytest.raises(ValueError, match="is not what NumPy writes"):
        read_npz(path)


def test_objects_are_refused(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="must hold numbers or texts, not Python's objects"):
        read_npz(tmp_path / "x.npz")


def test_more_than_is_wanted(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros(10), y=np.zeros(3))
    assert len(read_npz(tmp_path / "x.npz", most=104)) == 2
    with pytest.raises(ValueError, match=r"must have at most 103 bytes of arrays, not 104$"):
        read_npz(tmp_path / "x.npz", most=103)
    with NpzReader(tmp_path / "x.npz") as reader:
        assert reader.nbytes == 104


def test_what_is_no_archive(tmp_path):
    (tmp_path / "x.npz").write_bytes(b"text")
    with pytest.raises(ValueError, match="must be an npz file of arrays, not"):
        read_npz(tmp_path / "x.npz")


def test_one_array(tmp_path):
    path = tmp_path / "x.npy"
    for values in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((2, 5), np.int8)), np.array(3)):
        np.save(path, values)
        assert np.array_equal(read_npy(path), values) and read_npy(path).dtype == values.dtype


@pytest.mark.parametrize("data", [header(HUGE), header((2,)) + bytes(15), header((2,)) + bytes(17), b"text", b""])
def test_one_array_that_is_none(data, tmp_path):
    (tmp_path / "x.npy").write_bytes(data)
    with pytest.raises(ValueError, match=r"x\.npy must be an npy file of an array of numbers: "):
        read_npy(tmp_path / "x.npy")
