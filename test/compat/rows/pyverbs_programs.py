"""Programs written with pyverbs: ours, two processes each, and the example that the package ships."""
import os

from model import Row, line, wire

GROUP = "programs with pyverbs"
PACKAGES = ["python3-pyverbs"]
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PYTHON = "/usr/bin/python3"

ROWS = [
    Row("ib_devices.py", [f"{PYTHON} /usr/share/doc/python3-pyverbs/examples/ib_devices.py"],
        [line(r"^\s*weir0 +CA +")]),
    Row("messages, writes, reads, atomics", [f"{PYTHON} {HERE}/pyverbs_messages.py",
                                             f"{PYTHON} {HERE}/pyverbs_messages.py localhost"],
        [*[line(f"^checked {name}$") for name in ("SEND", "WRITE", "READ", "atomics")],
         line("^checked by the server$", where=0), wire(2 << 20)], quick=True),
    Row("echoes by rdma_cm", [f"{PYTHON} {HERE}/pyverbs_cm.py 127.0.0.1",
                              f"{PYTHON} {HERE}/pyverbs_cm.py -c 127.0.0.1"],
        [line("^checked 100 echoes$"), line("^served$", where=0), wire(2 * 100 * 4000)], ready="cm", quick=True),
]
