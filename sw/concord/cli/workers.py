"""``--workers`` and ``--cluster`` of the commands that can share their work."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, NamedTuple

from concord.cli.options import compile_options

if TYPE_CHECKING:
    from concord.utils.parallel import Engine


#: The options.
SHARED = ("workers", "cluster")
#: Adds them to a command.
workers_options = compile_options(*SHARED)


class SharingOptions(NamedTuple):
    """Their values, each ``None`` without its option."""

    workers: int | None = None
    cluster: str | None = None


def several(workers: int | None, cluster: str | None) -> AbstractContextManager[Engine | None]:
    """The workers that were asked for, or ``None``."""
    if workers is None and cluster is None:
        return nullcontext()
    if workers is not None and cluster is not None:
        raise ValueError("--workers must be given without --cluster: a cluster has workers of its own")
    from concord.utils.parallel import Engine

    return Engine(workers, cluster)
