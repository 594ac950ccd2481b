"""Image files, their ports, and the hex files for block RAM."""

import io
import json
import zipfile

import numpy as np
import pytest

from concord.golden import binary16
from concord.golden.blocks import dequantize, quantize
from concord.image import (
    Image,
    ImageError,
    MemorySegment,
    Port,
    hex_files,
    pack_matrix,
    pack_vectors,
)
from concord.image.container import read_file, write_file
from concord.spec.memmap import RegionId, regions
from concord.spec.presets import TINY, UP5K

SLOT = {"low": -4, "high": 3, "offset": 4, "scale": 0, "settled_low": 0, "settled_high": 1}
TWO_ENGINES = TINY.replace(engines=2, matrix_depth=128)


def sample_image(config=TINY):
    weights = np.random.default_rng(1).normal(size=(5, 7))
    return Image(
        config=config,
        program=(1, 2, (1 << 64) - 1),
        segments=(
            MemorySegment.from_words(RegionId.MATRIX, 8, pack_matrix(weights, config), config),
            MemorySegment.from_words(RegionId.WIDE, 3, pack_vectors(np.arange(6.0), config), config),
            MemorySegment.from_words(RegionId.TABLE, 0, range(100), config),
            MemorySegment.from_words(RegionId.SLOTS, 0, [config.table_slot.pack(**SLOT)], config),
        ),
        inputs=(Port("x", RegionId.NARROW, 0, (2, 7)),),
        outputs=(Port("y", RegionId.WIDE, 10, (2, 5), "float16"), Port("z", RegionId.WIDE, 20, (), "float64")),
        metadata={"network": "sample", "layers": [1, 2.5, None]},
    )


# Ports --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("region", [RegionId.WIDE, RegionId.NARROW])
def test_ports_encode_and_decode(region):
    port = Port("x", region, 0, (3, 6), "float32")
    values = np.random.default_rng(6).normal(size=(3, 6))
    words = port.encode(values, TINY)
    got = port.decode(words, TINY)
    rounded = binary16.encode(values)
    padded = np.pad(rounded, ((0, 0), (0, 2))).reshape(-1, 4)
    blocks = quantize(padded, TINY.act)
    want = {
        RegionId.WIDE: binary16.decode(rounded),
        RegionId.NARROW: dequantize(blocks.mant, blocks.exp).reshape(3, 8)[:, :6],
    }
    assert got.dtype == np.float32 and np.array_equal(got, want[region])
    assert port.elements == 18 and port.vectors(TINY) == 6


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_a_port_gives_the_type_it_names(dtype):
    port = Port("x", RegionId.WIDE, 0, (4,), dtype)
    assert port.decode(port.encode(np.arange(4.0), TINY), TINY).dtype == dtype


def test_port_errors():
    with pytest.raises(ValueError, match="region of x must be WIDE or NARROW"):
        Port("x", RegionId.MATRIX, 0, (3,))
    with pytest.raises(ValueError, match="shape of x must have positive dimensions"):
        Port("x", RegionId.WIDE, 0, (3, 0))
    with pytest.raises(ValueError, match=r"x must have shape \(3,\), not \(4,\)"):
        Port("x", RegionId.WIDE, 0, (3,)).encode(np.zeros(4), TINY)
    with pytest.raises(ValueError, match="vectors must be 1 for shape"):
        Port("x", RegionId.WIDE, 0, (3,)).decode([0, 0], TINY)
    with pytest.raises(ValueError, match=r"port must be one of \['x', 'y', 'z'\], not 'q'"):
        sample_image().port("q")
    assert sample_image().port("y").address == 10


# Files --------------------------------------------------------------------------------------------


def test_save_and_load(tmp_path):
    image = sample_image()
    image.save(tmp_path / "a.npz")
    image.save(tmp_path / "b.npz")
    assert Image.load(tmp_path / "a.npz", TINY) == image
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_a_missing_file_is_not_called_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        Image.load(tmp_path / "none.npz")


@pytest.mark.slow
def test_damage_is_never_silent(tmp_path):
    """Every byte flipped in turn: the file is refused, or what it holds is unchanged."""
    path = tmp_path / "a.npz"
    image = sample_image()
    image.save(path)
    good = path.read_bytes()
    refused = 0
    for at in range(0, len(good), 3):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x41]) + good[at + 1 :])
        try:
            assert Image.load(path) == image
        except ImageError:
            refused += 1
    assert refused > len(good) / 3 * 0.6


@pytest.mark.parametrize("keep", [0, 1, 100, 0.5, 0.99])
def test_truncated_files_are_refused(tmp_path, keep):
    path = tmp_path / "a.npz"
    sample_image().save(path)
    good = path.read_bytes()
    path.write_bytes(good[: keep if isinstance(keep, int) else int(keep * len(good))])
    with pytest.raises(ImageError, match="damaged"):
        Image.load(path)


