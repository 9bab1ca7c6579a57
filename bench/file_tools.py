"""Who copies: weir cp and what people use otherwise, each as commands that are timed.

Every tool copies `source` into the folder `into`, under the same name, with modes and times where it can. What it needs
on the other side is started before the time counts, and its processor time counts all the same.
Not here: what is copied (file_loads.py), when (files.py)."""
import contextlib
import ctypes
import getpass
import os
import resource
import shutil
import subprocess
import threading
import time

import file_loads
from stage import Missing, busy_s

PATIENCE_S = 900
WEIR_PORT, NC_PORT, RSYNC_PORT, SSH_PORT = 18479, 18600, 18873, 18822
PR_SET_CHILD_SUBREAPER = 36
MEMORY_OF_COPY = 1.25  # of its bytes
ROCE_MTU = 1024  # of an Ethernet MTU of 1500


class Copy:
    """One copy that is timed: `wall` seconds, and `busy` seconds of all processors within them."""

    def __init__(self, stage, source, into, work, targets=1):
        self.targets = targets
        self.stage, self.source, self.into, self.work = stage, source, into, work
        self.name, self.is_tree = os.path.basename(source), os.path.isdir(source)
        self.wall = self.busy = None

    def run(self, tool):
        """Wall seconds, processor seconds of all that took part, and the share of the processors that others had meanwhile, if not more."""
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        tool(self)
        with contextlib.suppress(ChildProcessError):
            while True: # what a server left behind
                os.wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return self.wall, cpu, max(0, self.busy - cpu) / self.wall / os.cpu_count()

    def timed(self, *commands, source=None, beside=()):
        """Commands joined by pipes, until all have ended and those `beside`, too."""
        file_loads.touch_memory(int(MEMORY_OF_COPY * self.targets * file_loads.count(self.source)[1]))
        busy, began, processes, last = busy_s(), time.monotonic(), [], source
        for number, command in enumerate(commands):
            out = subprocess.PIPE if number + 1 < len(commands) else subprocess.DEVNULL
            processes.append(start(command, stdin=last or subprocess.DEVNULL, stdout=out))
            if last is not None and last is not source:
                last.close()
            last = processes[-1].stdout
        statuses = wait_for([*processes, *beside])
        self.wall, self.busy = time.monotonic() - began, busy_s() - busy
        if any(statuses):
            raise RuntimeError(f"{commands[-1]}: status {statuses}")

    @contextlib.contextmanager
    def served(self, command, port=None):
        """While somebody on the other side listens on the TCP port, or, without one, has said something."""
        server = start(self.stage.far + command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            if port is not None:
                self.stage.wait_for_listener(port, server)
            elif not server.stdout.readline():
                raise RuntimeError(f"{command[0]} did not start")
            yield
        finally:
            if server.poll() is None:
                server.terminate()
            server.communicate(timeout=20)


def start(command, **settings):
    if not os.path.isabs(command[0]) and not shutil.which(command[0]):
        raise Missing(f"{command[0]} is not installed")
    return subprocess.Popen(command, **settings)


def wait_for(processes):
    """Their statuses. Without a timeout of wait(), which looks every 50 ms."""
    timer = threading.Timer(PATIENCE_S, lambda: [process.kill() for process in processes])
    timer.start()
    statuses = [process.wait() for process in processes]
    timer.cancel()
    return statuses


def local(*command):
    return lambda copy: copy.timed([*command, copy.source, copy.into + "/"])


def packed(copy):
    return ["tar", "-C", os.path.dirname(copy.source), "-cf", "-", copy.name]


def unpacked(copy):
    return ["tar", "-C", copy.into, "-xf", "-"]


def tar_pipe(copy):
    copy.timed(packed(copy), unpacked(copy))


def netcat(copy):
    with open(os.path.join(copy.into, copy.name), "wb") as out, open(copy.source, "rb") as source:
        far = start(copy.stage.far + ["nc", "-l", copy.stage.address, str(NC_PORT)], stdin=subprocess.DEVNULL, stdout=out)
        copy.stage.wait_for_listener(NC_PORT, far)
        copy.timed(["nc", "-N", copy.stage.address, str(NC_PORT)], source=source, beside=[far])


def bare_program(copy):
    """What must be done and nothing else, over UDP."""
    far = start(copy.stage.far + [copy.stage.limits_file, "serve", copy.stage.address, os.path.join(copy.into, copy.name)],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    if not far.stdout.readline():
        raise RuntimeError("limits_file did not start")
    copy.timed([copy.stage.limits_file, "copy", copy.stage.address, copy.source, str(ROCE_MTU)], beside=[far])


def tar_nc_tar(copy):
    listener = start(copy.stage.far + ["nc", "-l", copy.stage.address, str(NC_PORT)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    unpacker = start(unpacked(copy), stdin=listener.stdout)
    listener.stdout.close()
    copy.stage.wait_for_listener(NC_PORT, unpacker)
    copy.timed(packed(copy), ["nc", "-N", copy.stage.address, str(NC_PORT)], beside=[listener, unpacker])


def rsync_daemon(copy):
    configuration = os.path.join(copy.work, "rsyncd.conf")
    with open(configuration, "w") as file:
        root = "uid = 0\ngid = 0\n" if os.getuid() == 0 else ""
        file.write(f"use chroot = no\n{root}[into]\npath = {copy.into}\nread only = no\n")
    with copy.served(["rsync", "--daemon", "--no-detach", f"--config={configuration}", f"--port={RSYNC_PORT}",
                      f"--address={copy.stage.address}"], RSYNC_PORT):
        copy.timed(["rsync", "-a", "--whole-file", copy.source, f"rsync://{copy.stage.address}:{RSYNC_PORT}/into/"])


def weir_server(copy):
    with copy.served([copy.stage.weir, "serve", "--insecure", "--listen", f"{copy.stage.address}:{WEIR_PORT}", "--root", copy.into,
                      "--fabric", "soft"]):
        copy.timed([copy.stage.weir, "cp", "-aq", "--fabric", "soft", copy.source, f"weir://{copy.stage.address}:{WEIR_PORT}/"])


def ssh_files(copy):
    """Keys and configurations of an sshd for this run alone."""
    def path(name):
        return os.path.join(copy.work, name)
    if not shutil.which("ssh-keygen"):
        raise Missing("ssh is not installed")
    for key in ("host_key", "user_key"):
        if not os.path.exists(path(key)):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path(key)], check=True)
    with open(path("sshd_config"), "w") as file:
        file.write(f"Port {SSH_PORT}\nListenAddress {copy.stage.address}\nHostKey {path('host_key')}\n"
                   f"AuthorizedKeysFile {path('user_key.pub')}\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n"
                   "Subsystem sftp internal-sftp\n")
    with open(path("ssh_config"), "w") as file:
        file.write(f"Host *\nHostName {copy.stage.address}\nPort {SSH_PORT}\nUser {getpass.getuser()}\nIdentityFile {path('user_key')}\n"
                   "IdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n")
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)
    return path("sshd_config"), path("ssh_config")


def by_ssh(command):
    """`command`: of a copy and of ssh's configuration, what copies."""
    def run(copy):
        sshd = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin")
        if sshd is None:
            raise Missing("sshd is not installed")
        with open("/proc/self/setgroups") as file:
            if file.read().strip() == "deny":
                raise Missing("sshd cannot run in this user namespace")
        server, client = ssh_files(copy)
        with copy.served([sshd, "-D", "-e", "-f", server], SSH_PORT):
            copy.timed(command(copy, client))
    return run


def scp(*words):
    return by_ssh(lambda copy, client: ["scp", "-F", client, "-q", "-p", "-r", *words, copy.source, f"far:{copy.into}/"])


def weir_by_ssh(*words):
    return by_ssh(lambda copy, client: [copy.stage.weir, "cp", "-aq", "--fabric", "soft", "--rsh", f"ssh -F {client}", "--weir-path",
                                        copy.stage.weir, *words, copy.source, f"far:{copy.into}/"])


RSYNC_BY_SSH = by_ssh(lambda copy, client: ["rsync", "-a", "--whole-file", "-e", f"ssh -F {client}", copy.source, f"far:{copy.into}/"])

# Of two hosts, too: those that need no common file system.
NETWORK = [("weir cp", weir_server), ("rsync daemon", rsync_daemon), ("nc", netcat), ("tar, nc, tar", tar_nc_tar),
           ("weir cp by ssh", weir_by_ssh()), ("weir cp --encrypt by ssh", weir_by_ssh("--encrypt")), ("scp", scp()),
           ("scp, AES-GCM", scp("-c", "aes128-gcm@openssh.com")), ("rsync by ssh", RSYNC_BY_SSH)]
VETH = [*NETWORK, ("limit: bare program", bare_program)]
ONE_FILE = ("nc", "limit: bare program")  # is all that they copy
TOOLS = [("cp", local("cp", "-a")), ("rsync", local("rsync", "-a", "--whole-file")), ("tar, tar", tar_pipe), *NETWORK]
