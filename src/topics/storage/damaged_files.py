"""`damaged/`: files that are no longer used and kept for the operator. The server never reads them; they may be removed."""

from topics.storage.fs import FileSystem
from topics.storage.reading import load, map_file

ROOT = "damaged"


def move_to_damaged(fs: FileSystem, path: str) -> str:
    """Move a file, or a directory found in the place of a file, to `damaged/`. Return its new path.

    Durable on return. After a power cut in between the file is in either place or in both.
    """
    directory = path.rpartition("/")[0]
    fs.make_directory(ROOT)
    fs.sync_directory("")
    target = _unused(fs, path)
    fs.rename(path, target)
    fs.sync_directory(ROOT)
    fs.sync_directory(directory)
    return target


def copy_to_damaged(fs: FileSystem, path: str) -> str:
    """Copy a file to `damaged/`. Return the path of the copy. Raises CorruptStorage if the file cannot be read."""
    content = map_file(fs, path)
    load(content, 0, len(content), path)
    fs.make_directory(ROOT)
    fs.sync_directory("")
    target = _unused(fs, path)
    file = fs.open(target, create=True)
    try:
        file.write_at(0, [content])
        file.sync_data()
    finally:
        file.close()
    fs.sync_directory(ROOT)
    return target


def _unused(fs: FileSystem, path: str) -> str:
    """Return an unused path in `damaged/` that resembles the name of the file."""
    name = path.rpartition("/")[2]
    target, copies = f"{ROOT}/{name}", 1
    while fs.exists(target):
        copies += 1
        target = f"{ROOT}/{name}.{copies}"
    return target


def remove_file(fs: FileSystem, path: str) -> None:
    """Remove a file of the data directory if it exists. Move a directory found in its place to `damaged/`: it may hold foreign data."""
    if not fs.exists(path):
        return
    try:
        fs.remove(path)
    except IsADirectoryError:
        move_to_damaged(fs, path)