def rewrite(path, change, checksum=False):
    """Change the contents of a file in a way its archive does not notice."""
    header, arrays = read_file(path)
    change(header, arrays)
    if checksum:
        header.pop("sha256")
        write_file(path, header, arrays)
        return
    buffer = io.BytesIO()
    np.savez_compressed(buffer, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)
    path.write_bytes(buffer.getvalue())


def test_one_changed_bit_is_found(tmp_path):
    path = tmp_path / "a.npz"
    for name in ("program", "segment_0", "segment_3"):
        sample_image().save(path)

        def change(header, arrays, name=name):
            arrays[name] = arrays[name].copy()
            arrays[name].flat[0] ^= 1

        rewrite(path, change)
        with pytest.raises(ImageError, match="contents and checksum do not agree"):
            Image.load(path)
    sample_image().save(path)
    rewrite(path, lambda header, arrays: header["outputs"][0].update(address=11))
    with pytest.raises(ImageError, match="contents and checksum do not agree"):
        Image.load(path)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda header, arrays: header.update(version=99), "must have image version 5, not 99"),
        (lambda header, arrays: header.update(format="cat"), "is not an image"),
        (lambda header, arrays: header.update(spec=99), "must be for specification version 5, not 99"),
        (lambda header, arrays: header.update(spec=1), "must be for specification version 5, not 1; make it again"),
        (lambda header, arrays: header.update(fingerprint="0x1"), "must have fingerprint 0x[0-9a-f]{16}, not 0x0{15}1"),
        (lambda header, arrays: header["config"].update(native=5), "native must be a power of two"),
        (lambda header, arrays: header["config"].update(colour=5), r"not \['colour'\]"),
        (
            lambda header, arrays: header["outputs"][0].update(shape=[1 << 35, 1 << 35]),
            r"y must lie in 0\.\.63, not \d+\.\.\d+",
        ),
        (lambda header, arrays: header["outputs"][0].update(address=63), r"y must lie in 0\.\.63, not 63\.\.66"),
        (lambda header, arrays: header.pop("outputs"), "contents that are not valid here: 'outputs'"),
        (lambda header, arrays: arrays.pop("segment_1"), "contents that are not valid here: 'segment_1'"),
    ],
)
def test_other_versions_and_wrong_contents_are_refused(tmp_path, change, message):
    path = tmp_path / "a.npz"
    sample_image().save(path)
    rewrite(path, change, checksum=True)
    with pytest.raises(ImageError, match=message):
        Image.load(path)


def test_an_image_of_gigabytes_is_refused_before_it_is_read(tmp_path, monkeypatch):
    """More than any NPU holds, however short the file is: zeros are compressed to a thousandth."""
    path = tmp_path / "a.npz"
    sample_image().save(path)
    monkeypatch.setattr("concord.image.container._MOST", 100)
    with pytest.raises(ImageError, match=r"must have at most 100 bytes of arrays, not [\d,]+$"):
        Image.load(path)


def test_not_an_archive_and_an_archive_of_something_else(tmp_path):
    (tmp_path / "a.npz").write_text("hello")
    with zipfile.ZipFile(tmp_path / "b.npz", "w") as archive:
        archive.writestr("readme.txt", "hello")
    np.save(tmp_path / "c.npy", np.arange(3))
    for name in ("a.npz", "b.npz", "c.npy"):
        with pytest.raises(ImageError, match="is not an image"):
            Image.load(tmp_path / name)


def test_another_configuration_is_refused_with_the_difference(tmp_path):
    path = tmp_path / "a.npz"
    sample_image().save(path)
    other = TINY.replace(lanes=4, name="other")
    with pytest.raises(ImageError, match=r"another configuration: fingerprint 0x.*lanes: 2 / 4$"):
        Image.load(path, other)
    Image.load(path, TINY.replace(name="renamed", clock_hz=1))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"program": (1,) * 129}, "program must have at most 128 words, not 129"),
        ({"program": (1 << 64,)}, "program words must have 64 bits"),
        ({"segments": (MemorySegment(RegionId.WIDE, 60, 8, bytes(40)),)}, r"WIDE must lie in 0\.\.63, not 60\.\.64"),
        ({"segments": (MemorySegment(RegionId.WIDE, -1, 8, bytes(8)),)}, r"WIDE must lie in 0\.\.63, not -1\.\.-1"),
        ({"segments": (MemorySegment(RegionId.WIDE, 0, 7, bytes(7)),)}, "words of WIDE must have 8 bytes, not 7"),
        (
            {"segments": (MemorySegment(RegionId.MATRIX, 0, 3, b"\0\0\xf0"),)},
            "word 0 of MATRIX must have zeros in its upper 4 bits, not 15",
        ),
        ({"segments": (MemorySegment(RegionId.FLAGS, 0, 1, b"\0"),)}, "segments must not be in FLAGS"),
        ({"inputs": (Port("x", RegionId.WIDE, 62, (3, 4)),)}, r"x must lie in 0\.\.63, not 62\.\.64"),
    ],
)
def test_check(tmp_path, changes, message):
    image = Image(TINY, **{"program": (1,), **changes})
    with pytest.raises(ImageError, match=message):
        image.check()
    with pytest.raises(ImageError, match=message):
        image.save(tmp_path / "a.npz")


