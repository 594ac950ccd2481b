"""Tasks on several processes of this machine, or on many machines: Dask's distributed scheduler.

It starts and watches the processes, moves arguments and results, and computes the tasks of a process that has died
again on another one. Tasks are functions of their arguments alone, so it does not matter where or how often.
"""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import Any, Self

from concord.utils.extras import install_command

#: Seconds to wait for a scheduler, and for its first worker.
_PATIENCE = 20
#: Number of times that processes of this machine are started until all of them are there.
_STARTS = 4
_ADDRESS = re.compile(r"((tcp|tls|ws|wss)://)?(\[[0-9A-Fa-f:.%\w]+\]|[^:/\[\]\s]+):(?P<port>\d{1,5})")
_SETTINGS = {
    # No warning of large arguments: a task that has all of its arguments can be computed again by another worker.
    "distributed.admin.large-graph-warning-threshold": "1 TiB",
    # A process that has died is started anew however long that takes: on a busy machine longer than the 15 s of Dask,
    # after which it would be given up, and the last one with it.
    "distributed.deploy.lost-worker-timeout": "1000 days",
}


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
        If neither or both are given, the address can be none, or the packages of the extra ``parallel`` are not
        installed.
    OSError
        If there is no scheduler at the address, or it has no workers, or those of this machine die while they start.
    """

    def __init__(self, workers: int | None = None, cluster: str | None = None):
        if (workers is None) == (cluster is None):
            raise ValueError("workers or the address of a cluster must be given, and not both")
        if workers is not None and workers < 1:
            raise ValueError(f"workers must be at least 1, not {workers!r}")
        try:
            import dask
            import distributed
        except ModuleNotFoundError as error:
            raise ValueError(f"several workers need Dask: {install_command('parallel')}") from error
        self._local: Any = None
        with ExitStack() as stack:
            stack.enter_context(dask.config.set(_SETTINGS))
            if workers is not None:
                with _ignoring_interrupts():
                    self._local = _local_cluster(workers)
                stack.callback(self._local.close)
            self._client = distributed.Client(self._local) if cluster is None else _client(cluster)
            stack.callback(self._client.close)
            self._check()
            self._stack = stack.pop_all()

    def _check(self) -> None:
        """Check that there is anyone to work."""
        try:
            self._client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError as error:
            raise OSError(
                f"cluster at {self.address} must have a worker, and has none: dask worker {self.address} starts one"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that were started here; those of a cluster stay."""
        self._stack.close()

    def submit(self, function: Callable[..., Any], *args: Any) -> Any:
        """Result of a function as an argument for tasks: made where it is needed, and again if it is lost."""
        return self._client.submit(function, *args, pure=False)

    def broadcast(self, value: Any) -> Any:
        """A value as an argument for several tasks: it is moved to each worker once."""
        return self.submit(_itself, value)

    def map(self, function: Callable[..., Any], calls: Sequence[Sequence[Any]]) -> list[Any]:
        """``[function(*args) for args in calls]``, computed by all workers; the first error is raised again.

        ``OSError`` if all workers die that compute some task, four of them one after the other.
        """
        from distributed import KilledWorker

        futures = [self.submit(function, *args) for args in calls]
        try:
            return list(self._client.gather(futures))
        except KilledWorker as error:
            raise OSError(
                "workers must survive their tasks, and four have died of the same one: is their memory too small?"
            ) from error

    @property
    def address(self) -> str:
        """Address of the scheduler, which others give as the cluster."""
        return str(self._client.scheduler.address)

    def processes(self) -> dict[str, int]:
        """The process id of every worker, by its address."""
        import os

        return dict(self._client.run(os.getpid))

    def grow(self, workers: int) -> None:
        """Have that many processes on this machine."""
        self._local.scale(workers)
        self._client.wait_for_workers(workers, timeout=120)


def task_slices(samples: int, least: int, most: int) -> list[slice]:
    """Samples divided among tasks, in their order: eight tasks, more if ``most`` is not enough, fewer for ``least``.

    They depend on the number of samples alone. Without samples there is one part, which is empty.
    """
    size = min(max(-(-samples // 8), least), most)
    return [slice(start, min(start + size, samples)) for start in range(0, max(samples, 1), size)]


def _itself(value: Any) -> Any:
    return value


def _local_cluster(workers: int) -> Any:
    """Processes on this machine. One that dies while it starts ends the start of all, so they are started once more."""
    import distributed

    for left in reversed(range(_STARTS)):
        try:
            return distributed.LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address=None,
                memory_limit=0,
                silence_logs=logging.CRITICAL,
            )
        except RuntimeError as error:
            if not left:
                raise OSError(f"workers must start, and {_STARTS} times one has died while it did: {error}") from error
    raise AssertionError


def _client(cluster: str) -> Any:
    """A connection to a scheduler; ``ValueError`` if the address is none that it can have."""
    import distributed

    address = _ADDRESS.fullmatch(cluster)
    if address is None or not 1 <= int(address["port"]) <= 65535:
        raise ValueError(f"cluster must be the address of a Dask scheduler such as tcp://HOST:8786, not {cluster!r}")

    class Connection(distributed.Client):  # type: ignore[misc]  # Dask has no types
        """Connection that is closed at once if it fails.

        Else the garbage collector closes it, at any time. Where Dask holds the lock that closing takes, such as while
        another connection is made, that waits for ever.
        """

        def __init__(self) -> None:
            try:
                super().__init__(cluster, timeout=_PATIENCE)
            except BaseException:
                self.__del__()  # closes as much as there is
                raise

    try:
        return Connection()
    except (ValueError, TypeError, RuntimeError) as error:  # of settings of Dask, such as certificates
        raise OSError(f"cluster at {cluster} cannot be reached: {error}") from error


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """Processes that are started here do not hear Ctrl-C, which a terminal sends to all: it is for this one to end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
