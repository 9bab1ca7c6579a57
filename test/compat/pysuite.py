"""rdma-core's own Python tests, from Debian's python3-pyverbs, unmodified, each in its own process.

Here: the vendor-neutral files of the suite as rows, and the list of skips that are allowed. A skip that
is not listed is a failure: something that the suite asks the device for has gone missing."""
import gzip
import os
import re
import shutil
import subprocess

from model import Failed, Row, Skipped, proof, shorten

SOURCE = "/usr/share/doc/rdma-core/tests"
PYTHON = "/usr/bin/python3"  # the extension modules are built for the system's interpreter
VENDORS = r"tests\.test_(mlx5|efa)"
GROUP = "rdma-core's Python tests"

# (test, reason given, why no software device in user space can do without)
ALLOWED_SKIPS = [
    (r"test_cuda_dmabuf", r"(?i)cuda", "needs a GPU and CUDA for Python"),
    (r"dmabuf|DmaBuf", r"/dev/dri", "needs a GPU's memory by /dev/dri"),
    (r"test_flow\.|test_rss_traffic\.|QPTest\.test_(create_raw|query_raw)", r"QP type 8|[Rr]aw|root",
     "needs raw packets: a queue pair that sends whole Ethernet frames past the kernel"),
    (r"huge", r"[Hh]uge", "needs 2 MiB huge pages: root may set vm.nr_hugepages, and then the runner does"),
]

# In strict mode, of the family that is the default.
ALLOWED_STRICTLY = [(r"atomic_write", r"Extended QP is not supported", "a ConnectX-5 has no atomic write")]


def allowed(name, reason, strict=False):
    for pattern, given, why in ALLOWED_SKIPS + (ALLOWED_STRICTLY if strict else []):
        if re.search(pattern, name) and re.search(given, reason):
            return why
    return None


def unpack(folder):
    """Copies the suite as the package ships it; some of its files are compressed."""
    target = os.path.join(folder, "suite")
    shutil.copytree(SOURCE, os.path.join(target, "tests"))
    for name in os.listdir(os.path.join(target, "tests")):
        path = os.path.join(target, "tests", name)
        if name.endswith(".gz"):
            with gzip.open(path) as packed, open(path[:-3], "wb") as file:
                shutil.copyfileobj(packed, file)
            os.unlink(path)
    return target


def listing(stage):
    """The names of all tests, asked of the suite itself: settings["python_list"] is the file."""
    done = stage.run(f"{PYTHON} tests/run_tests.py --list-tests", cwd=stage.settings["suite"])
    names = re.findall(r"^(?:tests\.)?(test_\w+\.\w+\.test_\w+)", done.text, re.MULTILINE)
    names = [f"tests.{name}" for name in names]
    with open(stage.settings["python_list"], "w") as file:
        file.write("\n".join(name for name in names if not re.match(VENDORS, name)))


def run_test(stage):
    name = stage.settings["python_test"]
    process = stage.start(f"{PYTHON} tests/run_tests.py -v {name}", cwd=stage.settings["suite"])
    status = process.wait()
    text = process.text()
    skipped = re.search(r"\.\.\. skipped ['\"](.*)['\"]$", text, re.MULTILINE)
    if skipped:
        if not allowed(name, skipped.group(1), stage.settings["strict"]):
            raise Failed(f"unexpected skip: {skipped.group(1)}")
        raise Skipped(skipped.group(1))
    if status != 0 or not re.search(r"^Ran 1 test", text, re.MULTILINE) \
            or not re.search(r"(^|\.\.\. )ok$", text, re.MULTILINE):
        raise Failed(f"ended with {status}\n{shorten(text, 25)}")


def row(name, body=run_test):
    """A test as a row; `name` is the dotted one."""
    return Row(name, [f"{PYTHON} tests/run_tests.py -v {name}"], [proof("the test's own assertions")],
               quick=True, body=body, timeout_s=60, group=GROUP, packages=("python3-pyverbs",),
               huge_pages="huge" in name, paths="test_rdmacm" in name)


def names(runner):
    if not os.path.isdir(SOURCE):
        return []
    runner.settings["suite"] = unpack(runner.folder)
    path = os.path.join(runner.folder, "python-tests")
    result = runner.inside("inside.py", dict(runner.settings, row="", python_list=path), 60)
    if result["status"] != "pass":
        raise SystemExit(f"compat: the Python tests cannot be listed: {result['reason']}")
    with open(path) as file:
        return file.read().split()
