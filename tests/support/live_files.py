"""Small recordings that tests make: videos, pictures, sound, and a reason to skip where OpenCV is not there."""

import importlib.util
import wave

import numpy as np
import pytest

needs_opencv = pytest.mark.skipif(
    importlib.util.find_spec("cv2") is None, reason="needs OpenCV, of the extra live: pip install -e '.[live]'"
)


def write_wav(path, sound, rate=16_000, width=2, channels=1):
    """Sound from -1 to 1 as whole numbers, the same in every channel."""
    full_scale = 2 ** (8 * width - 1)
    numbers = np.clip(np.rint(np.asarray(sound) * full_scale), -full_scale, full_scale - 1).astype(np.int64)
    numbers = np.repeat(numbers + (128 if width == 1 else 0), channels)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(width)
        file.setframerate(rate)
        file.writeframes(b"".join(int(x).to_bytes(width, "little", signed=width > 1) for x in numbers))
    return path


def write_pictures(folder, pictures):
    """Pictures ``[height, width, 3]``, red first, as png files in their order."""
    import cv2

    folder.mkdir(parents=True, exist_ok=True)
    for number, picture in enumerate(pictures):
        assert cv2.imwrite(str(folder / f"{number:04}.png"), np.ascontiguousarray(picture[..., ::-1]))
    return folder


def write_video(path, pictures, rate=20.0):
    """Pictures of one size, red first, as a video that keeps their colours nearly as they are."""
    import cv2

    height, width = pictures[0].shape[:2]
    video = cv2.VideoWriter(str(path), cv2.VideoWriter_fourcc(*"MJPG"), rate, (width, height))
    assert video.isOpened()
    for picture in pictures:
        video.write(np.ascontiguousarray(picture[..., ::-1]))
    video.release()
    return path


def plain(colour, height=48, width=64):
    """A picture of one colour."""
    return np.full((height, width, 3), colour, np.uint8)
