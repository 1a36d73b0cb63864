"""The process: open the data directory, recover, listen, serve, and stop in good order.

The port is open while the log is replayed, so that probes can tell a starting server from a dead one. SIGTERM or
SIGINT: stop accepting, answer what is open, take a last snapshot, exit 0.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from time import perf_counter

from topics.broker.broker import Broker
from topics.broker.directory import DataDirectory, DirectoryInUse
from topics.broker.loop_runtime import LoopRuntime
from topics.model.errors import CorruptStorage
from topics.server import logs
from topics.server.application import TopicsApplication
from topics.server.authority import Authority
from topics.server.http import HttpLimits, Listener
from topics.server.login import Users, tell_about_users
from topics.server.service import Service
from topics.server.settings import BadSettings, Settings, is_loopback

log = logging.getLogger("topics.server")


async def serve(
    settings: Settings,
    on_listening: Callable[[str, int], None] = lambda host, port: None,
    stop: asyncio.Event | None = None,
) -> int:
    """Run a server until it is told to stop: by `stop`, or by a signal when there is none. Answers the exit status."""
    loop = asyncio.get_running_loop()
    if stop is None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
    directory = DataDirectory(settings.data_dir)
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
    _tell_who_may_call(settings)
    limits = HttpLimits(
        max_body_bytes=settings.limits.max_body_bytes,
        max_connections=settings.max_connections,
        peer_timeout=settings.peer_timeout_ms / 1000,
    )
    listener = Listener(TopicsApplication(service), limits)
    try:
        host, port = await listener.start(settings.host, settings.port)
    except OSError as error:
        log.error("cannot listen on %s:%s: %s", settings.host, settings.port, error)
        directory.close()
        return 1
    try:
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        _tell_address(settings.port_file, address)
        log.info("listening on http://%s, data in %s", address, settings.data_dir)
        on_listening(host, port)
        broker = await _recover(service, directory, runtime, settings, stop)
        if broker is None:
            return 0 if service.recovery_error is None else 1
        await stop.wait()
        log.info("stopping")
        service.stopping = True
        service.throttle.stop()
        for poll in list(broker.polls):
            poll.finish()
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
        if settings.port_file is not None:
            with contextlib.suppress(OSError):
                os.unlink(settings.port_file)


async def _recover(
    service: Service, directory: DataDirectory, runtime: LoopRuntime, settings: Settings, stop: asyncio.Event
) -> Broker | None:
    """The broker, or None when the data cannot be trusted or the server was told to stop meanwhile."""
    started = perf_counter()

    def progress(done: float) -> None:
        service.recovery_progress = done

    # Recovery makes nothing but long-lived objects; looking for garbage among them takes longer than making them.
    gc.disable()
    try:
        recovered = await asyncio.to_thread(directory.recover, settings.storage, progress)
    except (CorruptStorage, OSError) as error:
        service.recovery_error = str(error)
        log.error("the data directory cannot be recovered: %s", error)
        return None
    finally:
        gc.enable()
    for torn in recovered.torn:
        log.warning("cut off %s bytes of a torn tail: %s at byte %s", torn.dropped_bytes, torn.path, torn.offset)
    for bad in recovered.bad_snapshots:
        log.warning("snapshot not usable, an older one was taken: %s", bad)
    if stop.is_set():
        return None
    broker = Broker(directory.fs, runtime, recovered, settings.limits, settings.storage)
    broker.start()
    # A full collection over millions of objects would stop the loop for hundreds of milliseconds; what recovery made
    # is set aside for good, and later full collections are made rare.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    service.broker = broker
    service.throttle.start(runtime)
    took_ms = (perf_counter() - started) * 1000
    log.info("ready: %s topics, %s frames replayed in %.0f ms", len(broker.state.topics), recovered.frames, took_ms)
    return broker


def _tell_who_may_call(settings: Settings) -> None:
    for name in settings.unknown_variables:
        log.warning("%s is not a setting of this server and is ignored", name)
    tell_about_users(settings)
    if settings.asks_for_credentials:
        log.info("%s api keys and %s users may call", len(settings.keys), len(settings.users))
    elif is_loopback(settings.host):
        log.warning(
            "NO API KEYS: authentication is off, everybody on this machine may read, write and delete everything"
        )
    else:
        log.warning(
            "NO API KEYS ON %s: authentication is off and TOPICS_ALLOW_INSECURE_NO_AUTH is set, "
            "EVERYBODY WHO REACHES THIS ADDRESS may read, write and delete everything",
            settings.host,
        )


def _tell_address(path: str | None, address: str) -> None:
    """Whoever waits for the file to appear finds it whole."""
    if path is None:
        return
    aside = f"{path}.tmp"
    with open(aside, "w", encoding="utf-8") as file:
        file.write(f"{address}\n")
    os.replace(aside, path)


def _leave_numpy_out() -> None:
    """Where numpy is installed, pyarrow would load it with the first segment that is sealed or read.

    Nothing here uses it, and it costs 0.13 s, 12 MB and a pool of threads that spin while they wait for work.
    """
    sys.modules.setdefault("numpy", None)  # type: ignore[arg-type]


def run(settings: Settings) -> int:
    """Serve on the fastest loop there is, until told to stop."""
    import uvloop

    _leave_numpy_out()
    logs.set_up(settings.log_format, settings.log_level)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serve(settings))
