#!/usr/bin/env python3
"""A tour between two hosts made of namespaces, both on our RNIC.
usage: ours.py BUILD_DIR PROGRAM [ARGUMENT...]      exit status 77: no namespaces here"""
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from judge import judge  # noqa: E402

HERE, THERE = "10.78.0.1", "10.78.0.2"
PATIENCE_S = 280


def environment(build):
    """Our libraries first; a sanitized one needs its runtime before everything."""
    library = build / "dropin" / "libibverbs.so.1"
    values = dict(os.environ, LD_LIBRARY_PATH=str(library.parent))
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True, check=True).stdout
    for runtime in ("asan", "tsan"):
        if f"lib{runtime}" in needed:
            names = [f"lib{runtime}.so", "libubsan.so"]
            values["LD_PRELOAD"] = ":".join(
                subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names)
    return values


def main():
    build, program = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    if shutil.which("far") is None:
        script = Path(__file__).resolve().parents[2] / "namespaces.sh"
        os.execv(script, [str(script), sys.executable, *sys.argv])
    values = environment(build)
    far = subprocess.Popen(["far", program, "serve", THERE], env=values)
    near = subprocess.run([program, THERE, *sys.argv[3:]], env=values, text=True,
                          stdout=subprocess.PIPE, timeout=PATIENCE_S)
    if near.returncode not in (0, 1):
        far.terminate()  # nobody has called it, perhaps
    status = far.wait(timeout=30)
    played, complaints = judge(near.stdout.splitlines())
    if near.returncode not in (0, 1) or status != 0:
        complaints.append(f"the two ends ended with {near.returncode} and {status}")
    print(*complaints, f"{played} cases, {len(complaints)} complaints", sep="\n")
    sys.exit(1 if complaints else 0)


main()
