"""Passes, the pipelines they form, and the instruments that observe them.

A network goes through several *levels* on its way to an image: a graph, layers, a memory plan, a program. A *state* is
a frozen dataclass of all values that there are between two passes. A *pass* is a function from a state to a state; its
annotations say which. A :class:`Pipeline` is a column of passes, which it runs in order. An :class:`Instrument` sees
every pass that runs inside :func:`instrumented`, wherever its pipeline is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cached_property
from inspect import get_annotations
from typing import Any, Generic, TypeVar, get_type_hints

Before = TypeVar("Before")
After = TypeVar("After")


@dataclass(frozen=True)
class Pass:
    """One step of a pipeline.

    Parameters
    ----------
    name : str
        What messages, tables and dumps call it.
    run : callable
        A function of one annotated state that returns the state after it. One that only checks returns ``None`` and
        says so in its annotation.
    does : str
        One line for the documentation.
    """

    name: str
    run: Callable[[Any], Any]
    does: str = ""

    @cached_property
    def takes(self) -> type:
        """The class of the state in front of it."""
        hints = get_type_hints(self.run)
        return next(kind for name, kind in hints.items() if name != "return")  # type: ignore[no-any-return]

    @cached_property
    def makes(self) -> type | None:
        """The class of the state after it; ``None`` if the state stays as it is."""
        kind: type = get_type_hints(self.run)["return"]
        return None if kind is type(None) else kind

    @cached_property
    def values(self) -> tuple[str, ...]:
        """Names of the values that it makes or changes.

        They are what the classes declare that the state after it has and the one in front of it has not. A class that
        declares a value of its base once more says so that the value has changed.
        """
        if self.makes is None:
            return ()
        known = () if self.makes is self.takes else self.takes.__mro__
        declared = {name for kind in self.makes.__mro__ if kind not in known for name in get_annotations(kind)}
        return tuple(part.name for part in fields(self.makes) if part.name in declared)


def pass_called(name: str) -> Callable[[Callable[[Any], Any]], Pass]:
    """Make a pass of a function; the first line of its docstring says what it does."""
    return lambda run: Pass(name, run, (run.__doc__ or "").partition("\n")[0])


def advance(state: Any, kind: type[After], **values: Any) -> After:
    """The state of a class after ``state``: its values, and those that a pass has made or changed."""
    return kind(**vars(state) | values)


@dataclass(frozen=True)
class Level:
    """Type of values that passes take and give, with how they are measured, shown and checked.

    Parameters
    ----------
    kind : type
        Type of the values.
    unit : str
        What ``size`` counts, in the plural.
    size : callable
        Value -> int.
    text : callable
        Value -> lines of readable text.
    problems : callable
        Value and state -> a line for every invariant that does not hold.
    """

    kind: type
    unit: str
    size: Callable[[Any], int]
    text: Callable[[Any], Iterable[str]]
    problems: Callable[[Any, Any], Iterable[str]] = lambda value, state: ()


@dataclass(frozen=True)
class PassRun:
    """A pass that has run, or has been refused.

    Parameters
    ----------
    pipeline : str
        Title of its pipeline.
    done : Pass
        The pass.
    seconds : float
        Time it took.
    before : tuple of str and int, or None
        Unit and size of what it changes, or else of the last value in front of it that has a level.
    state : dataclass
        All values after it; those in front of it, if it has been refused.
    levels : tuple of Level
        Levels of the pipeline.
    """

    pipeline: str
    done: Pass
    seconds: float
    before: tuple[str, int] | None
    state: Any
    levels: tuple[Level, ...]

    def made(self) -> Iterator[tuple[str, Any, Level]]:
        """Values that the pass has made and that have a level: name, value, level."""
        for name in self.done.values:
            value = getattr(self.state, name)
            if (level := level_of(value, self.levels)) is not None:
                yield name, value, level

    @property
    def after(self) -> tuple[str, int] | None:
        """Unit and size of the first value that it has made and that has a level."""
        return next(((level.unit, level.size(value)) for _, value, level in self.made()), None)


class Instrument:
    """Observes passes; subclasses override what they need.

    Members
    -------
    estimates : bool
        Whether remarks are to hold estimates, which take time.
    """

    estimates = False

    def ran(self, run: PassRun) -> None:
        """A pass has run."""

    def refused(self, run: PassRun, error: Exception) -> None:
        """A pass has raised an error, which goes on to the caller."""

    def remarked(self, remark: object) -> None:
        """Something has been decided between passes; ``str(remark)`` is one line about it."""


_INSTRUMENTS: ContextVar[tuple[Instrument, ...]] = ContextVar("instruments", default=())


@contextmanager
def instrumented(*instruments: Instrument) -> Iterator[None]:
    """Let instruments observe all passes that run inside, beside those that do so already."""
    token = _INSTRUMENTS.set((*_INSTRUMENTS.get(), *instruments))
    try:
        yield
    finally:
        _INSTRUMENTS.reset(token)


@contextmanager
def unobserved() -> Iterator[None]:
    """Let no instrument observe what runs inside: attempts that say nothing about the network in question."""
    token = _INSTRUMENTS.set(())
    try:
        yield
    finally:
        _INSTRUMENTS.reset(token)


def remark(remark: object) -> None:
    """Tell the instruments what has been decided between passes."""
    for instrument in _INSTRUMENTS.get():
        instrument.remarked(remark)


def estimating() -> bool:
    """True if an instrument wants estimates in remarks."""
    return any(instrument.estimates for instrument in _INSTRUMENTS.get())


@dataclass(frozen=True)
class Pipeline(Generic[Before, After]):
    """A column of passes.

    Parameters
    ----------
    name : str
        Title.
    takes, makes : type
        Classes of the states before it and after it.
    passes : tuple of Pass
        In the order in which they run.
    levels : tuple of Level
        Of the values, for instruments.

    Raises
    ------
    TypeError
        If a pass takes a state that the passes before it do not make, or the last state is another one.
    """

    name: str
    takes: type[Before]
    makes: type[After]
    passes: tuple[Pass, ...]
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        kind: type = self.takes
        for step in self.passes:
            if not issubclass(kind, step.takes):
                raise TypeError(f"pass {step.name} must take a {kind.__name__}, not a {step.takes.__name__}")
            kind = step.makes or kind
        if not issubclass(kind, self.makes):
            raise TypeError(f"pipeline {self.name} must make a {kind.__name__}, not a {self.makes.__name__}")

    def run(self, state: Before, title: str = "") -> After:
        """Run all passes.

        Parameters
        ----------
        state : dataclass
            The state in front of the first pass; it stays as it is.
        title : str
            What tables and dumps call this run; the name of the pipeline, if it is empty.

        Returns
        -------
        dataclass
            The state after the last pass.

        Raises
        ------
        TypeError
            If a state is not of the class that is asked for. What passes raise goes on to the caller.
        """
        if not isinstance(state, self.takes):
            raise TypeError(f"pipeline {self.name} must take a {self.takes.__name__}, not {type(state).__name__}")
        current: Any = state
        for step in self.passes:
            current = _run(step, current, title or self.name, self.levels)
        return current  # type: ignore[no-any-return]


def _run(step: Pass, state: Any, title: str, levels: tuple[Level, ...]) -> Any:
    """The state after a pass; the instruments are told."""
    instruments = _INSTRUMENTS.get()
    before = _size_before(step, state, levels) if instruments else None
    start = time.perf_counter()
    try:
        result = step.run(state)
    except Exception as error:
        run = PassRun(title, step, time.perf_counter() - start, before, state, levels)
        for instrument in instruments:
            instrument.refused(run, error)
        raise
    seconds = time.perf_counter() - start
    if not isinstance(result, step.makes or type(None)):
        raise TypeError(f"pass {step.name} must make a {(step.makes or type(None)).__name__}, not {result!r}")
    after = state if step.makes is None else result
    for instrument in instruments:
        instrument.ran(PassRun(title, step, seconds, before, after, levels))
    return after


def _size_before(step: Pass, state: Any, levels: tuple[Level, ...]) -> tuple[str, int] | None:
    """Unit and size of what a pass changes, or else of the last value in front of it that has a level."""
    values = [(part.name, getattr(state, part.name)) for part in reversed(fields(state))]
    known = [(name, level, value) for name, value in values if (level := level_of(value, levels)) is not None]
    known.sort(key=lambda entry: entry[0] not in step.values)  # stable: what it changes comes first
    return next(((level.unit, level.size(value)) for _, level, value in known), None)


def level_of(value: Any, levels: Iterable[Level]) -> Level | None:
    """The level of a value, by its type."""
    return next((level for level in levels if isinstance(value, level.kind)), None)
