"""2 MiB huge pages for the few tests that need them, lent by the kernel and given back.

Here: a lease of pages for the time of one row. Not here: which rows need it (Row.huge_pages).
Invariant: when the last lease of any runner on this machine ends, vm.nr_hugepages is what it was before."""
import contextlib
import fcntl
import os

COUNT = "/proc/sys/vm/nr_hugepages"
LOCK = "/tmp/weir-compat-hugepages.lock"  # shared by every runner of the machine: one lease at a time
LEASE = 16  # free ones; a program elsewhere on the machine may take some as soon as there are any
MOST = 256


def pages():
    with open(COUNT) as file:
        return int(file.read())


def free_pages():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("HugePages_Free"))


def set_pages(count):
    with open(COUNT, "w") as file:
        file.write(str(count))


@contextlib.contextmanager
def lease():
    """Where they may not be set (no root, a read-only /proc) the row runs without: the test then says
    itself that there are none."""
    if not os.access(COUNT, os.W_OK):
        yield
        return
    with open(LOCK, "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = pages()
        try:
            for count in range(before + LEASE, MOST, LEASE):
                if free_pages() >= LEASE:
                    break
                set_pages(count)
        except OSError:
            pass
        try:
            yield
        finally:
            if pages() != before:
                set_pages(before)
