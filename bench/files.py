"""One file of some GiB copied within memory, by weir cp and by what people use otherwise: GB/s.

Files live in /dev/shm, which is filled once before anything is timed: the first touch of a page costs several times as
much as the next."""
import os
import shutil
import signal
import subprocess
import tempfile
import time

from stage import PATIENCE_S, Missing

PORT = 18479
NC_PORT = 18600


class Files:
    """The folder and the server, made when the first case asks for them."""
    made = None

    def __init__(self, stage, size):
        self.size = size
        self.dir = tempfile.mkdtemp(prefix="weir-bench.", dir="/dev/shm")
        self.source, self.target = os.path.join(self.dir, "source"), os.path.join(self.dir, "target")
        self.root = os.path.join(self.dir, "root")
        os.mkdir(self.root)
        with open(self.source, "wb") as file, open("/dev/urandom", "rb") as random:
            block = random.read(min(size, 64 << 20))
            for _ in range(size // len(block)):
                file.write(block)
        self.size = os.path.getsize(self.source)
        shutil.copyfile(self.source, self.target)
        os.unlink(self.target)
        os.link(self.source, os.path.join(self.root, "served"))
        self.server = subprocess.Popen([stage.weir, "serve", "--insecure", "--listen", f"127.0.0.1:{PORT}", "--root", self.root, "--fabric",
                                        "soft"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if str(PORT).encode() not in self.server.stdout.readline():
            raise RuntimeError("weir serve did not start")

    def close(self):
        self.server.send_signal(signal.SIGTERM)
        self.server.wait(10)
        shutil.rmtree(self.dir, ignore_errors=True)

    def timed(self, run, target):
        if os.path.exists(target):
            os.unlink(target)
        begin = time.monotonic()
        run()
        seconds = time.monotonic() - begin
        if os.path.getsize(target) != self.size:
            raise RuntimeError(f"{target} has the wrong size")
        os.unlink(target)
        return self.size / seconds / 1e9


def prepared(stage):
    if Files.made is None:
        Files.made = Files(stage, max(1 << 20, int((4 << 30) * stage.scale)))
    return Files.made


def close():
    if Files.made is not None:
        Files.made.close()
        Files.made = None


def check(command, **kwargs):
    if not os.path.isabs(command[0]) and not shutil.which(command[0]):
        raise Missing(f"{command[0]} is not installed")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=PATIENCE_S, **kwargs)


def push(stage):
    files = prepared(stage)
    return files.timed(lambda: check([stage.weir, "cp", "-q", "--fabric", "soft", files.source,
                                      f"weir://127.0.0.1:{PORT}/pushed"]), os.path.join(files.root, "pushed"))


def pull(stage):
    files = prepared(stage)
    return files.timed(lambda: check([stage.weir, "cp", "-q", "--fabric", "soft", f"weir://127.0.0.1:{PORT}/served",
                                      files.target]), files.target)


def local(*command):
    def run(stage):
        files = prepared(stage)
        return files.timed(lambda: check([*command, files.source, files.target]), files.target)
    return run


def netcat(stage):
    files = prepared(stage)
    if not shutil.which("nc"):
        raise Missing("nc is not installed")

    def run():
        with open(files.target, "wb") as out, open(files.source, "rb") as source:
            server = subprocess.Popen(["nc", "-l", "127.0.0.1", str(NC_PORT)], stdout=out, stdin=subprocess.DEVNULL)
            try:
                stage.wait_for_listener(NC_PORT, server)
                check(["nc", "-N", "127.0.0.1", str(NC_PORT)], stdin=source)
                server.wait(PATIENCE_S)
            finally:
                if server.poll() is None:
                    server.kill()
                    server.wait()
    return files.timed(run, files.target)


CASES = [("weir cp, push", push), ("weir cp, pull", pull), ("cp", local("cp")),
         ("rsync", local("rsync", "--whole-file")), ("nc", netcat)]
