"""Passes, the pipelines they form, and the instruments that observe them.

A network goes through several *levels* on its way to an image: a graph, layers, a memory plan, a program. A *pass*
takes some named values and makes others. A :class:`Pipeline` is a column of passes. It runs them in order and hands
every value on by its name. An :class:`Instrument` sees every pass that runs inside :func:`instrumented`, wherever its
pipeline is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

#: Values by name.
State = dict[str, Any]


@dataclass(frozen=True)
class Pass:
    """One step of a pipeline.

    Parameters
    ----------
    name : str
        What messages, tables and dumps call it.
    takes : tuple of str
        Names of the values that ``run`` gets, in this order.
    makes : tuple of str
        Names of the values that ``run`` returns: nothing, one value, or a tuple of several. A value that the pass
        changes in place is both taken and made.
    run : callable
        The transformation, an ordinary function.
    does : str
        One line for the documentation.
    """

    name: str
    takes: tuple[str, ...]
    makes: tuple[str, ...]
    run: Callable[..., Any]
    does: str = ""


@dataclass(frozen=True)
class Level:
    """How values of one type are measured, shown and checked.

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
    problems: Callable[[Any, State], Iterable[str]] = lambda value, state: ()


@dataclass(frozen=True)
class Run:
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
        Unit and size of the first value that it takes and that has a level.
    state : dict
        All values behind it.
    levels : tuple of Level
        Levels of the pipeline.
    """

    pipeline: str
    done: Pass
    seconds: float
    before: tuple[str, int] | None
    state: State
    levels: tuple[Level, ...]

    def made(self) -> Iterator[tuple[str, Any, Level]]:
        """Values that the pass has made and that have a level: name, value, level."""
        for name in self.done.makes:
            if name in self.state and (level := level_of(self.state[name], self.levels)) is not None:
                yield name, self.state[name], level

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

    def ran(self, run: Run) -> None:
        """A pass has run."""

    def refused(self, run: Run, error: Exception) -> None:
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
    """Whether an instrument wants estimates in remarks."""
    return any(instrument.estimates for instrument in _INSTRUMENTS.get())


@dataclass(frozen=True)
class Pipeline:
    """A column of passes.

    Parameters
    ----------
    name : str
        Title.
    given : tuple of str
        Names of the values that :meth:`run` needs.
    passes : tuple of Pass
        In the order in which they run.
    levels : tuple of Level
        Of the values, for instruments.

    Raises
    ------
    ValueError
        If a pass takes a value that is neither given nor made by a pass before it.
    """

    name: str
    given: tuple[str, ...]
    passes: tuple[Pass, ...]
    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        known = set(self.given)
        for one in self.passes:
            if missing := [name for name in one.takes if name not in known]:
                raise ValueError(f"pass {one.name} must take values that exist before it, not {', '.join(missing)}")
            known.update(one.makes)

    def run(self, values: Mapping[str, Any], title: str = "") -> State:
        """Run all passes.

        Parameters
        ----------
        values : mapping
            At least the given values; the mapping stays as it is.
        title : str
            What tables and dumps call this run; the name of the pipeline, if it is empty.

        Returns
        -------
        dict
            The given values and everything that the passes have made.

        Raises
        ------
        ValueError
            If a value is missing. What passes raise goes on to the caller.
        """
        if any(name not in values for name in self.given):
            raise ValueError(f"pipeline {self.name} must be given {', '.join(self.given)}, not {', '.join(values)}")
        state = dict(values)
        for one in self.passes:
            _run(one, state, title or self.name, self.levels)
        return state


def _run(one: Pass, state: State, title: str, levels: tuple[Level, ...]) -> None:
    """Run one pass, put what it makes into the state, and tell the instruments."""
    instruments, taken = _INSTRUMENTS.get(), [state[name] for name in one.takes]
    known = ((level, value) for value in taken if instruments and (level := level_of(value, levels)) is not None)
    before = next(((level.unit, level.size(value)) for level, value in known), None)
    start = time.perf_counter()
    try:
        result = one.run(*taken)
    except Exception as error:
        run = Run(title, one, time.perf_counter() - start, before, state, levels)
        for instrument in instruments:
            instrument.refused(run, error)
        raise
    seconds = time.perf_counter() - start
    if len(one.makes) == 1:
        state[one.makes[0]] = result
    elif one.makes:
        state.update(zip(one.makes, result, strict=True))
    for instrument in instruments:
        instrument.ran(Run(title, one, seconds, before, state, levels))


def level_of(value: Any, levels: Iterable[Level]) -> Level | None:
    """The level of a value, by its type."""
    return next((level for level in levels if isinstance(value, level.kind)), None)
