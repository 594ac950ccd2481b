"""Faults at every call by which files are written: an error, an interruption, or the end of the process."""

import errno
import io
import os
from contextlib import contextmanager
from unittest.mock import patch

from concord.utils import folders

#: Calls that change or open files.
CALLS = ("open", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "chmod", "close")


class Killed(BaseException):
    """The process is gone: nothing that follows has any effect."""


class Faults:
    """Counts calls and lets one of them fail.

    Parameters
    ----------
    at : int
        Number of the call, from 0.
    fault : BaseException
        What it raises; with :class:`Killed` all calls behind it, too.
    """

    def __init__(self, at, fault):
        self.at, self.fault, self.count = at, fault, 0

    @property
    def happened(self):
        return self.count > self.at

    def step(self):
        self.count += 1
        if self.count - 1 == self.at or (self.happened and isinstance(self.fault, Killed)):
            raise self.fault

    def _guarded(self, function):
        def call(*args, **kwargs):
            self.step()
            return function(*args, **kwargs)

        return call

    def _opened(self, function):
        def call(file, mode="r", *args, **kwargs):
            if mode.startswith("r") and "+" not in mode:
                return function(file, mode, *args, **kwargs)
            self.step()
            return _Steps(function(file, mode, *args, **kwargs), self)

        return call

    @contextmanager
    def injected(self, inside=True):
        """In the block, calls are counted and one fails; what comes of it does not leave the block if ``inside``."""
        calls = {name: self._guarded(getattr(os, name)) for name in CALLS}
        swap = patch.object(folders, "exchange", self._guarded(folders.exchange))
        with patch.object(io, "open", self._opened(io.open)), patch.multiple(os, **calls), swap:
            try:
                yield
            except (OSError, KeyboardInterrupt, Killed) as error:
                if not inside or not self.happened or (error is not self.fault and error.__cause__ is None):
                    raise


class _Steps:
    """A file whose every write is a step; half of the write that fails is done."""

    def __init__(self, file, faults):
        self._file, self._faults = file, faults

    def __getattr__(self, name):
        return getattr(self._file, name)

    def __enter__(self):
        return self

    def __exit__(self, *what):
        self._file.close()

    def write(self, data):
        try:
            self._faults.step()
        except BaseException:
            self._file.write(memoryview(data)[: len(data) // 2])
            self._file.flush()
            raise
        return self._file.write(data)


def no_space():
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


#: What may happen, by name.
FAULTS = {"disk full": no_space, "interrupted": KeyboardInterrupt, "killed": Killed}


def every(action, fault, step=1):
    """Call ``action`` with a fault at its first call, ``step`` calls later and so on, until none happens any more.

    Yields
    ------
    Faults
        After every attempt in which the fault happened.
    """
    at = 0
    while True:
        faults = Faults(at, FAULTS[fault]())
        with faults.injected():
            action()
        if not faults.happened:
            return
        yield faults
        at += step
