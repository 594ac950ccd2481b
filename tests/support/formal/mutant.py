"""Changes of one place in the sources of a unit, while its design is made."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FunctionType, ModuleType


@dataclass(frozen=True)
class Change:
    """In ``module``, ``old`` is there once and becomes ``new``."""

    module: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.module.rpartition('.')[2]}: {self.old.strip()} -> {self.new.strip()}"


def _codes(code: CodeType) -> Iterator[tuple[str, CodeType]]:
    """Code of all functions and classes in a piece of code, by qualified name."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield constant.co_qualname, constant
            yield from _codes(constant)


def _functions(module: ModuleType) -> Iterator[FunctionType]:
    """Functions of a module, and those of its classes."""
    for owner in (module, *(x for x in vars(module).values() if inspect.isclass(x))):
        if owner is module or owner.__module__ == module.__name__:
            for value in vars(owner).values():
                if inspect.isfunction(value) and value.__module__ == module.__name__:
                    yield value


@contextmanager
def changed(change: Change | None) -> Iterator[None]:
    """Let the functions of a module be those of the changed source. ``ValueError`` if no function changes."""
    if change is None:
        yield
        return
    module = importlib.import_module(change.module)
    source = inspect.getsource(module)
    if source.count(change.old) != 1:
        raise ValueError(f"old must be in {change.module} once, not {source.count(change.old)} times: {change.old!r}")
    code = compile(source.replace(change.old, change.new), str(module.__file__), "exec", dont_inherit=True)
    codes = dict(_codes(code))
    # Functions that have no source, such as those that a dataclass is given, stay as they are.
    kept = {each: each.__code__ for each in _functions(module) if each.__qualname__ in codes}
    if all(codes[function.__qualname__] == was for function, was in kept.items()):
        raise ValueError(f"new must change a function of {change.module}, not {change.new!r}")
    try:
        for function in kept:
            function.__code__ = codes[function.__qualname__]
        yield
    finally:
        for function, was in kept.items():
            function.__code__ = was
