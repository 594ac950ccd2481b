"""``--workers`` and ``--cluster`` of the commands that can share their work."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from concord.cli.common import POSITIVE

if TYPE_CHECKING:
    from concord.utils.parallel import Engine


def workers_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options."""
    cluster = click.option(
        "--cluster", metavar="ADDRESS", help="Address of a Dask cluster that shares the work, such as tcp://HOST:8786."
    )
    workers = click.option("--workers", type=POSITIVE, metavar="N", help="Number of processes that share the work.")
    return workers(cluster(command))


def several(workers: int | None, cluster: str | None) -> AbstractContextManager[Engine | None]:
    """The workers that were asked for, or ``None``."""
    if workers is None and cluster is None:
        return nullcontext()
    if workers is not None and cluster is not None:
        raise ValueError("--workers must be given without --cluster: a cluster has workers of its own")
    from concord.utils.parallel import Engine

    return Engine(workers, cluster)
