"""Tasks on several processes of this machine, or on many machines: Dask's distributed scheduler.

It starts and watches the processes, moves arguments and results, and computes the tasks of a process that has died
again on another one. Tasks are functions of their arguments alone, so it does not matter where or how often.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self


class Engine:
    """Processes that compute tasks; to be used in a ``with`` statement.

    Parameters
    ----------
    workers : int or None
        Start that many processes on this machine, which only this machine can reach.
    cluster : str or None
        Use the processes of a scheduler that runs already, such as ``tcp://10.0.0.1:8786`` (``dask scheduler`` and
        ``dask worker`` start them). Everyone who can reach it can run code there: keep it in a trusted network.

    Raises
    ------
    ValueError
        If neither or both are given, or the packages of the extra ``parallel`` are not installed.
    OSError
        If there is no scheduler at the address.
    """

    def __init__(self, workers: int | None = None, cluster: str | None = None):
        if (workers is None) == (cluster is None):
            raise ValueError("workers or the address of a cluster must be given, and not both")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers!r}")
        try:
            import distributed
        except ModuleNotFoundError as error:
            raise ValueError("several workers need Dask: pip install 'concord-npu[parallel]'") from error
        self._local: Any = None
        if workers is not None:
            with _deaf():
                self._local = distributed.LocalCluster(
                    n_workers=workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    dashboard_address=None,
                    memory_limit=0,
                    silence_logs=logging.CRITICAL,
                )
        try:
            self._client = distributed.Client(self._local if workers is not None else cluster, timeout=20)
        except BaseException:
            if self._local is not None:
                self._local.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that were started here; those of a cluster stay."""
        self._client.close()
        if self._local is not None:
            self._local.close()

    def made(self, function: Callable[..., Any], *args: Any) -> Any:
        """What a function returns, as an argument for tasks: made where it is needed, and again if it is lost."""
        return self._client.submit(function, *args, pure=False)

    def each(self, function: Callable[..., Any], calls: Sequence[Sequence[Any]]) -> list[Any]:
        """``[function(*args) for args in calls]``, computed by all workers; the first error is raised again."""
        futures = [self._client.submit(function, *args, pure=False) for args in calls]
        return list(self._client.gather(futures))

    @property
    def address(self) -> str:
        """Of the scheduler: what others give as the cluster."""
        return str(self._client.scheduler.address)

    def processes(self) -> dict[str, int]:
        """The process id of every worker, by its address."""
        import os

        return dict(self._client.run(os.getpid))

    def grow(self, workers: int) -> None:
        """Have that many processes on this machine."""
        self._local.scale(workers)
        self._client.wait_for_workers(workers, timeout=120)


@contextmanager
def _deaf() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C, which a terminal sends to all: it is for this one to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
