"""State on disk: recovery, checkpoints, sealed segments, snapshots, disk space, check and repair."""
