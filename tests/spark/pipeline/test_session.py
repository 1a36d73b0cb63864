"""Settings that depend on where the checkpoints of a pipeline are."""

from typing import Any

import pytest

from topics.spark.pipeline.session import CHECKPOINT_FILES, LOCAL_CHECKPOINT_FILES, set_checkpoint_files


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("checkpoint", "is_local"),
    [("/var/lib/pipeline", True), ("file:/var/lib/pipeline", True), ("s3a://lake/checkpoints", False)],
)
def test_only_checkpoints_on_a_local_disk_use_the_file_manager_for_local_disks(
    spark: Any, checkpoint: str, is_local: bool
) -> None:
    default = spark.conf.get(CHECKPOINT_FILES, None)
    try:
        set_checkpoint_files(spark, checkpoint)
        assert spark.conf.get(CHECKPOINT_FILES, None) == (LOCAL_CHECKPOINT_FILES if is_local else default)
    finally:
        spark.conf.unset(CHECKPOINT_FILES)
