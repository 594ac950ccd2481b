"""The page of a session: a server for this machine alone, and what the page draws, as JSON.

``/`` is the page. ``/state?after=N`` waits for a state after more than N frames. A request must name this machine:
a foreign page in the browser could otherwise read what the camera sees, by a name of its own for this address.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from concord.display import pages
from concord.display.pages import Figure
from concord.live.inference import Inference
from concord.live.pictures import encoded
from concord.live.recipes import Recipe
from concord.live.session import LiveBoard, LiveState
from concord.live.terminal import milliseconds, score_text, shares, shown_classes
from concord.utils.arrays import Array, Bytes

#: The only address at which there is a page.
ADDRESS = "127.0.0.1"
_NAMES = (ADDRESS, "localhost")
#: Seconds that a request waits for something new, and that the end waits for pages to hear of it.
_WAIT, _LINGER = 1.0, 0.6
#: Points of a waveform; columns and rows of a spectrum, and the decibels below full scale that it shows.
_POINTS, _COLUMNS, _ROWS, _DECIBELS = 320, 120, 64, 90.0
#: Samples of a column of a spectrum.
_SPECTRUM_WIDTH = 512
_POLICY = (
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


@dataclass(frozen=True)
class LiveView:
    """Facts on a page of a session that do not change, and the way in which it shows a state.

    Parameters
    ----------
    name, target, source : str
        The network, where it runs, and what it runs on.
    recipe : Recipe
        How inputs are made.
    inference : Inference
        For the names of classes.
    """

    name: str
    target: str
    source: str
    recipe: Recipe
    inference: Inference

    def html(self) -> str:
        """The page."""
        blank = [Figure("–", label, " ") for label in ("frames per second", "latency", "frames")]
        return pages.render("concord.live", "live.html.j2", title=f"{self.name}, live", figures=blank, view=self)

    def state(self, state: LiveState | None) -> dict[str, Any]:
        """A state in JSON: figures as texts, classes with bars, flags, and a picture or sound."""
        if state is None:
            return {"frames": 0}
        classification, lengths = state.classification, shares(state.classification.scores)
        dropped = f"{state.dropped:,} more dropped" if state.dropped else "none dropped"
        return {
            "frames": state.frames,
            "ended": state.ended,
            "figures": [
                {"value": f"{state.rate:.1f}", "note": "of the latest frames"},
                {
                    "value": milliseconds(state.latency),
                    "note": f"median {milliseconds(state.median)}, 95 % within {milliseconds(state.p95)}",
                },
                {"value": f"{state.frames:,}", "note": f"{dropped}; at {state.capture.position:.1f} s"},
            ],
            "label": classification.label,
            "score": score_text(classification.score),
            "classes": [
                {
                    "label": self.inference.label(k),
                    "score": score_text(float(classification.scores[k])),
                    "share": round(float(lengths[k]), 4),
                    "best": k == classification.best,
                }
                for k in shown_classes(classification.scores)
            ],
            "flags": [
                {
                    "where": count.flag.where,
                    "flag": count.flag.flag,
                    "meaning": count.flag.meaning,
                    "advice": count.flag.advice,
                    "frames": count.frames,
                }
                for count in state.flags
            ],
            **(self._picture(state) if self.recipe.sound_rate is None else self._sound(state.seen)),
        }

    def _picture(self, state: LiveState) -> dict[str, Any]:
        return {
            "picture": _data_url("jpeg", encoded(state.capture.data, ".jpg")),
            "seen": _data_url("png", encoded(state.seen, ".png")),
        }

    def _sound(self, sound: Array) -> dict[str, Any]:
        spectrum = spectrogram(sound)
        return {
            "wave": [[round(float(x), 4) for x in ends] for ends in envelope(sound)],
            "spectrum": {
                "columns": spectrum.shape[1],
                "rows": spectrum.shape[0],
                "levels": base64.b64encode(spectrum.tobytes()).decode(),
            },
        }


def _data_url(kind: str, data: bytes) -> str:
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def envelope(sound: Array, points: int = _POINTS) -> list[tuple[float, float]]:
    """The least and the greatest sample of each of so many parts of a window, or of each sample if there are fewer."""
    parts = np.array_split(sound, min(points, len(sound)))
    return [(float(part.min()), float(part.max())) for part in parts]


def spectrogram(sound: Array, columns: int = _COLUMNS, rows: int = _ROWS) -> Bytes:
    """Levels ``[rows, columns]`` of a window, 0 at 90 dB below full scale and 255 at it; low frequencies are last."""
    width = min(_SPECTRUM_WIDTH, len(sound))
    begins = np.linspace(0, len(sound) - width, min(columns, len(sound) - width + 1)).astype(int)
    parts = sound[begins[:, None] + np.arange(width)] * np.hanning(width)
    power = (np.abs(np.fft.rfft(parts)) * 4 / width) ** 2
    bands = np.array_split(power, min(rows, power.shape[1]), axis=1)
    level = 10 * np.log10(np.stack([band.max(axis=1) for band in bands]) + 1e-12)
    return np.asarray(np.clip(255 * (1 + level / _DECIBELS), 0, 255)[::-1].astype(np.uint8))


class _Handler(BaseHTTPRequestHandler):
    """Answers requests for the page and for its state."""

    protocol_version = "HTTP/1.1"

    def __init__(self, page: PageServer, *arguments: Any):
        self.page = page
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer."""
        if urlsplit(f"//{self.headers.get('Host', '')}").hostname not in _NAMES:
            self._send(HTTPStatus.FORBIDDEN, "text/plain", b"the page is for this machine alone\n")
            return
        url = urlsplit(self.path)
        if url.path == "/":
            self._send(HTTPStatus.OK, "text/html", self.page.html)
        elif url.path == "/state":
            after = parse_qs(url.query).get("after", ["0"])[0]
            self._send(HTTPStatus.OK, "application/json", self.page.answer(int(after) if after.isdecimal() else 0))
        else:
            self._send(HTTPStatus.NOT_FOUND, "text/plain", b"there is no such page\n")

    def _send(self, status: HTTPStatus, kind: str, data: bytes) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": f"{kind}; charset=utf-8",
            "Content-Length": str(len(data)),
            "Content-Security-Policy": _POLICY,
            "Cache-Control": "no-store",
        }
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing: the terminal shows the session."""


class _Server(ThreadingHTTPServer):
    """A page that is closed in the middle of an answer is no error."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing."""


class PageServer:
    """The page of a session, until it is closed.

    Parameters
    ----------
    view : LiveView
        What it shows.
    board : LiveBoard
        Where the states are.
    port : int
        Port of this machine; 0 for a free one.

    Raises
    ------
    ValueError
        If the port is not free.
    """

    def __init__(self, view: LiveView, board: LiveBoard, port: int = 0):
        self._view, self._board = view, board
        self.html = view.html().encode()
        self._asked = -np.inf
        self._end_shown = threading.Event()
        try:
            self._server = _Server((ADDRESS, port), partial(_Handler, self))
        except OSError as error:
            raise ValueError(f"the port of the page must be free, not {port}: {error.strerror}") from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{ADDRESS}:{self._server.server_port}/"

    def answer(self, after: int) -> bytes:
        """Wait for the next state after more than ``after`` frames, in JSON."""
        self._asked = time.perf_counter()
        state = self._board.newer(after, _WAIT)
        data = json.dumps(self._view.state(state)).encode()
        if state is not None and state.ended:
            self._end_shown.set()
        return data

    def close(self) -> None:
        """End it; a page that is open hears of the end of the session before."""
        if time.perf_counter() - self._asked < 2 * _WAIT:
            self._end_shown.wait(_LINGER)
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
