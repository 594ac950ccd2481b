"""Reuse of what an earlier run built: files with the hash of what they were built from beside them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path


class FlowStep:
    """Files built from something: knows whether they are still good.

    Parameters
    ----------
    outputs : iterable of Path
        Files the step makes, the first one with the key beside it.
    key : str
        Hash of everything the files depend on.
    """

    def __init__(self, outputs: Iterable[Path], key: str):
        self.outputs = list(outputs)
        self.key = key
        self._stamp = self.outputs[0].with_name(self.outputs[0].name + ".key")

    @property
    def fresh(self) -> bool:
        """True if all files are there and were built from the inputs that the key names."""
        there = self._stamp.exists() and all(path.exists() for path in self.outputs)
        return there and self._stamp.read_text() == self.key

    def clear(self) -> None:
        """Forget the key before the files are built again."""
        self.outputs[0].parent.mkdir(parents=True, exist_ok=True)
        self._stamp.unlink(missing_ok=True)

    def keep(self) -> None:
        """Write the key after the files were built."""
        self._stamp.write_text(self.key)
