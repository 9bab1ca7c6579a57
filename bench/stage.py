"""Where a case runs and how its programs are run: two ends on this host, or in two network namespaces joined by veth.

`near` and `far` are command prefixes; `address` is where the far end is reached. A case that needs namespaces is run
by a second run.py inside test/namespaces.sh, which takes everything down with it.
Not here: what is run (cases.py)."""
import os
import shutil
import subprocess
import time

HERE = os.path.dirname(os.path.realpath(__file__))
NAMESPACES = os.path.join(HERE, "..", "test", "namespaces.sh")
OTHERS_AT_MOST = 0.05  # of the processors' time, where figures are to be relied upon
PATIENCE_S = 90


class Missing(Exception):
    """A program that is not installed, or something this machine does not allow."""


def busy_s():
    """Of all processors, since the machine started: what ran, or would have if the host had let it."""
    with open("/proc/stat") as file:
        fields = [int(word) for word in file.readline().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def share_at_work(seconds):
    """Of all processors, while this process waits."""
    before = busy_s()
    time.sleep(seconds)
    return (busy_s() - before) / seconds / os.cpu_count()


class Stage:
    def __init__(self, build, scale, far=(), address="127.0.0.1", near=()):
        self.build, self.scale = build, scale
        self.weir, self.limits = os.path.join(build, "weir"), os.path.join(build, "bench", "limits")
        self.limits_udp = os.path.join(build, "bench", "limits_udp")
        self.limits_file = os.path.join(build, "bench", "limits_file")
        self.far, self.address, self.near = list(far), address, list(near)

    def count(self, full):
        """Iterations: as many as are worth, fewer in a trial."""
        return str(max(10, int(full * self.scale)))

    def client(self, command, environment=None):
        if not os.path.isabs(command[0]) and not shutil.which(command[0]):
            raise Missing(f"{command[0]} is not installed")
        done = subprocess.run(self.near + command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=PATIENCE_S,
                              env={**os.environ, **(environment or {})})
        if done.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: status {done.returncode}: {done.stdout[-500:]}")
        return done.stdout

    def pair(self, server, client, port, environment=None):
        """Both ends; what the client printed. `port`: the server's TCP port, the path of a file that it writes when it is
        ready, or else a line that it prints first."""
        if not os.path.isabs(server[0]) and not shutil.which(server[0]):
            raise Missing(f"{server[0]} is not installed")
        process = subprocess.Popen(self.far + server, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, env={**os.environ, **(environment or {})})
        try:
            if isinstance(port, int):
                self.wait_for_listener(port, process)
            elif port.startswith("/"):
                self.wait_for_file(port, process)
            else:
                process.stdout.readline()
            return self.client(client, environment)
        finally:
            if process.poll() is None:
                process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

    def wait_for_file(self, path, process):
        """Until somebody has written something into it."""
        deadline = time.monotonic() + PATIENCE_S
        while not (os.path.exists(path) and os.path.getsize(path)):
            if process.poll() is not None:
                raise RuntimeError("the server ended: " + process.stdout.read().decode(errors="replace")[-500:])
            if time.monotonic() > deadline:
                raise RuntimeError(f"nobody writes {path}")
            time.sleep(0.02)

    def wait_for_listener(self, port, process):
        """Until a TCP socket listens on the port, without connecting to it."""
        wanted = f":{port:04X}"
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            tables = subprocess.run(self.far + ["cat", "/proc/net/tcp", "/proc/net/tcp6"], stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, text=True).stdout
            for line in tables.splitlines():
                words = line.split()
                if len(words) > 3 and words[1].endswith(wanted) and words[3] == "0A":
                    return
            if process.poll() is not None:
                raise RuntimeError("the server ended: " + process.stdout.read().decode(errors="replace")[-500:])
            time.sleep(0.02)
        raise RuntimeError(f"nobody listens on {port}")


def wait_for_link(prefix):
    """Until the kernel calls it up, which may take a second: libfabric uses no other."""
    deadline = time.monotonic() + PATIENCE_S
    while "state UP" not in subprocess.run(prefix + ["ip", "link", "show", "weir0"], stdout=subprocess.PIPE, text=True, check=True).stdout:
        if time.monotonic() > deadline:
            raise RuntimeError("weir0 does not come up")
        time.sleep(0.02)


def inside_namespaces(build, scale, mtu, offloads):
    """Within test/namespaces.sh; turns the offloads off where asked."""
    for prefix in ([], ["far"]):
        wait_for_link(prefix)
    if not offloads:
        if not shutil.which("ethtool"):
            raise Missing("ethtool is not installed")
        for prefix in ([], ["far"]):
            subprocess.run(prefix + ["ethtool", "-K", "weir0", "tx", "off", "rx", "off", "tso", "off", "gso", "off", "gro", "off"],
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return Stage(build, scale, ["far"], "10.78.0.2")
