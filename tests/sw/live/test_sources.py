"""Sources: small files made here, and a camera and a microphone in the place of libraries that would ask real ones."""

import random
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from concord.live import sounds
from concord.live.pictures import Camera, Folder, Video, encoded
from concord.live.sounds import Microphone, SoundWindows, WavFile
from concord.live.sources import hears, picture_source, sound_source
from support.fuzz.commands import damaged
from support.live_files import needs_opencv, plain, write_pictures, write_video, write_wav

RED, GREEN, BLUE = (200, 20, 20), (20, 200, 20), (20, 20, 200)
WINDOWS = SoundWindows(1000, 100, 40)


@needs_opencv
def test_a_video_gives_its_pictures_in_time(tmp_path):
    path = write_video(tmp_path / "a.avi", [plain(colour) for colour in (RED, GREEN, BLUE)], rate=20)
    captures = list(Video(path).captures())
    assert [capture.position for capture in captures] == pytest.approx([0, 0.05, 0.1])
    for capture, colour in zip(captures, (RED, GREEN, BLUE), strict=True):
        assert capture.data.shape == (48, 64, 3)
        assert np.abs(capture.data.mean(axis=(0, 1)) - colour).max() < 8


@needs_opencv
def test_another_rate_than_the_file_says(tmp_path):
    path = write_video(tmp_path / "a.avi", [plain(RED)] * 3)
    assert [capture.position for capture in Video(path, 2).captures()] == [0, 0.5, 1]


@needs_opencv
def test_what_is_no_video(tmp_path):
    (tmp_path / "a.mp4").write_bytes(b"none")
    with pytest.raises(ValueError, match=r"a\.mp4 must be a video, a picture, a folder of pictures or a wav file"):
        list(Video(tmp_path / "a.mp4").captures())


@needs_opencv
def test_a_folder_gives_its_pictures_by_name_to_the_bit(tmp_path):
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 256, (3, 8, 10, 3), dtype=np.uint8)
    folder = write_pictures(tmp_path / "p", pictures)
    (folder / "notes.txt").write_text("no picture")
    captures = list(Folder(folder, 10).captures())
    assert np.array_equal([capture.data for capture in captures], pictures)
    assert [capture.position for capture in captures] == pytest.approx([0, 0.1, 0.2])
    (single,) = Folder(folder / "0001.png").captures()
    assert np.array_equal(single.data, pictures[1])


@needs_opencv
def test_folders_without_pictures_and_files_that_are_none(tmp_path):
    with pytest.raises(ValueError, match="must have pictures in it"):
        list(Folder(tmp_path).captures())
    for contents in (b"none", b""):
        (tmp_path / "a.png").write_bytes(contents)
        with pytest.raises(ValueError, match=r"a\.png must be a picture, and is none"):
            list(Folder(tmp_path).captures())


@needs_opencv
def test_pictures_for_the_page_are_not_wider_than_they_must_be():
    import cv2

    wide = encoded(np.zeros((400, 1280, 3), np.uint8), ".jpg", 320)
    assert cv2.imdecode(np.frombuffer(wide, np.uint8), cv2.IMREAD_COLOR).shape == (100, 320, 3)
    small = cv2.imdecode(np.frombuffer(encoded(plain(RED, 4, 4), ".png"), np.uint8), cv2.IMREAD_COLOR)
    assert small[0, 0].tolist() == list(RED)[::-1]
    grey = encoded(np.full((4, 4, 1), 7, np.uint8), ".png")
    assert cv2.imdecode(np.frombuffer(grey, np.uint8), cv2.IMREAD_GRAYSCALE)[0, 0] == 7


class FakeCapture:
    """What OpenCV has for a camera with two pictures."""

    opened = None

    def __init__(self, number):
        self.number, self.left, self.released = number, 2, False
        self.opened.append(self)

    def isOpened(self):
        return self.number == 0

    def read(self):
        self.left -= 1
        return (True, plain((1, 2, 3))) if self.left >= 0 else (False, None)

    def release(self):
        self.released = True


