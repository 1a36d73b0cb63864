"""Shipping: the package as one zip file, for executors where it is not installed.

Its libraries (msgspec, pyarrow) must be there already: they are compiled and do not load from a zip file.
"""

import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import topics

PACKAGE_FILE = f"topics-{topics.__version__}.zip"


def package_zip(directory: str | None = None) -> str:
    """Write `topics` and `pyspark_topics` into a zip file and return its path, for `spark.submit.pyFiles`."""
    directory = directory or tempfile.mkdtemp(prefix="topics-spark-")
    path = os.path.join(directory, PACKAGE_FILE)
    source = Path(topics.__file__).resolve().parent.parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in ("topics", "pyspark_topics"):
            for module in sorted((source / package).rglob("*.py")):
                archive.write(module, module.relative_to(source))
    return path


def ship(spark: Any) -> None:
    """Send the package to the executors of this session, classic or Connect."""
    path = package_zip()
    if hasattr(spark, "addArtifacts") and type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.addArtifacts(path, pyfile=True)
    else:
        spark.sparkContext.addPyFile(path)
