"""State on disk: recovery, checkpoints, snapshots, packs and disk space."""
