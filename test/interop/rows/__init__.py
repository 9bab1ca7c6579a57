"""All rows of the interop matrix: one module per subject, in the order in which they are printed."""
import importlib

MODULES = ["pingpong", "verbs", "rdmacm", "perftest", "transfer", "devices", "tour", "many"]


def load():
    found = []
    for name in MODULES:
        module = importlib.import_module(f"rows.{name}")
        for row in module.ROWS:
            row.group = module.GROUP
            found.append(row)
    names = [f"{row.group}/{row.title()}" for row in found]
    doubled = {name for name in names if names.count(name) > 1}
    if doubled:
        raise ValueError(f"two rows of one name: {doubled}")
    return found