@pytest.fixture
def cameras(monkeypatch):
    opened = []
    monkeypatch.setattr(FakeCapture, "opened", opened)
    monkeypatch.setitem(sys.modules, "cv2", SimpleNamespace(VideoCapture=FakeCapture))
    return opened


def test_a_camera_gives_pictures_until_it_is_gone(cameras):
    captures = Camera(0).captures()
    first, second = next(captures), next(captures)
    assert first.position == 0 <= second.position == second.taken - first.taken
    assert first.data[0, 0].tolist() == [3, 2, 1]  # OpenCV has blue first
    with pytest.raises(RuntimeError, match="camera 0 gives no picture"):
        next(captures)
    assert cameras[0].released


def test_a_camera_is_let_go_when_nobody_reads_it(cameras):
    captures = Camera(0).captures()
    next(captures)
    captures.close()
    assert cameras[0].released


def test_a_camera_that_is_not_there(cameras):
    with pytest.raises(RuntimeError, match="camera 3 cannot be opened: is it there, and not in use"):
        next(Camera(3).captures())
    assert cameras[0].released


def test_without_opencv_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "cv2", None)
    with pytest.raises(RuntimeError, match=r"pictures need OpenCV, which is not there .*\[live\]"):
        next(Camera(0).captures())


@pytest.mark.parametrize("width", [1, 2, 3, 4])
@pytest.mark.parametrize("channels", [1, 2])
def test_wav_files_are_read_whatever_their_samples_are(tmp_path, width, channels):
    sound = np.random.default_rng(0).uniform(-0.9, 0.9, 250)
    path = write_wav(tmp_path / "a.wav", sound, 1000, width, channels)
    captures = list(WavFile(path, WINDOWS).captures())
    assert [capture.position for capture in captures] == pytest.approx([0.1, 0.14, 0.18, 0.22])
    for k, capture in enumerate(captures):
        assert np.abs(capture.data - sound[40 * k : 40 * k + 100]).max() <= 2.0 ** (1 - 8 * width)


def test_wav_files_that_do_not_fit(tmp_path):
    path = write_wav(tmp_path / "a.wav", np.zeros(99), 1000)
    with pytest.raises(ValueError, match=r"must have at least 0\.1 s of sound, a window of the network, not 0\.099 s"):
        list(WavFile(path, WINDOWS).captures())
    with pytest.raises(ValueError, match="must have 16,000 samples per second, as in the training, not 1,000; convert"):
        list(WavFile(path, SoundWindows(16_000, 100, 10)).captures())
    path.write_bytes(b"RIFF")
    with pytest.raises(ValueError, match=r"must be a wav file of whole numbers \(PCM\)"):
        list(WavFile(path, WINDOWS).captures())


def test_samples_of_other_widths(tmp_path):
    path = write_wav(tmp_path / "a.wav", np.zeros(200), 1000)
    data = bytearray(path.read_bytes())
    data[34] = 64  # bits of a sample
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"a\.wav must have samples of 1 to 4 bytes, not 8"):
        list(WavFile(path, WINDOWS).captures())


def test_a_wav_file_that_was_cut_off_has_what_is_there(tmp_path):
    path = write_wav(tmp_path / "a.wav", np.full(300, 0.5), 1000, channels=2)
    path.write_bytes(path.read_bytes()[:-403])
    assert [len(capture.data) for capture in WavFile(path, WINDOWS).captures()] == [100, 100, 100]


def test_damaged_wav_files_have_windows_or_a_message(tmp_path):
    rng, path = random.Random(1), tmp_path / "a.wav"
    data = write_wav(path, np.random.default_rng(0).uniform(-1, 1, 150), 1000).read_bytes()
    ends = set()
    for _ in range(300):
        path.write_bytes(damaged(rng, data[:44]) + data[44:])
        try:
            ends.update(capture.data.shape for capture in WavFile(path, WINDOWS).captures())
        except (ValueError, OSError) as error:
            ends.add(type(error))
            assert "a.wav must" in str(error), error
    assert {(100,), ValueError} <= ends


