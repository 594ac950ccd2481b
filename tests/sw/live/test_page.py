"""The page: what it draws of pictures and of sound, and a server for this machine alone."""

import base64
import http.client
import json
import threading
import urllib.request
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from urllib.error import HTTPError

import numpy as np
import pytest

from concord.live.captures import Capture
from concord.live.inference import Classification
from concord.live.page import LiveView, PageServer, envelope, spectrogram
from concord.live.session import FlagCount, LiveBoard, LiveState
from concord.program.flags import FlagDiagnostic
from support.live_files import needs_opencv, plain

NAMES = SimpleNamespace(label=("cat", "<dog>").__getitem__)
PICTURES = SimpleNamespace(text="x (8 x 8): bytes", sound_rate=None)
SOUND = np.sin(np.arange(1000) / 3) / 2
VERDICT = Classification("<dog>", 1, 0.75, np.array([0.25, 0.75]), ())
STATE = LiveState(7, Capture(1.5, SOUND), SOUND, VERDICT, 29.97, 0.0123, 0.011, 0.0149, 0, ())
FLAG = FlagCount(FlagDiagnostic("conv1", 3, "v_rd", "SATURATED", "cut off", "calibrate"), 3)


@pytest.fixture
def view():
    return LiveView(
        "net", "emulator", "sound a.wav", SimpleNamespace(text="x (1000): samples", sound_rate=16_000), NAMES
    )


@pytest.fixture
def page(view):
    """A page and where its states are."""
    board = LiveBoard()
    with closing(PageServer(view, board)) as server:
        yield server, board


def get(server, path, **headers):
    with urllib.request.urlopen(urllib.request.Request(server.url + path, headers=headers), timeout=30) as answer:
        return answer.headers, answer.read()


def test_a_state_of_sound(view):
    state = view.state(replace(STATE, dropped=2, flags=(FLAG,)))
    assert json.loads(json.dumps(state)) == state
    assert state["figures"] == [
        {"value": "30.0", "note": "of the latest frames"},
        {"value": "12.3 ms", "note": "median 11 ms, 95 % within 14.9 ms"},
        {"value": "7", "note": "2 more dropped; at 1.5 s"},
    ]
    assert (state["frames"], state["label"], state["score"], state["ended"]) == (7, "<dog>", "0.750", False)
    assert state["classes"] == [
        {"label": "cat", "score": "0.250", "share": 0.25, "best": False},
        {"label": "<dog>", "score": "0.750", "share": 0.75, "best": True},
    ]
    assert state["flags"] == [
        {"where": "conv1", "flag": "SATURATED", "meaning": "cut off", "advice": "calibrate", "frames": 3}
    ]
    assert len(state["wave"]) == 320 and "picture" not in state
    assert (
        len(base64.b64decode(state["spectrum"]["levels"])) == state["spectrum"]["rows"] * state["spectrum"]["columns"]
    )


@needs_opencv
def test_a_state_of_pictures(view):
    import cv2

    picture, seen = plain((200, 20, 20), 480, 1280), plain((20, 200, 20), 8, 8)
    state = replace(view, recipe=PICTURES).state(replace(STATE, capture=Capture(0.0, picture), seen=seen))
    shown = []
    for name, kind in (("picture", "jpeg"), ("seen", "png")):
        data = base64.b64decode(state[name].removeprefix(f"data:image/{kind};base64,"))
        shown.append(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR))
    assert shown[0].shape == (240, 640, 3) and abs(int(shown[0][0, 0, 2]) - 200) < 8
    assert shown[1].shape == (8, 8, 3) and shown[1][0, 0].tolist() == [20, 200, 20]
    assert "wave" not in state


def test_in_front_of_the_first_frame(view):
    assert view.state(None) == {"frames": 0}


def test_an_envelope_has_the_ends_of_its_parts():
    assert envelope(np.array([1.0, -2, 3, -4]), 2) == [(-2, 1), (-4, 3)]
    assert envelope(np.array([1.0, -2]), 100) == [(1, 1), (-2, -2)]


def test_a_spectrum_shows_a_tone_where_it_is():
    rate, frequency = 16_000, 2_000
    levels = spectrogram(np.sin(2 * np.pi * frequency * np.arange(rate) / rate))
    assert levels.shape == (64, 120) and levels.dtype == np.uint8
    rows = 63 - levels.argmax(axis=0)  # low frequencies are last
    assert set(rows) <= {15, 16} and levels.max() >= 253  # a quarter of 8 kHz, at full scale
    assert levels[:32].max() < 60
    assert not spectrogram(np.zeros(rate)).any()
    assert spectrogram(np.ones(3)).shape == (2, 1)


def test_the_page_has_names_as_text(page, view):
    headers, html = get(page[0], "")
    assert (
        headers["Content-Type"] == "text/html; charset=utf-8"
        and "default-src 'none'" in headers["Content-Security-Policy"]
    )
    assert b"<h1>net</h1>" in html and b'id="wave"' in html and b'id="picture"' not in html
    odd = replace(view, name="<b>", recipe=PICTURES).html()
    assert "<h1>&lt;b&gt;</h1>" in odd and 'id="picture"' in odd and 'id="wave"' not in odd


def test_a_page_asks_for_what_is_newer(page):
    server, board = page
    board.publish(STATE)
    assert json.loads(get(server, "state")[1])["frames"] == 7
    timer = threading.Timer(0.1, board.publish, [replace(STATE, frames=8)])
    timer.start()
    headers, state = get(server, "state?after=7")
    assert json.loads(state)["frames"] == 8 and headers["Cache-Control"] == "no-store"
    assert json.loads(get(server, "state?after=x")[1])["frames"] == 8


def test_other_paths_and_other_names_get_nothing(page):
    server, _ = page
    with pytest.raises(HTTPError, match="404"):
        get(server, "etc/passwd")
    for host in ("example.org", "127.0.0.1.example.org", ""):
        with pytest.raises(HTTPError, match="403"):
            get(server, "state", Host=host)
    assert json.loads(get(server, "state", Host="localhost:99")[1]) == {"frames": 0}


def test_only_this_machine_is_served(page):
    assert page[0]._server.server_address[0] == "127.0.0.1"


def test_a_page_hears_of_the_end(view):
    board = LiveBoard()
    server = PageServer(view, board)
    board.publish(STATE)
    assert not json.loads(get(server, "state")[1])["ended"]
    answers = []
    asking = threading.Thread(target=lambda: answers.append(json.loads(get(server, "state?after=7")[1])))
    asking.start()
    board.end()
    server.close()
    asking.join(30)
    assert answers[0]["ended"] and answers[0]["frames"] == 7
    with pytest.raises(OSError):
        get(server, "state")


def test_a_port_that_is_not_free(page, view):
    port = page[0]._server.server_port
    with pytest.raises(ValueError, match=f"the port of the page must be free, not {port}: Address already in use"):
        PageServer(view, LiveBoard(), port)


def test_a_page_that_is_closed_in_the_middle_says_nothing(page, capfd):
    server, board = page
    connection = http.client.HTTPConnection("127.0.0.1", server._server.server_port)
    connection.request("GET", "/state")
    connection.close()
    board.publish(STATE)
    assert json.loads(get(server, "state")[1])["frames"] == 7
    assert capfd.readouterr().err == ""
