"""Type a program into Python as a user does: one statement after the other, with Ctrl-C where one has no end.

    python -m tests.client.first_program URL < program

Statements are run as they are printed. Prints what `handle` was called with, a line for each statement that Ctrl-C has
ended, and at the end what the worker has run.
"""

import ast
import asyncio
import inspect
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from topics.client import Client, NotFound

PATIENCE_S = 30.0


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def handle(data: Any) -> None:
    """What the program calls for each message; then the user has seen enough."""
    print("handled", data, flush=True)
    press_ctrl_c()


def leave_follow() -> None:
    time.sleep(0.3)
    press_ctrl_c()


def leave_worker(url: str) -> None:
    """Add a job to the queue that the worker creates, and leave it when the job is finished."""
    ends_at = time.monotonic() + PATIENCE_S
    with Client(url) as client:
        appended = False
        while time.monotonic() < ends_at:
            try:
                info = client.info("jobs")
                if not appended:
                    client.append("jobs", [{"url": "a.png"}])
                    appended = True
                elif info.head_seq and info.count == 0:
                    print("the job is finished", flush=True)
                    break
            except NotFound:
                pass
            time.sleep(0.02)
    press_ctrl_c()


def main(url: str) -> None:
    source = sys.stdin.read().replace("http://127.0.0.1:4000", url)
    space: dict[str, Any] = {"handle": handle}
    with asyncio.Runner() as runner:
        for statement in ast.parse(source).body:
            text = ast.unparse(statement)
            leave: Callable[[], None] | None = None
            if ".follow(" in text:
                leave = leave_follow
            elif ".run()" in text:
                leave = lambda: leave_worker(url)  # noqa: E731
            try:
                if leave is not None:
                    threading.Thread(target=leave, daemon=True).start()
                code = compile(ast.Module([statement], []), "program", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                result = eval(code, space)
                if inspect.iscoroutine(result):
                    runner.run(result)
            except KeyboardInterrupt:
                print("left", text.splitlines()[0], flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
