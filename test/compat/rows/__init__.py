"""All rows of the matrix: one module per group of packages, in the order of the document."""
import importlib

MODULES = ["ibverbs_utils", "rdmacm_utils", "perftest", "qperf", "fio", "ucx", "libfabric", "openmpi",
           "tgt", "pyverbs_programs", "rsocket_preload", "others"]


def load():
    found = []
    for name in MODULES:
        module = importlib.import_module(f"rows.{name}")
        for row in module.ROWS:
            row.group, row.packages = module.GROUP, tuple(module.PACKAGES)
            found.append(row)
    names = [full_name(row) for row in found]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise ValueError(f"two rows of one name: {doubled}")
    return found


def full_name(row):
    return f"{row.group}/{row.name}"


def find(name):
    return next(row for row in load() if full_name(row) == name)