def test_a_memory_may_be_filled_to_its_last_word():
    words = tuple(range(TINY.program_depth))
    segments = tuple(
        MemorySegment(region, 0, area.nbytes, bytes(area.nbytes * area.depth))
        for region, area in regions(TINY).items()
        if region in (RegionId.WIDE, RegionId.TABLE)
    )
    Image(TINY, words, segments, inputs=(Port("x", RegionId.WIDE, 0, (64, 4)),)).check()


@pytest.mark.parametrize("bit", range(4))
def test_every_unused_bit_must_be_zero(bit):
    """A row of the matrix memory of ``TINY`` has 20 bits in 3 bytes."""
    word = TINY.matrix_row.pack(mant=[1, -1], exp=3)
    good, bad = (MemorySegment(RegionId.MATRIX, 0, 3, w.to_bytes(3, "little")) for w in (word, word | 1 << 20 + bit))
    Image(TINY, (1,), (good,)).check()
    with pytest.raises(ImageError, match="word 0 of MATRIX must have zeros in its upper 4 bits"):
        Image(TINY, (1,), (bad,)).check()


@pytest.mark.parametrize("change", [lambda x: x.reshape(2, -1), lambda x: x.view("<i8"), lambda x: x.view("<u4")])
def test_shape_and_type_of_an_array_are_covered_by_the_checksum(change, tmp_path):
    """Not only its bytes."""
    path = tmp_path / "a.npz"
    write_file(path, {}, {"program": np.arange(4, dtype="<u8")})
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    arrays["program"] = change(arrays["program"])
    np.savez_compressed(path, **arrays)
    with pytest.raises(ImageError, match="contents and checksum do not agree"):
        read_file(path)


def test_segment_words_have_the_width_of_the_region():
    with pytest.raises(ValueError, match="words of TABLE must have 16 bits, not 0x10000"):
        MemorySegment.from_words(RegionId.TABLE, 0, [1 << 16], TINY)
    segment = MemorySegment.from_words(RegionId.TABLE, 5, [1, 0xFFFF], TINY)
    assert segment.count == 2 and segment.words() == [1, 0xFFFF] and segment.data == b"\1\0\xff\xff"


# Hex files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [TINY, UP5K, TWO_ENGINES], ids=["tiny", "up5k", "two-engines"])
def test_hex_files_hold_every_memory(config):
    image = sample_image(config)
    files = hex_files(image, config)
    banks = [f"matrix_{row:02}" for row in range(config.rows)]
    assert set(files) == {"program", "narrow", "wide", "table", "slots", *banks}
    table = regions(config)
    depths = {name: table[RegionId[name.upper()]].depth for name in ("program", "narrow", "wide", "table", "slots")}
    for name, text in files.items():
        lines = text.splitlines()
        assert len(lines) == depths.get(name, config.matrix_depth)
        layout = config.matrix_row if name in banks else table[RegionId[name.upper()]].word
        assert {len(line) for line in lines} == {-(-layout.width // 4)}
        values = [int(line, 16) for line in lines]
        if name in banks:
            assert values == image.memory(RegionId.MATRIX)[banks.index(name) :: config.rows]
        else:
            assert values == image.memory(RegionId[name.upper()])


def test_hex_files_by_region():
    """One file per region: what the flow puts into a finished bitstream."""
    image = sample_image()
    files = hex_files(image, banks=False)
    assert set(files) == {"program", "matrix", "narrow", "wide", "table", "slots"}
    assert [int(word, 16) for word in files["matrix"].split()] == image.memory(RegionId.MATRIX)
    assert files["wide"] == hex_files(image)["wide"]


def test_later_segments_win():
    parts = (
        MemorySegment.from_words(RegionId.TABLE, 0, [1, 2, 3], TINY),
        MemorySegment.from_words(RegionId.TABLE, 1, [9], TINY),
    )
    assert Image(TINY, (), parts).memory(RegionId.TABLE)[:4] == [1, 9, 3, 0]
