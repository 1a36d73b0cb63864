"""Benchmarks: ours and its peers on the same machine, in interleaved rounds. `python -m bench --list` names them."""
