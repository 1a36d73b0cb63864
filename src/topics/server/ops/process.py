"""The process: open the data directory, recover, listen, serve, and stop.

The port is open while the log is replayed, so that probes can distinguish a starting server from a dead one. SIGTERM or
SIGINT: stop accepting, answer what is open, take a last snapshot, exit 0.
"""

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from time import perf_counter

from topics.broker.broker import Broker
from topics.broker.durability.data_directory import DataDirectory, DirectoryInUse
from topics.broker.durability.recovery import Recovered
from topics.model.errors import CorruptStorage
from topics.runtime.loop_runtime import LoopRuntime
from topics.server import handlers
from topics.server.application import TopicsApplication
from topics.server.auth.authentication import Authority
from topics.server.auth.login import Users, warn_about_users
from topics.server.auth.reload import CredentialReload
from topics.server.http import HttpLimits, Listener
from topics.server.ops import logs
from topics.server.ops.settings import BadSettings, Settings, is_loopback
from topics.server.service import Service

log = logging.getLogger("topics.server")
# The time after which requests of a start have been answered.
LOAD_HANDLERS_AFTER_S = 5.0
# Of mallopt, as malloc.h has it.
_M_MMAP_THRESHOLD = -3


async def serve(
    settings: Settings,
    on_listening: Callable[[str, int], None] = lambda host, port: None,
    stop: asyncio.Event | None = None,
    reload: Callable[[], Settings] | None = None,
) -> int:
    """Run a server until `stop` is set or, without it, until a signal arrives. Returns the exit status."""
    loop = asyncio.get_running_loop()
    uses_signals = stop is None
    if stop is None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        # Ignored until the server serves: the default would end the process.
        loop.add_signal_handler(signal.SIGHUP, lambda: None)
    directory = DataDirectory(settings.data_dir, settings.runtime_dir)
    try:
        directory.open()
    except (DirectoryInUse, OSError) as error:
        log.error("cannot use the data directory %s: %s", settings.data_dir, error)
        return 1
    service = Service(settings, Authority(settings.keys))
    runtime = LoopRuntime(loop)
    if settings.users or settings.jwt_secret is not None or settings.jwt_public_key is not None:
        try:
            service.users = Users(settings, runtime)
        except BadSettings as error:
            log.error("%s", error)
            directory.close()
            return 2
        service.users.join(service.authority)
    log_authentication(settings)
    limits = HttpLimits(
        max_body_bytes=settings.limits.max_body_bytes,
        max_connections=settings.max_connections,
        peer_timeout=settings.peer_timeout_ms / 1000,
    )
    listener = Listener(TopicsApplication(service), limits)
    service.gauges["topics_connections"] = ("Open connections.", lambda: len(listener.connections))
    try:
        host, port = await listener.start(settings.host, settings.port)
    except OSError as error:
        log.error("cannot listen on %s:%s: %s", settings.host, settings.port, error)
        directory.close()
        return 1
    try:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        # A file that a killed server left would name a server that does not serve yet, or another one.
        _remove(settings.port_file)
        log.info("listening on http://%s, data in %s", address, settings.data_dir)
        on_listening(host, port)
        broker = await _recover(service, directory, runtime, settings, stop)
        if broker is None:
            return 0 if service.recovery_error is None else 1
        if uses_signals:
            loop.add_signal_handler(signal.SIGHUP, CredentialReload(service, settings, reload, listener, runtime).run)
        _write_port_file(settings.port_file, address)
        loading = loop.create_task(handlers.load_all(LOAD_HANDLERS_AFTER_S))
        await stop.wait()
        loading.cancel()
        log.info("stopping")
        service.stopping = True
        service.throttle.stop()
        service.sampler.stop()
        broker.finish_polls()
        await listener.stop(grace=settings.drain_ms / 1000)
        stopped: asyncio.Future[bool] = loop.create_future()
        broker.stop(stopped.set_result)
        worked = await stopped
        log.info("stopped" if worked else "stopped; the last snapshot could not be written, the log has everything")
        return 0
    finally:
        await listener.stop(grace=0)
        service.selects.close()
        runtime.stop()
        directory.close()
        _remove(settings.port_file)


async def _recover(
    service: Service, directory: DataDirectory, runtime: LoopRuntime, settings: Settings, stop: asyncio.Event
) -> Broker | None:
    """The broker, or None when the data is corrupt or the server was stopped meanwhile."""
    started = perf_counter()
    # Recovery makes nothing but long-lived objects; looking for garbage among them takes longer than making them.
    # `topics serve` has disabled the collector before its imports, and has no garbage to speak of.
    if gc.isenabled():
        gc.collect()
        gc.disable()
    try:
        broker, frames = await _recovered_broker(service, directory, runtime, settings, stop)
        # A full collection over millions of objects would stop the loop for hundreds of milliseconds: what recovery made
        # is never looked at, and later full collections are made rare.
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
    finally:
        gc.enable()
    if broker is not None:
        service.broker = broker
        service.throttle.start(runtime)
        service.sampler.start(broker)
        took_ms = (perf_counter() - started) * 1000
        log.info("ready: %s topics, %s frames replayed in %.0f ms", len(broker.state.topics), frames, took_ms)
    return broker


