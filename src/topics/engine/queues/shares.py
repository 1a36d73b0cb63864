"""How ready jobs are divided among several claims."""


def shares(capacities: list[int], jobs: int) -> list[int]:
    """How many of `jobs` each claimer gets, given how many each takes.

    As long as there are jobs, each claimer with capacity gets one; the rest is divided in proportion to the remaining
    capacities. Claimers with equal capacity differ by at most one job.
    """
    total = sum(capacities)
    if jobs >= total:
        return list(capacities)
    result = [0] * len(capacities)
    for index, capacity in enumerate(capacities):
        if capacity and jobs:
            result[index] = 1
            jobs -= 1
    left = [capacity - got for capacity, got in zip(capacities, result, strict=True)]
    total = sum(left)
    if not jobs:
        return result
    parts = [jobs * capacity for capacity in left]
    result = [got + part // total for got, part in zip(result, parts, strict=True)]
    rest = jobs - sum([part // total for part in parts])
    for index in sorted(range(len(capacities)), key=lambda index: -(parts[index] % total))[:rest]:
        result[index] += 1
    return result


def deal(seqs: list[int], capacities: list[int]) -> list[list[int]]:
    """Divide the jobs: one to each claimer in turn, round and round, until each has its share."""
    left = shares(capacities, len(seqs))
    dealt: list[list[int]] = [[] for _ in capacities]
    jobs = iter(seqs)
    while any(left):
        for index, some in enumerate(dealt):
            if left[index]:
                left[index] -= 1
                some.append(next(jobs))
    return dealt
