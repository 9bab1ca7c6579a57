"""rdma-core's own Python tests, from Debian's python3-pyverbs, unmodified, each in its own process."""


def play(runner, arguments):
    return []
