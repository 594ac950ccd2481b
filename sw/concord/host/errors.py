"""Errors between host and device."""

from __future__ import annotations

from concord.spec.isa import Trap
from concord.spec.link import Status


class LinkError(RuntimeError):
    """The link does not work as it should."""


class LinkTimeout(LinkError, TimeoutError):
    """No reply."""


class DamagedError(LinkError):
    """Requests or replies arrive damaged, again and again."""


class SequenceError(LinkError):
    """The device expects another sequence number: it was reset, or another host talks to it."""


class RefusedError(LinkError):
    """The device answered with an error; nothing was changed. ``status`` says which."""

    status: Status


class TooLongError(RefusedError):
    """The payload is longer than the device accepts."""

    status = Status.TOO_LONG


class BadKindError(RefusedError):
    """The device does not know the request."""

    status = Status.BAD_KIND


class BadLengthError(RefusedError):
    """The payload does not fit the request, or is not a whole number of words, or the reply would be too long."""

    status = Status.BAD_LENGTH


class BadRegionError(RefusedError):
    """There is no such region, or it cannot be read or written."""

    status = Status.BAD_REGION


class BadAddressError(RefusedError):
    """The request reaches beyond the end of the region."""

    status = Status.BAD_ADDR


class BusyError(RefusedError):
    """The region is not accessible while a program runs."""

    status = Status.BUSY


_REFUSALS = (TooLongError, BadKindError, BadLengthError, BadRegionError, BadAddressError, BusyError)
#: The exception for each error status that is final.
REFUSALS: dict[int, type[RefusedError]] = {error.status: error for error in _REFUSALS}


class DeviceError(RuntimeError):
    """The device is not what it should be, or does not do what it should."""


class MismatchError(DeviceError):
    """The device has another configuration than expected."""


class RunTimeout(DeviceError, TimeoutError):
    """A program did not end in time."""


class TrapError(DeviceError):
    """A program stopped at a word that cannot be executed.

    Parameters
    ----------
    trap : Trap
        Why.
    pc : int
        Address of the word.
    word : int or None
        The word; ``None`` beyond the end of the program memory.
    text : str
        The word as text.
    """

    def __init__(self, trap: Trap, pc: int, word: int | None, text: str):
        shown = "behind the end of the program memory" if word is None else f"{word:#018x} ({text})"
        super().__init__(f"trap {trap.name} at address {pc}: {shown}")
        self.trap = trap
        self.pc = pc
        self.word = word
        self.text = text
