"""``concord live``: recordings, a camera and a microphone to the end, by time, by frames, and by Ctrl-C."""

import json
import re
import signal
import sys
import urllib.request
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from rich.live import Live

from concord.cli.common import TerminalConsole
from concord.live.captures import Stop
from concord.live.inference import Inference
from concord.live.session import LiveSession
from support.commands import begin, run
from support.live_files import (
    COLOURS,
    colour_network,
    level_network,
    needs_opencv,
    plain,
    write_pictures,
    write_video,
    write_wav,
)
from support.simulated_time import SimulatedTime
from support.trained import DATA, needs_data

PICTURES = [plain(tuple(200 * (k == n) for k in range(3))) for n in (0, 1, 1, 2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Networks for pictures (``colours``) and for sound (``levels``), labels, and a recording of each kind."""
    place = tmp_path_factory.mktemp("live")
    colour_network(place / "colours")
    level_network(place / "levels")
    (place / "labels.txt").write_text("".join(f"{name}\n" for name in COLOURS))
    write_wav(place / "sound.wav", np.repeat([0.5, -0.5], 300), 1000)
    (place / "pictures").mkdir()
    return place


@pytest.fixture
def pictures(folder):
    if not list((folder / "pictures").iterdir()):
        write_pictures(folder / "pictures", PICTURES)
        write_video(folder / "video.avi", PICTURES * 3, rate=20)
    return folder


@pytest.fixture
def time(monkeypatch):
    """What recordings keep pace with, and what ends a session after so many seconds."""
    time = SimulatedTime(step=0.001)
    monkeypatch.setattr("concord.live.captures.Stop", partial(Stop, clock=time, sleep=time.sleep))
    return time


def live(folder, network, source, *more):
    code, output = run("live", folder / network / "net", "--source", source, "--no-page", *more)
    return code, output.splitlines()


def colours(folder, source, *more):
    return live(folder, "colours", source, "--scale", "1/255", "--labels", folder / "labels.txt", *more)


def levels(folder, source, *more):
    return live(folder, "levels", source, "--front-end", "samples", "--rate", 1000, "--hop", 0.1, *more)


@pytest.mark.slow
@needs_opencv
def test_a_folder_of_pictures(pictures):
    code, lines = colours(pictures, pictures / "pictures", "--fast")
    assert code == 0
    assert lines[0] == f"source: pictures in {pictures / 'pictures'}"
    assert (
        lines[1].startswith("input: x (3 x 8 x 8): the largest part in the middle") and "byte * 0.00392157" in lines[1]
    )
    frames = [re.match(r"([\d.]+ s  \w+  [\d.]+)  [\d.]+ m?s$", line).group(1) for line in lines[2:6]]
    assert frames == ["0.00 s  red  0.781", "0.20 s  green  0.781", "0.40 s  green  0.781", "0.60 s  blue  0.781"]
    assert re.match(r"4 frames in [\d.]+ s, [\d.]+ per second; latency: median .* 0 frames dropped$", lines[6])
    assert lines[7:] == ["classes: green 2, red 1, blue 1", "no flags were raised"]


@needs_opencv
def test_a_video_takes_as_long_as_it_lasts(pictures, time):
    code, lines = colours(pictures, pictures / "video.avi", "--every", 2)
    assert code == 0 and 0.5 <= time.now < 0.6
    assert lines[-2] == "classes: red 3, green 3" and len(lines) == 11


@needs_opencv
def test_flags_end_the_summary(pictures):
    code, lines = live(pictures, "colours", pictures / "pictures", "--scale", 1, "--fast")
    assert code == 0 and "  input x INPUT_RANGE" in lines[2]
    assert lines[-1].startswith("input x: INPUT_RANGE, ") and lines[-1].endswith("(in 4 frames of 4)")


@needs_opencv
@pytest.mark.parametrize("how", [("--frames", 6), ("--seconds", 0.3)])
def test_a_recording_without_end_ends(pictures, how, time):
    time.step = 0.02
    code, lines = colours(pictures, pictures / "pictures", "--repeat", "--fast", *how)
    assert code == 0 and lines[-1] == "no flags were raised"
    frames = int(re.match(r"([\d,]+) frames in", lines[-3]).group(1).replace(",", ""))
    assert frames == 6 if how[0] == "--frames" else frames > 4


@needs_opencv
def test_a_network_that_is_too_slow_drops_frames(pictures, monkeypatch, time):
    """A frame comes every 0.05 s, the last one at 0.55 s, and takes 0.12 s."""
    right = Inference.run

    def slow(self, values):
        time.wait_until(min(time.now + 0.12, 0.55))
        return right(self, values)

    monkeypatch.setattr(Inference, "warm_up", lambda self: None)
    with monkeypatch.context() as patch:
        patch.setattr(Inference, "run", slow)
        patch.setattr(time, "follows", True)
        _, lines = colours(pictures, pictures / "video.avi", "--drop")
    frames, dropped = map(int, re.match(r"(\d+) frames .* (\d+) frames dropped$", lines[-3]).groups())
    assert dropped >= 4 and frames + dropped <= 12 and frames >= 2
    monkeypatch.setattr(Inference, "run", lambda self, values: (time.sleep(0.12), right(self, values))[1])
    _, lines = colours(pictures, pictures / "video.avi")
    assert lines[-3].startswith("12 frames in") and lines[-3].endswith(" 0 frames dropped")


@needs_opencv
def test_a_camera(folder, monkeypatch):
    import cv2

    released = []
    camera = SimpleNamespace(
        isOpened=lambda: True, read=lambda: (True, plain((0, 0, 200))), release=lambda: released.append(True)
    )
    monkeypatch.setattr(cv2, "VideoCapture", lambda number: camera)
    code, lines = colours(folder, "camera", "--frames", 3)
    assert code == 0 and lines[0] == "source: camera 0" and lines[-2] == "classes: red 3" and released


def test_a_microphone(folder, monkeypatch):
    class Stream:
        def __init__(self, **options):
            assert options["samplerate"] == 1000

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def read(self, count):
            return np.full((count, 1), -(2**13), np.int16), False

    monkeypatch.setitem(sys.modules, "sounddevice", SimpleNamespace(InputStream=Stream, PortAudioError=OSError))
    code, lines = levels(folder, "microphone", "--frames", 3)
    assert code == 0 and lines[0] == "source: microphone" and lines[-2] == "classes: 1 3"
    assert "  1  0.250  " in lines[2]


def test_sound_in_a_file(folder):
    code, lines = levels(folder, folder / "sound.wav", "--fast")
    assert code == 0 and "a window of 0.2 s every 0.1 s, 1,000 samples per second; samples from -1 to 1" in lines[1]
    assert [line.split("  ")[:3] for line in lines[2:7]] == [
        ["0.20 s", "0", "0.500"], ["0.30 s", "0", "0.500"], ["0.40 s", "0", "0.000"], ["0.50 s", "1", "0.500"],
        ["0.60 s", "1", "0.500"],
    ]  # fmt: skip


def test_the_page_is_there_while_it_runs(folder, monkeypatch):
    pages, states, right = [], [], LiveSession.run
    monkeypatch.setattr("concord.cli.live.echo", pages.append)

    def looking(session, captures):
        for state in right(session, captures):
            states.append(json.loads(urllib.request.urlopen(f"{pages[2].removeprefix('page: ')}state").read()))
            yield state

    monkeypatch.setattr(LiveSession, "run", looking)
    words = ("--source", folder / "sound.wav", "--front-end", "samples", "--rate", 1000, "--hop", 0.2, "--fast")
    assert run("live", folder / "levels" / "net", *words) == (0, "")
    assert [(state["frames"], state["label"]) for state in states] == [(1, "0"), (2, "0"), (3, "1")]
    with pytest.raises(OSError):
        urllib.request.urlopen(pages[2].removeprefix("page: "))


def test_a_terminal_is_drawn_again_and_again(folder, monkeypatch, time):
    """Behind every frame here, where it is several times a second by the clock of the machine otherwise."""
    screens, right = [], LiveSession.run

    class Screen(Live):
        def __init__(self, **options):
            assert options["refresh_per_second"] > 1
            super().__init__(**options, auto_refresh=False)
            screens.append(self)

    def run(self, captures):
        for state in right(self, captures):
            yield state
            screens[0].refresh()

    monkeypatch.setattr("rich.live.Live", Screen)
    monkeypatch.setattr(LiveSession, "run", run)
    monkeypatch.setattr("concord.cli.live.TerminalConsole", partial(TerminalConsole, force_terminal=True, width=100))
    _, lines = levels(folder, folder / "sound.wav")
    shown = [re.sub(r"\x1b\[[\d;?]*\w", "", line).strip() for line in lines]
    frames = [int(count) for line in shown for count in re.findall(r"frame (\d) ", line)]
    assert frames == sorted(frames) and set(frames) == {1, 2, 3, 4, 5}
    assert "class 0  0.500" in shown and "class 1  0.500" in shown
    assert not any(line.startswith("0.20 s") for line in shown) and shown[-1] == "no flags were raised"


@pytest.mark.slow
def test_the_rtl_says_the_same(folder):
    words = [levels(folder, folder / "sound.wav", "--fast", "--on", on)[1] for on in ("emulator", "rtl")]
    said = [re.findall(r"^([\d.]+ s  \d  [\d.]+)  ", "\n".join(lines), re.MULTILINE) for lines in words]
    assert len(said[0]) == 5 and said[0] == said[1]


@pytest.mark.slow
@needs_opencv
def test_ctrl_c_ends_with_the_summary(pictures):
    net, source = pictures / "colours" / "net", pictures / "pictures"
    process = begin("live", net, "--scale", 1, "--repeat", "--source", source, "--fps", 0.01)
    assert [process.stdout.readline()[:6] for _ in range(4)] == [b"source", b"input:", b"page: ", b"0.00 s"]
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, b"")
    assert output.startswith(b"1 frame in ") and b"classes: 0 1" in output


@pytest.mark.parametrize(
    ("network", "source", "more", "message"),
    [
        ("colours", "camera", (), "--scale must be given, as input 'x' reads floats"),
        ("levels", "camera", ("--scale", 1), "input 'x' must be a picture for this source"),
        ("colours", "sound.wav", (), "input 'x' must be samples of sound, or what a front end makes of them"),
        ("levels", "sound.wav", (), "input 'x' is 200, which samples makes"),
        ("levels", "sound.wav", ("--scale", 1), "--scale must be left out with a source of sound"),
        ("colours", "camera", ("--front-end", "samples"), "--front-end must be left out with a source of pictures"),
        ("colours", "camera", ("--scale", 1, "--fast"), "--fast must be left out with camera 0"),
        ("colours", "camera", ("--scale", "1/0"), "must be numbers as in 1/255 or 0.5,0.25,0.5, not '1/0'"),
        ("colours", "nowhere.avi", ("--scale", 1), "source must be camera, microphone, or a file"),
        ("colours", "camera", ("--scale", 1, "--link", "uart"), "--link must be given with --on rtl or a port"),
        ("colours", "camera", ("--scale", 1, "--labels", "sound.wav"), "must be text in UTF-8, and is none"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(folder, network, source, more, message):
    paths = [folder / word if str(word).endswith(".wav") else word for word in (source, *more)]
    code, lines = live(folder, network, *paths)
    assert code in (1, 2) and message in lines[-1] and lines[-1].startswith("Error: ")


def test_labels_must_be_as_many_as_classes(folder):
    code, lines = levels(folder, folder / "sound.wav", "--labels", folder / "labels.txt")
    assert code == 1 and lines == ["Error: there must be 2 labels, one for each class, not 3"]


def by_class(lines):
    """Classes with their frames, from the summary."""
    return dict(re.findall(r"(\w+) (\d+)", next(line for line in lines if line.startswith("classes: "))))


def classes_of(net, samples, names, folder):
    """The same from what ``concord run`` writes."""
    np.save(folder / "in.npy", samples)
    assert run("run", net, "-i", folder / "in.npy", "-o", folder / "out.npz")[0] == 0
    (scores,) = np.load(folder / "out.npz").values()
    labels, counts = np.unique(np.array(names)[scores.argmax(axis=1)], return_counts=True)
    return dict(zip(labels, map(str, counts), strict=True))


def trained(folder, name, samples, classes):
    """A network of the trained ones, compiled, and a file with its labels."""
    model, net, labels = DATA / "models" / f"{name}.onnx", folder / "net", folder / "labels.txt"
    np.savez(folder / "calibrate.npz", x=samples)
    labels.write_text("\n".join(classes))
    code, output = run("compile", model, "--calibrate", folder / "calibrate.npz", "-o", net)
    assert code == 0, output
    return net, labels


@needs_data
@needs_opencv
@pytest.mark.deep
def test_pictures_of_a_data_set_have_the_classes_that_run_gives(tmp_path):
    data = np.load(DATA / "data" / "ic_cifar10.npz")
    net, labels = trained(tmp_path, "ic_resnet8", data["x_calib"], data["classes"])
    images = data["x"][:40]
    pictures = write_pictures(tmp_path / "pictures", images.transpose(0, 2, 3, 1))
    words = ("--scale", 1, "--labels", labels, "--fast", "--no-page")
    code, output = run("live", net, "--source", pictures, *words)
    assert code == 0 and output.endswith("no flags were raised\n")
    assert by_class(output.splitlines()) == classes_of(net, images, data["classes"], tmp_path)


@needs_data
@pytest.mark.slow
def test_words_of_a_data_set_are_heard(tmp_path):
    """23 of 24: it takes one ``right`` for another word, as the float network does."""
    sounds, codes = (np.load(DATA / "data" / name) for name in ("kws_pcm.npz", "kws_mfcc_int8.npz"))
    samples = (codes["x_calib"].astype(np.float32) - codes["zero_point"]) * codes["scale"]
    net, labels = trained(tmp_path, "kws_dscnn", samples, codes["classes"])
    recording = write_wav(tmp_path / "a.wav", sounds["pcm"].reshape(-1) / 2.0**15)
    words = ("--front-end", "mfcc-mlperf", "--hop", 1, "--fast", "--no-page", "--labels", labels)
    code, output = run("live", net, "--source", recording, *words)
    heard = re.findall(r"^\d+\.00 s  (\w+)  ", output, re.MULTILINE)
    right = [codes["classes"][k] for k in sounds["y_mlperf"]]
    assert code == 0 and len(heard) == 24 and sum(a == b for a, b in zip(heard, right, strict=True)) == 23
