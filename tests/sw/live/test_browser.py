"""The page in a browser while a recording plays: what is on it when Chromium has run its script."""

import re
import shutil
import subprocess
import threading
import time
from contextlib import closing, contextmanager

import numpy as np
import pytest

from concord.host import connect
from concord.live.captures import Capture, Stop, paced, repeated
from concord.live.inference import Inference, network_input
from concord.live.page import LiveView, PageServer
from concord.live.recipes import SoundRecipe, picture_recipe, sound_recipe
from concord.live.session import LiveBoard, LiveSession, LiveState
from concord.live.sources import picture_source, sound_source
from concord.networks.folder import load
from support.live_files import COLOURS, colour_network, level_network, needs_opencv, plain, write_video, write_wav

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="needs a browser: chromium is not installed"),
]
#: Frames per second of the recordings.
RATE = 20


def browse(folder, url, *words):
    """What the browser prints after 0.3 s of its script; while that waits for an answer its clock stands still."""
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={folder}",
               "--virtual-time-budget=300", *words, url]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, timeout=400, check=True).stdout


@contextmanager
def playing(net, source, recipe_of, labels=None):
    """The page of a recording that plays again and again on the emulator."""
    image, package = load(net)
    recipe = recipe_of(network_input(image, package))
    sound = isinstance(recipe, SoundRecipe)
    origin = sound_source(str(source), recipe.windows) if sound else picture_source(str(source))
    stop = Stop()
    with connect("emulator", image.config) as device:
        device.load(image)
        inference = Inference(image, package, device, labels)
        session = LiveSession(inference, recipe)
        view = LiveView("colours", "emulator", origin.text, recipe, inference)

        def run():
            for _ in session.run(paced(repeated(origin), stop)):
                if stop.reached:
                    return

        thread = threading.Thread(target=run)
        with closing(PageServer(view, session.board)) as server:
            thread.start()
            try:
                end = time.perf_counter() + 60
                while (state := session.board.newer(RATE, 1)) is None or state.frames <= RATE:
                    assert thread.is_alive() and time.perf_counter() < end
                yield server.url
            finally:
                stop.ask()
                thread.join(30)
                session.board.end()


def text(dom, pattern):
    return re.search(pattern, dom, re.DOTALL).group(1)


def check(dom, label):
    """What every page shows while it runs."""
    assert text(dom, r'id="status"[^>]*>([^<]*)<') == "running"
    assert text(dom, r'<span id="label">([^<]*)<') == label
    fps, latency, frames = re.findall(r'<div class="big">([^<]*)</div>', dom)
    assert 0.2 * RATE < float(fps) < 1.5 * RATE and re.fullmatch(r"[\d.]+ m?s", latency) and int(frames) > RATE


def picture(folder, path, *words):
    """A screenshot, in bytes of red, green and blue."""
    import cv2

    browse(folder, path, "--window-size=1280,900", f"--screenshot={folder / 'shot.png'}", *words)
    return cv2.imread(str(folder / "shot.png"))[..., ::-1].astype(int)


@needs_opencv
def test_a_video_on_the_page(tmp_path):
    net = colour_network(tmp_path)
    video = write_video(tmp_path / "a.avi", [plain((20, 200, 20))] * 10, RATE)
    with playing(net, video, lambda target: picture_recipe(target, (1,)), COLOURS) as url:
        dom = browse(tmp_path / "profile", url, "--dump-dom")
        light = picture(tmp_path / "profile", url)
        dark = picture(tmp_path / "profile", url, "--blink-settings=preferredColorScheme=0")
    check(dom, "green")
    row = r'<tr(?: class="(best)?")?><td class="name">(\w+)</td>.*?width: ([\d.]+)%.*?<td class="right">([\d.]+)</td>'
    scores = re.findall(row, dom)
    assert [score[1] for score in scores] == list(COLOURS) and [score[0] for score in scores] == ["", "best", ""]
    assert float(scores[1][2]) > 90 and float(scores[1][3]) > 100
    flag = text(dom, r'<div id="flags">(.*?)</div>')
    assert "input x: INPUT_RANGE" in flag and "times as large as the samples" in flag
    for screen, back in ((light, 255), (dark, 24)):
        assert abs(screen[2, 2] - back).max() < 12
        green = (abs(screen - [20, 200, 20]).max(axis=2) < 20).sum()
        assert green > 100_000  # the picture, and what the network sees of it


@needs_opencv
def test_sound_on_the_page(tmp_path):
    net = level_network(tmp_path)
    tone = 0.4 + 0.3 * np.sin(np.arange(2000) / 2)
    recording = write_wav(tmp_path / "a.wav", tone, 1000)
    with playing(net, recording, lambda target: sound_recipe(target, "samples", 1 / RATE, 1000)) as url:
        dom = browse(tmp_path / "profile", url, "--dump-dom")
        screen = picture(tmp_path / "profile", url)
    check(dom, "0")
    assert '<p id="calm" class="note">No flags were raised.</p>' in dom
    blue = screen[..., 2] - screen[..., 0] > 40
    assert blue[270:390, 30:680].sum() > 1_000 and blue[404:632, 30:680].sum() > 1_000  # waveform, and spectrum


@pytest.mark.parametrize("ended", [True, False])
def test_the_page_says_how_it_goes_on(tmp_path, ended):
    image, package = load(level_network(tmp_path))
    with connect("emulator", image.config) as device:
        device.load(image)
        inference = Inference(image, package, device)
        recipe, board = sound_recipe(inference.input, "samples", 0.1, 1000), LiveBoard()
        with closing(PageServer(LiveView("net", "rtl", "microphone", recipe, inference), board)) as server:
            if ended:
                sound = np.full(200, 0.5)
                classification = inference.run(sound)
                board.publish(LiveState(1, Capture(0.2, sound), sound, classification, 0, 0.1, 0.1, 0.1, 0, (), True))
            dom = browse(tmp_path / "profile", server.url, "--dump-dom")
    assert text(dom, r'id="status"[^>]*>([^<]*)<') == ("ended" if ended else "waiting for the source")
    assert ">0.500<" in dom if ended else ">–<" in dom
