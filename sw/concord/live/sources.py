"""Names of sources as words of a command line, and the source that a word names."""

from __future__ import annotations

from pathlib import Path

from concord.live.captures import Source
from concord.live.pictures import SUFFIXES, Camera, Folder, Video
from concord.live.sounds import Microphone, SoundWindows, WavFile

CAMERA, MICROPHONE = "camera", "microphone"


def hears(word: str) -> bool:
    """True if a source gives sound; others give pictures."""
    return _device(word, MICROPHONE) is not None or Path(word).suffix.lower() == ".wav"


def _device(word: str, kind: str) -> str | None:
    """Device of a kind that a word names, empty for the usual one; ``None`` if it names none."""
    name, colon, device = word.partition(":")
    return device if name == kind and bool(colon) == bool(device) else None


def picture_source(word: str, rate: float | None = None) -> Source:
    """``camera``, ``camera:NUMBER``, a video, a picture, or a folder of pictures.

    Parameters
    ----------
    word : str
        What it names.
    rate : float or None
        Pictures per second of a recording, if not its own.

    Raises
    ------
    ValueError
        If it names nothing that is there.
    """
    device = _device(word, CAMERA)
    if device is not None:
        if device and not device.isdecimal():
            raise ValueError(f"the camera must be a number, as in camera:1, not {device!r}")
        return Camera(int(device or 0))
    path = _existing(word)
    return Folder(path, rate) if path.is_dir() or path.suffix.lower() in SUFFIXES else Video(path, rate)


def sound_source(word: str, windows: SoundWindows) -> Source:
    """``microphone``, ``microphone:DEVICE``, or a wav file; errors as for :func:`picture_source`."""
    device = _device(word, MICROPHONE)
    if device is not None:
        return Microphone(windows, int(device) if device.isdecimal() else device or None)
    return WavFile(_existing(word), windows)


def _existing(word: str) -> Path:
    path = Path(word)
    if not path.exists():
        raise ValueError(f"source must be {CAMERA}, {MICROPHONE}, or a file or folder that is there, not {word!r}")
    return path