@needs_opencv
def test_damaged_pictures_have_pixels_or_a_message(tmp_path):
    rng = random.Random(1)
    picture = np.random.default_rng(0).integers(0, 256, (6, 6, 3), dtype=np.uint8)
    path = write_pictures(tmp_path, [picture]) / "0000.png"
    data, ends = path.read_bytes(), set()
    for _ in range(80):
        path.write_bytes(damaged(rng, data))
        try:
            ends.update(capture.data.shape[2:] for capture in Folder(path).captures())
        except ValueError as error:
            ends.add(ValueError)
            assert str(error).endswith("0000.png must be a picture, and is none")
    assert ends == {(3,), ValueError}


@pytest.mark.parametrize("hop", [0, 101])
def test_hops_from_a_sample_to_a_window(hop):
    with pytest.raises(ValueError, match=r"hop must be from a sample to a window, 0\.001 to 0\.1 s, not"):
        SoundWindows(1000, 100, hop)


class FakeStream:
    """What sounddevice has for a microphone: a ramp."""

    def __init__(self, samplerate, channels, dtype, device):
        if device == "none":
            raise FakeModule.PortAudioError("no such device")
        assert (samplerate, channels, dtype) == (1000, 1, "int16")
        self.at, self.closed = 0, False
        FakeModule.streams += (self,)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.closed = True

    def read(self, count):
        self.at += count
        if self.at > 1000:
            raise FakeModule.PortAudioError("unplugged")
        return np.arange(self.at - count, self.at, dtype=np.int16)[:, None], False


class FakeModule:
    streams = ()
    InputStream = FakeStream

    class PortAudioError(Exception):
        pass


def test_a_microphone_gives_windows_without_end(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", FakeModule)
    captures = Microphone(WINDOWS).captures()
    for k in range(5):
        assert next(captures).data * 2**15 == pytest.approx(np.arange(40 * k, 40 * k + 100))
    captures.close()
    assert FakeModule.streams[-1].closed


def test_a_microphone_that_is_gone(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", FakeModule)
    with pytest.raises(RuntimeError, match="microphone cannot be used: unplugged"):
        list(Microphone(WINDOWS).captures())
    assert FakeModule.streams[-1].closed


def test_a_microphone_that_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "sounddevice", FakeModule)
    with pytest.raises(RuntimeError, match="microphone none cannot be used: no such device"):
        next(Microphone(WINDOWS, "none").captures())
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    with pytest.raises(RuntimeError, match=r"a microphone needs sounddevice, which is not there; .*\[live\]"):
        sounds._sounddevice()


def test_without_the_library_of_the_system_it_is_named(tmp_path, monkeypatch):
    (tmp_path / "sounddevice.py").write_text("raise OSError('PortAudio library not found')")
    monkeypatch.delitem(sys.modules, "sounddevice", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match=r"which is not there \(PortAudio .*not found\): apt install libportaudio2"):
        next(Microphone(WINDOWS).captures())


def test_words_for_sources(tmp_path):
    assert picture_source("camera") == Camera(0) and picture_source("camera:2") == Camera(2)
    assert sound_source("microphone", WINDOWS) == Microphone(WINDOWS)
    assert sound_source("microphone:1", WINDOWS) == Microphone(WINDOWS, 1)
    assert sound_source("microphone:USB", WINDOWS) == Microphone(WINDOWS, "USB")
    assert [hears(word) for word in ("microphone", "microphone:USB", "a.wav", "a.WAV")] == [True] * 4
    assert [hears(word) for word in ("camera", "camera:1", "a.mp4", "folder", "microphones")] == [False] * 5
    for name, kind in (("a.mp4", Video), ("a.PNG", Folder)):
        (tmp_path / name).write_bytes(b"")
        assert picture_source(str(tmp_path / name), 3) == kind(tmp_path / name, 3)
    assert picture_source(str(tmp_path)) == Folder(tmp_path)


def test_words_that_name_no_source(tmp_path):
    for word in ("camera:", "camra", str(tmp_path / "a.mp4")):
        with pytest.raises(
            ValueError, match="source must be camera, microphone, or a file or folder that is there, not"
        ):
            picture_source(word)
    with pytest.raises(ValueError, match="the camera must be a number, as in camera:1, not 'front'"):
        picture_source("camera:front")
