"""Handler modules are imported when they are needed, and all of them soon after a start."""

import subprocess
import sys

LOAD = """
import asyncio, sys
from topics.server import handlers
names = {f"topics.server.{name}" for name in handlers.MODULES}
before = names & set(sys.modules)
asyncio.run(handlers.load_all(0))
print(len(before), len(names - set(sys.modules)))
"""


def test_all_handlers_are_in_memory_before_an_upgrade_can_replace_their_files() -> None:
    done = subprocess.run([sys.executable, "-c", LOAD], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", "0"]
