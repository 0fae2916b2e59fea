"""The engine: functions run on dask.distributed's workers, results come back as they are ready.

An adapter and no more: which work, in which order and how much of it at once is decided by ``run``.
Work asks its worker for memory (the ``memory`` resource), so that what runs at once never passes
what a worker may use; dask's own retries are off, because the ledger retries by a failure's class.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import multiprocessing.forkserver
import multiprocessing.resource_tracker
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Self

import dask
import distributed
from distributed.scheduler import KilledWorker

from decant_batch.batch import task
from decant_batch.errors import Unusable

_FORKS = "forkserver" in multiprocessing.get_all_start_methods()
_START_METHOD = "forkserver" if _FORKS else "spawn"
_PRELOADED = ["distributed", "decant_batch.batch.task", "ome_types.model", "yaozarrs.v04"]
# Dask's samplers cost processor time and tell us nothing that the ledger does not; one lost worker
# is enough to hand its work back, because the ledger counts. Workers are forked from a server that
# has imported everything once (measured: two start in 0.6 s of processor time, not 1.6 s).
_SETTINGS: dict[str, Any] = {
    "distributed.worker.multiprocessing-method": _START_METHOD,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.tick.limit": "60s",
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.work-stealing": True,
    "distributed.admin.system-monitor.interval": "10s",
    "distributed.comm.timeouts.connect": "60s",
}
# Dask sets this so that glibc trims at 64 KiB, which also switches glibc's adaptive threshold off:
# each buffer is then mapped anew, and packing took 12.2 s of processor time instead of 6.7 s for
# 1 GiB. Workers trim between pieces of work instead (``task``).
_NOT_FOR_WORKERS = "MALLOC_TRIM_THRESHOLD_"
_TOPIC = "decant-batch-read"
_REPORT_EVERY_S = 1.0
_FETCH_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """One piece of work that ended: its result, or what stopped it.

    ``lost`` is true where its worker died; ``error`` is then what dask says, else what the function
    raised.
    """

    token: object
    result: Any = None
    error: BaseException | None = None
    lost: bool = False


class _Deaf(distributed.WorkerPlugin):  # type: ignore[misc]  # dask has no types
    """Workers do not hear Ctrl-C, which a terminal sends to all: the driver ends them."""

    def setup(self, worker: distributed.Worker) -> None:
        """Called by dask in the main thread of each worker, new ones too."""
        del worker
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class Engine:
    """Local workers, each a process with one thread; a context manager that ends them."""

    def __init__(self, *, workers: int, memory_bytes: int) -> None:
        self.workers = workers
        self.underway: dict[object, int] = {}
        self._memory_bytes = memory_bytes
        self._stack = contextlib.ExitStack()
        self._ready: queue.SimpleQueue[tuple[object, distributed.Future]] = queue.SimpleQueue()
        self._futures: dict[object, distributed.Future] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            with _interrupts_held():
                self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._futures.clear()
        with _interrupts_held():
            self._stack.close()

    def _start(self, stack: contextlib.ExitStack) -> None:
        """Start the workers, and tell ``stack`` how they end."""
        if _FORKS:
            _start_fork_server()
        stack.enter_context(dask.config.set(_SETTINGS))
        stack.enter_context(
            dask.config.set({"distributed.nanny.pre-spawn-environ": _environment()})
        )
        cluster = distributed.LocalCluster(
            n_workers=self.workers,
            threads_per_worker=1,
            processes=True,
            memory_limit=self._memory_bytes,
            resources={"memory": self._memory_bytes},
            dashboard_address="127.0.0.1:0",  # any free port; nothing listens for others
            silence_logs="CRITICAL",
        )
        stack.enter_context(cluster)
        self._client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        self._client.register_plugin(_Deaf())
        self._client.subscribe_topic(_TOPIC, self._heard)

    def reserved_bytes(self) -> int:
        """Most memory that a worker takes when it is idle and has done everything once."""
        try:
            taken: dict[str, int] = self._client.run(task.reserved_bytes)
        except OSError as error:  # dask's CommClosedError is one
            raise Unusable(
                f"cluster: a worker of {self._memory_bytes} bytes ended before it had work"
                f" ({error}); raise `memory`, or look at what else runs on this machine"
            ) from error
        return max(taken.values())

    def submit(
        self, token: object, function: Callable[..., Any], *args: object, memory: int, urgency: int
    ) -> None:
        """Hand ``function(*args, report)`` to a worker that has ``memory`` bytes left.

        ``report`` is for the number of bytes read; larger ``urgency`` goes first. The end is told
        by ``next``, under ``token``.
        """
        future = self._client.submit(
            _call,
            function,
            token,
            *args,
            resources={"memory": memory},
            priority=urgency,
            retries=0,
            pure=False,
        )
        self._futures[token] = future
        future.add_done_callback(lambda ended: self._ready.put((token, ended)))

    def next(self, timeout_s: float) -> Done | None:
        """The next piece of work that ended, its future released; None after ``timeout_s``."""
        try:
            token, future = self._ready.get(timeout=timeout_s)
        except queue.Empty:
            return None
        self._futures.pop(token, None)
        self.underway.pop(token, None)
        done = _ended(token, future)
        future.release()
        return done

    def _heard(self, event: tuple[float, Any]) -> None:
        token, nbytes = event[1]
        if token in self._futures:
            self.underway[token] = nbytes


@contextlib.contextmanager
def _interrupts_held() -> Iterator[None]:
    """An interrupt waits for the end of the block; a second one does not.

    Workers that are only half started cannot be ended in order: they and dask would both complain.
    """
    if threading.current_thread() is not threading.main_thread():  # interrupts do not come here
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    held: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        handler = handlers[signal.Signals(number)]
        if held and callable(handler):
            handler(number, frame)
        held.append(number)

    for number, handler in handlers.items():
        if callable(handler):  # else the process ignores it or ends by it
            signal.signal(number, hold)
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if held:
        signal.raise_signal(held[0])


def _start_fork_server() -> None:
    """Start the server that workers are forked from, deaf to Ctrl-C as they are to be."""
    multiprocessing.set_forkserver_preload(_PRELOADED)
    multiprocessing.resource_tracker.ensure_running()  # by the server else, and it unblocks
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _ended(token: object, future: distributed.Future) -> Done:
    """What a future that ended has to say. It may have to be fetched from a worker that died since:
    dask would do the work again while the driver waits, so it counts as lost and is done again.
    """
    try:
        error = future.exception(timeout=_FETCH_S)
        if error is not None:
            return Done(token=token, error=error, lost=isinstance(error, KilledWorker))
        return Done(token=token, result=future.result(timeout=_FETCH_S))
    except (TimeoutError, OSError, asyncio.CancelledError) as late:
        return Done(token=token, error=late, lost=True)


def _environment() -> dict[str, str]:
    """Environment of a worker before it starts: dask's own, without its allocator setting."""
    given = dask.config.get("distributed.nanny.pre-spawn-environ")
    return {name: value for name, value in given.items() if name != _NOT_FOR_WORKERS}


def _call(function: Callable[..., Any], token: object, *args: object) -> Any:  # noqa: ANN401
    """Run on a worker: the function, its bytes reported once a second at the most."""
    total, told = 0, time.monotonic()

    def report(nbytes: int) -> None:
        nonlocal total, told
        total += nbytes
        if time.monotonic() - told >= _REPORT_EVERY_S:
            told = time.monotonic()
            distributed.get_worker().log_event(_TOPIC, (token, total))

    return function(*args, report)
