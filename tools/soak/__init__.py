"""Mixed load for a long time, with restarts, kills and full disks, and a check of what was promised."""
