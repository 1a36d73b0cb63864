"""Hypothesis profiles: `fixed` plays the same examples every time, `long` is what `make crash` asks for."""

from hypothesis import HealthCheck, settings

# Derandomized and without an example database, so that a run depends on the code alone; no deadline, because
# a slow machine is not a failure.
settings.register_profile("fixed", deadline=None, derandomize=True, database=None)
# What a profile does not set comes from Hypothesis' own default, which differs when CI is set: say it.
settings.register_profile(
    "long",
    deadline=None,
    derandomize=False,
    max_examples=5_000,
    stateful_step_count=200,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("fixed")
