"""The command that runs a network on a camera, a microphone or a recording, as it happens."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from concord.cli.common import (
    EXISTING,
    POSITIVE,
    THING,
    NumberRange,
    TerminalConsole,
    check_link,
    connected,
    echo,
    on_option,
    readable,
    text_of,
)
from concord.cli.options import compile_options
from concord.live.front_ends import FRONT_ENDS
from concord.live.pictures import FOLDER_RATE
from concord.live.recipes import CROP, SAMPLES, STRETCH, USUAL_HOP
from concord.live.sources import hears
from concord.spec.name_choice import NameChoice
from concord.utils.numbers import number_of

if TYPE_CHECKING:
    from concord.live.captures import Capture, Newest, Source, Stop
    from concord.live.page import LiveView
    from concord.live.recipes import NetworkInput, Recipe
    from concord.live.session import LiveSession, LiveState

#: Options that are about pictures, about sound, and about recordings, by the names of their parameters.
_PICTURES = ("scale", "mean", "fitting", "bgr", "fps")
_SOUND = ("front_end", "hop", "rate")
_RECORDINGS = ("fast", "drop", "repeat", "fps")
_SPELLING = {"fitting": "fit", "front_end": "front-end"}
#: Times per second that the terminal is drawn.
_REFRESH = 10


def _numbers(text: str) -> tuple[float, ...]:
    """Numbers with commas in between, fractions among them."""
    try:
        return tuple(number_of(part, "a number") for part in text.split(","))
    except ValueError:
        raise click.BadParameter(f"must be numbers as in 1/255 or 0.5,0.25,0.5, not {text!r}") from None


_SECONDS = NumberRange(min=0, min_open=True)


@click.command()
@click.argument("network", type=THING)
@click.option(
    "--source",
    required=True,
    help="A video, a picture, a folder of pictures or a wav file; camera or camera:NUMBER; microphone or "
    "microphone:DEVICE.",
)
@on_option
@compile_options("link")
@click.option("--labels", type=EXISTING, help="File with the names of the classes, one per line.")
@click.option("--output", help="The result that has the scores, if there are several.")
@click.option(
    "--scale",
    type=_numbers,
    metavar="NUMBERS",
    help="Pictures: an element is (byte - mean) * scale; 1/255, or one per channel.",
)
@click.option("--mean", type=_numbers, metavar="NUMBERS", help="Pictures: the mean in that; by default 0.")
@click.option(
    "--fit",
    "fitting",
    type=click.Choice([CROP, STRETCH]),
    help=f"Pictures: cut the middle out ({CROP}, the default) or stretch the whole picture.",
)
@click.option("--bgr", is_flag=True, help="Pictures: the training had blue first.")
@click.option(
    "--fps", type=_SECONDS, help=f"Pictures per second of a recording, if not its own; {FOLDER_RATE:g} of a folder."
)
@click.option(
    "--front-end", type=NameChoice("front end", [*FRONT_ENDS, SAMPLES]), help="Sound: what the training made of it."
)
@click.option("--hop", type=_SECONDS, help=f"Sound: seconds from a window to the next one; by default {USUAL_HOP:g}.")
@click.option("--rate", type=POSITIVE, help="Sound: samples per second, with --front-end samples.")
@click.option("--page", type=click.IntRange(0, 65535), help="Port of the page on this machine; by default a free one.")
@click.option("--no-page", is_flag=True, help="No page.")
@click.option("--frames", type=POSITIVE, help="End after so many frames.")
@click.option("--seconds", type=_SECONDS, help="End after so many seconds.")
@click.option("--every", default=1, show_default=True, type=POSITIVE, help="Take one of so many frames.")
@click.option("--fast", is_flag=True, help="Recordings: do not wait for the time at which a frame was recorded.")
@click.option("--drop", is_flag=True, help="Recordings: drop frames that come too fast, as a camera does.")
@click.option("--repeat", is_flag=True, help="Recordings: begin again in the end.")
@readable
def live(
    network: Path, source: str, on: str, link: str | None, labels: Path | None, output: str | None, **options: Any
) -> None:
    """Run a NETWORK on a camera, a microphone or a recording, as it happens.

    Shows frames per second, class, scores, latency and flags, and ends with a summary: when the source or the time
    is over, or at Ctrl-C.
    """
    from concord.host.progress import load as load_image
    from concord.live.captures import Stop
    from concord.live.inference import Inference, network_input
    from concord.live.page import LiveView
    from concord.live.session import LiveSession
    from concord.live.terminal import summary_lines
    from concord.networks.folder import load

    check_link(on, link)
    sound = hears(source)
    _refuse(options, _PICTURES if sound else _SOUND, "a source of sound" if sound else "a source of pictures")
    loaded, package = load(network)
    recipe, origin = _source(source, network_input(loaded, package), options)
    if origin.live:
        _refuse(options, _RECORDINGS, origin.text)
    names = None if labels is None else [line.strip() for line in text_of(labels).splitlines() if line.strip()]
    console = TerminalConsole(markup=False)
    with connected(on, loaded.config, link, network) as device:
        load_image(device, loaded, TerminalConsole(stderr=True))
        inference = Inference(loaded, package, device, names, output)
        echo(f"source: {origin.text}")
        echo(f"input: {recipe.text}")
        inference.warm_up()
        session = LiveSession(inference, recipe)
        stop = Stop(options["seconds"])
        view = LiveView(network.resolve().name, on, origin.text, recipe, inference)
        with _interruptible(stop), _page(view, session, options), _captures(origin, stop, session, options) as captures:
            _show(session.run(islice(captures, options["frames"])), session, console)
    for line in summary_lines(session.summary):
        echo(line)


def _refuse(options: dict[str, Any], names: tuple[str, ...], what: str) -> None:
    """``ValueError`` if options were given that mean nothing for the source."""
    for name in names:
        if options[name] not in (None, False):
            raise ValueError(f"--{_SPELLING.get(name, name)} must be left out with {what}")


def _source(word: str, target: NetworkInput, options: dict[str, Any]) -> tuple[Recipe, Source]:
    """Recipe of an input, and its source."""
    from concord.live.recipes import picture_recipe, sound_recipe
    from concord.live.sources import picture_source, sound_source

    if hears(word):
        sounds = sound_recipe(target, options["front_end"], options["hop"] or USUAL_HOP, options["rate"])
        return sounds, sound_source(word, sounds.windows)
    fitting = options["fitting"] or CROP
    pictures = picture_recipe(target, options["scale"], options["mean"], fitting, options["bgr"])
    return pictures, picture_source(word, options["fps"])


@contextmanager
def _captures(origin: Source, stop: Stop, session: LiveSession, options: dict[str, Any]) -> Iterator[Iterator[Capture]]:
    """The captures to run, until the source or the session ends; the source is closed then."""
    from concord.live.captures import Newest, every, paced, repeated

    captures = every(repeated(origin) if options["repeat"] else origin.captures(), options["every"])
    if not origin.live and not options["fast"]:
        captures = paced(captures, stop)
    if origin.live or options["drop"]:
        with closing(Newest(captures)) as newest:
            yield _counting(newest, stop, session)
    else:
        with closing(captures):
            yield _until(captures, stop)


@contextmanager
def _page(view: LiveView, session: LiveSession, options: dict[str, Any]) -> Iterator[None]:
    """The page of the session, unless there is to be none; it hears of the end."""
    from concord.live.page import PageServer

    if options["no_page"]:
        yield
        return
    with closing(PageServer(view, session.board, options["page"] or 0)) as server:
        echo(f"page: {server.url}")
        try:
            yield
        finally:
            session.board.end()


def _until(captures: Iterator[Capture], stop: Stop) -> Iterator[Capture]:
    """Captures as long as the session goes on."""
    for capture in captures:
        if stop.reached:
            return
        yield capture


def _counting(newest: Newest, stop: Stop, session: LiveSession) -> Iterator[Capture]:
    """The newest captures; the session knows how many were dropped."""
    for capture in newest.until(stop):
        session.dropped = newest.dropped
        yield capture


@contextmanager
def _interruptible(stop: Stop) -> Iterator[None]:
    """Let Ctrl-C end the session; a second one ends the command at once."""
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return

    def ask(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        stop.ask()

    signal.signal(signal.SIGINT, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _show(states: Iterator[LiveState], session: LiveSession, console: TerminalConsole) -> None:
    """Draw what happens in a terminal; a line for each frame elsewhere."""
    from rich.live import Live

    from concord.live.terminal import line, panel

    shown: Any = nullcontext()
    if console.is_terminal:
        shown = Live(
            get_renderable=lambda: panel(session.board.state, session.inference.label),
            console=console,
            refresh_per_second=_REFRESH,
        )
    with shown:
        for state in states:
            if not console.is_terminal:
                echo(line(state))