async def _recovered_broker(
    service: Service, directory: DataDirectory, runtime: LoopRuntime, settings: Settings, stop: asyncio.Event
) -> tuple[Broker | None, int]:
    """The started broker, or None, and the number of frames that were replayed."""

    def progress(done: float) -> None:
        service.recovery_progress = done

    try:
        recovered = await asyncio.to_thread(directory.recover, settings.storage, progress)
    except (CorruptStorage, OSError) as error:
        service.recovery_error = str(error)
        log.error("the data directory cannot be recovered: %s", error)
        return None, 0
    for torn in recovered.torn:
        log.warning("cut off %s bytes of a torn tail: %s at byte %s", torn.dropped_bytes, torn.path, torn.offset)
    for replaced in recovered.state.segment_cache.replaced:
        log.warning("damaged segment not needed, its records were read from the log: %s", replaced)
    _log_ending(recovered, settings)
    if stop.is_set():
        return None, recovered.frames
    broker = Broker(directory.fs, runtime, recovered, settings.limits, settings.storage)
    broker.start()
    return broker, recovered.frames


def _log_ending(recovered: Recovered, settings: Settings) -> None:
    if recovered.marker_error is not None:
        log.warning(
            "cannot keep a marker in %s: %s; if this server is killed, its next start reports possible loss although nothing "
            "is lost. Set TOPICS_RUNTIME_DIR to a directory in memory",
            settings.runtime_dir,
            recovered.marker_error,
        )
    margin = settings.storage.margin
    if recovered.ending == "unknown":
        log.warning(
            "the last run did not stop cleanly, and nothing proves that all it wrote is on the disk (power failure, restored "
            "volume, or no marker in %s): %s seqs of each memory and disk topic are skipped and reported as lost",
            settings.runtime_dir,
            margin,
        )
    elif recovered.ending == "behind":
        log.error(
            "the data directory ends before what the last run wrote: it was restored from an earlier copy, or files are "
            "missing. Everything written since is lost; %s seqs of each topic are skipped and reported as lost",
            margin,
        )


def log_authentication(settings: Settings) -> None:
    for name in settings.unknown_variables:
        log.warning("%s is not a setting of this server and is ignored", name)
    for sentence in settings.retired:
        log.warning("%s", sentence)
    warn_about_users(settings)
    if settings.asks_for_credentials:
        log.info("%s api keys and %s users may call", len(settings.keys), len(settings.users))
    elif is_loopback(settings.host):
        log.warning(
            "NO API KEYS: authentication is off, every process on this machine may read, write and delete everything"
        )
    else:
        log.warning(
            "NO API KEYS ON %s: authentication is off and TOPICS_ALLOW_INSECURE_NO_AUTH is set, "
            "EVERY CLIENT THAT REACHES THIS ADDRESS may read, write and delete everything",
            settings.host,
        )


def _write_port_file(path: str | None, address: str) -> None:
    """Say that the server serves, and where. The file appears whole."""
    if path is None:
        return
    aside = f"{path}.tmp"
    with open(aside, "w", encoding="utf-8") as file:
        file.write(f"{address}\n")
    os.replace(aside, path)


def _remove(path: str | None) -> None:
    if path is not None:
        with contextlib.suppress(OSError):
            os.unlink(path)


def _leave_numpy_out() -> None:
    """Where numpy is installed, pyarrow would load it with the first segment that is sealed or read.

    Nothing here uses it, and it costs 0.13 s, 12 MB and a pool of threads that spin while they wait for work.
    """
    sys.modules.setdefault("numpy", None)  # type: ignore[arg-type]


def _map_large_buffers() -> None:
    """Have the C library take buffers of 8 MiB and more from the system, not from its heap, and keep it that way.

    A body that grows while it arrives is then moved without being copied. glibc raises the limit by itself, up to 32 MiB,
    and then a body of 64 MiB is copied for 20 ms once on its way. Other C libraries do without.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 8 << 20)


def run(
    settings: Settings,
    on_listening: Callable[[str, int], None] = lambda host, port: None,
    reload: Callable[[], Settings] | None = None,
) -> int:
    """Serve on uvloop until a signal stops it; returns the exit code. SIGHUP reads keys and users again with `reload`."""
    import uvloop

    _leave_numpy_out()
    _map_large_buffers()
    logs.set_up(settings.log_format, settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings, on_listening, reload=reload))
