"""Where one row is played: the processes of a row, inside a network namespace of their own.

Here: starting programs on our libraries, waiting until a server is ready, ending everything. Not
here: the namespace itself (run.py makes it; this code already lives in it).
Invariant: when a stage is closed, none of its processes is left, daemons included."""
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import tempfile
import time

from model import Evidence, Failed, Output, Skipped, shorten

# What perftest says when a busy machine kept it from measuring the processor's clock; with -F it goes
# on, and divides each time by zero.
UNTIMED = r"Correlation coefficient r\^2: \S+ < 0\.9"
REFUSED = (r"REJECTED, error:? 8|event bl blka 8|RDMA_CM_EVENT_REJECTED|Connection refused"
           r"|rpoll: Operation now in progress")  # in rstream's words
LISTENS_WITHIN_S = 20
SANITIZER_REPORT = r"ERROR: AddressSanitizer|: runtime error: |WARNING: ThreadSanitizer"
OUR_WARNING = r"^weir(?: strict)?: .*\n?(?:^    .*\n?)*"  # and what is indented below it


def run_quietly(*command):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def sanitizer_runtimes(folder):
    """The runtimes that a sanitized library needs loaded before everything else."""
    needed = run_quietly("readelf", "-d", f"{folder}/libibverbs.so.1").stdout
    names = [name for name in ("libasan", "libtsan") if name in needed]
    if names:
        names.append("libubsan")
    return [run_quietly("gcc", f"-print-file-name={name}.so").stdout.strip() for name in names]


class Process:
    def __init__(self, stage, command, popen, path):
        self.stage, self.command, self.popen, self.path = stage, command, popen, path

    def text(self):
        with open(self.path, errors="replace") as file:
            return file.read()

    def running(self):
        return self.popen.poll() is None

    def wait(self, until=None):
        try:
            return self.popen.wait(max(0.01, (until or self.stage.until) - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise Failed(f"{self.command}: still running after its time\n{shorten(self.text())}")

    def stop(self, number=signal.SIGTERM):
        if self.running():
            os.killpg(self.popen.pid, number)
            try:
                self.popen.wait(5)
            except subprocess.TimeoutExpired:
                os.killpg(self.popen.pid, signal.SIGKILL)
                self.popen.wait()

    def output(self, status=None):
        return Output(self.command, status, self.text())


class Stage:
    """`settings`: build, libraries (None: those of build), mode, strict, valgrind, slow. `alone`: a process
    namespace that we are the first process of is the stage's, and is emptied at the end."""

    def __init__(self, settings, timeout_s, alone=True):
        self.settings, self.alone = settings, alone
        self.folder = tempfile.mkdtemp(prefix="weir-compat.")
        self.timeout_s = timeout_s * settings["slow"]
        self.begin_again()
        self.processes = []
        self.count = 0
        self.run_options = ""
        self.environment = {}
        self.sanitized_environment = {}
        self.notes = []  # what a reader of the result should know
        self.runtimes = sanitizer_runtimes(self.dropin())
        self.valgrind = False

    def begin_again(self):
        """The time runs from now."""
        self.until = time.monotonic() + self.timeout_s

    def dropin(self):
        return self.settings["libraries"] or os.path.join(self.settings["build"], "dropin")

    def weir(self):
        return os.path.join(self.settings["build"], "weir")

    def network(self):
        """Loopback, and one interface with addresses as a host has."""
        done = run_quietly("ip", "link", "set", "lo", "up")
        if done.returncode != 0:
            raise Skipped(f"no network namespace: {done.stdout.strip()}")
        for kind in ("veth peer name weird1", "dummy"):
            if run_quietly("ip", *f"link add weird0 type {kind}".split()).returncode == 0:
                break
        for words in ("link set lo multicast on", "link set weird0 mtu 9000",
                      "link set weird1 mtu 9000", "addr add 10.77.0.1/24 dev weird0",
                      "addr add fd77::1/64 dev weird0 nodad", "link set weird0 up",
                      "link set weird1 up"):
            run_quietly("ip", *words.split())

    def statistics(self):
        return os.path.join(self.folder, "statistics")

    def base_environment(self):
        env = dict(os.environ, WEIR_LIBRARY_DIR=self.dropin(), LC_ALL="C.UTF-8", HOME=self.folder,
                   WEIR_STATISTICS=self.statistics(),
                   TMPDIR=self.folder)  # what Open MPI names by process id there must not meet another stage's
        env.update(self.environment)
        if self.settings["strict"]:
            env.update(WEIR_STRICT="1", WEIR_STRICT_LOG=os.path.join(self.folder, "strict.log"))
        return env

    def environment_on_weir(self, options=""):
        """What `weir run` would set, for what must be started in another way."""
        env = self.base_environment()
        done = subprocess.run([self.weir(), "run", "-n", *shlex.split(options or self.run_options)],
                              env=env, stdout=subprocess.PIPE, text=True, check=True)
        env.update(text.split("=", 1) for text in done.stdout.splitlines() if "=" in text)
        if self.runtimes:
            env["LD_PRELOAD"] = ":".join(self.runtimes + [env["LD_PRELOAD"]])
            reports = f"log_path={self.folder}/sanitizer"
            env.update(self.sanitized_environment)
            env["ASAN_OPTIONS"] = f"detect_leaks=0:{reports}:" + env.get("ASAN_OPTIONS", "")
            env["TSAN_OPTIONS"] = f"{reports}:" + env.get("TSAN_OPTIONS", "")
            env["UBSAN_OPTIONS"] = "halt_on_error=1:print_stacktrace=1:" + env.get("UBSAN_OPTIONS", "")
        return env

    def start(self, command, options="", native=False, **more):
        """Starts a command line on our libraries (`native`: on the system's). Its output goes to a
        file; it leads a process group of its own."""
        words = shlex.split(command)
        if native:
            env = self.base_environment()
        elif self.settings["mode"] == "library-path":
            env = dict(self.base_environment(), LD_LIBRARY_PATH=self.dropin())
        elif self.runtimes or self.valgrind:
            env = self.environment_on_weir(options)
        else:
            env = self.base_environment()
            words = [self.weir(), "run", *shlex.split(options or self.run_options), "--", *words]
        if self.valgrind and not native:
            words = ["valgrind", "--fair-sched=yes", "--leak-check=full", "--show-leak-kinds=definite",
                     f"--log-file={self.folder}/valgrind.{self.count}", *words]
        env.update(more.pop("env", {}))
        path = os.path.join(self.folder, f"output.{self.count}")
        self.count += 1
        with open(path, "wb") as file:
            popen = subprocess.Popen(words, stdin=more.pop("stdin", subprocess.DEVNULL), stdout=file,
                                     stderr=subprocess.STDOUT, env=env, start_new_session=True,
                                     cwd=more.pop("cwd", self.folder), **more)
        process = Process(self, command, popen, path)
        self.processes.append(process)
        return process

    def run(self, command, status=0, **more):
        """Runs a command to its end; another status than `status` fails the row."""
        process = self.start(command, **more)
        ended = process.wait()
        if status is not None and ended != status:
            raise Failed(f"{command}: ended with {ended}\n{shorten(process.text())}")
        return process.output(ended)

    def wait_until(self, condition, what, process=None, pause_s=0.02):
        """False when the process ended before the condition came true."""
        while not condition():
            if process and not process.running():
                return condition()
            if time.monotonic() > self.until:
                raise Failed(f"waited too long for {what}\n{shorten(process.text()) if process else ''}")
            time.sleep(pause_s)
        return True

    def ready(self, how, process, number):
        if how == "start":
            if number == 1:
                self.ready("tcp", process, number)
        elif how == "tcp":
            self.wait_until(lambda: tcp_listeners() >= number, "a listening socket", process)
        elif how in ("cm", "member"):
            self.wait_until(lambda: udp_sockets(4791) >= number, "an open device", process)
            if how == "member":
                self.wait_until(has_member, "a multicast group", process)
            else:
                time.sleep(0.1)  # the fewer times its client asks in vain
        elif how:
            self.wait_until(lambda: re.search(how, process.text(), re.MULTILINE), f"'{how}'", process)

    def close(self):
        for process in self.processes:
            if process.running():
                try:
                    os.killpg(process.popen.pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        if self.alone and os.getpid() == 1:  # daemons too
            try:
                os.kill(-1, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for process in self.processes:
            process.popen.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def sanitizer_text(self):
        """Reports go to files: daemons and programs that close their output are heard too."""
        text = []
        for path in glob.glob(f"{self.folder}/sanitizer.*"):
            with open(path, errors="replace") as file:
                text.append(file.read())
        return "\n".join(text)

    def warnings(self):
        """What our libraries complained of, strict mode with its backtraces; each once."""
        text = self.all_text()
        log = os.path.join(self.folder, "strict.log")
        if os.path.exists(log):
            with open(log, errors="replace") as file:
                text += "\n" + file.read()
        found = re.findall(OUR_WARNING, text, re.MULTILINE)
        return sorted({warning.rstrip("\n") for warning in found})[:10]

    def all_text(self):
        return "\n".join(process.text() for process in self.processes)


def tcp_listeners():
    found = 0
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        if os.path.exists(path):
            with open(path) as file:
                found += sum(text.split()[3] == "0A" for text in list(file)[1:])
    return found


def udp_sockets(port):
    """The larger count of the two families: a device opens one of each."""
    found = [0]
    for path in ("/proc/net/udp", "/proc/net/udp6"):
        if os.path.exists(path):
            with open(path) as file:
                found.append(sum(text.split()[1].endswith(f":{port:04X}") for text in list(file)[1:]))
    return max(found)


def has_member():
    """Somebody has joined 239.77.0.1 or ff0e::77:1."""
    with open("/proc/net/dev_mcast") as file:
        return any(text.split()[-1] in ("01005e4d0001", "333300770001") for text in file)


# What each counted thing is at least: payload by the byte, and a packet, or a request that took none, by a base transport header.
THROUGH_MEMORY = {"same_host_bytes_sent": 1, "same_host_packets_sent": 12,
                  "direct_bytes": 1, "direct_writes": 12, "direct_reads": 12}


def bytes_through_memory(stage):
    """What our RNIC has carried between processes of this host without a wire, as each says when it ends."""
    try:
        with open(stage.statistics()) as file:
            words = [text.split() for text in file]
            return sum(int(line[1]) * THROUGH_MEMORY[line[0]] for line in words if line and line[0] in THROUGH_MEMORY)
    except FileNotFoundError:
        return 0


def bytes_on_wire():
    with open("/proc/net/dev") as file:
        return sum(int(text.split(":")[1].split()[8]) for text in file if ":" in text)


def bytes_carried(stage):
    return bytes_on_wire() + bytes_through_memory(stage)


def client_of(stage, row, servers):
    """By rdma_cm there is no telling from outside when a server listens: ask again while refused, but only for
    as long as a server may take to listen once its device is open."""
    listens_by = time.monotonic() + LISTENS_WITHIN_S * stage.settings["slow"]
    refused = 0
    while True:
        client = stage.start(row.commands[-1])
        status = client.wait()
        alive = all(server.running() for server in servers)
        if row.ready == "cm" and alive and re.search(REFUSED, client.text()):  # some end well all the same
            refused += 1
            if time.monotonic() > listens_by:
                raise Failed(f"{client.command}: refused {refused} times, and the server is up\n{shorten(client.text())}")
            time.sleep(0.05)
            continue
        if refused:
            stage.notes.append(f"refused {refused} times before the server listened")
        return client, status


def play(stage, row):
    """Runs a row's commands and returns the Evidence; raises Failed. Once more when perftest's own
    measure of the clock failed: its report says nothing then of what was carried."""
    evidence = play_once(stage, row)
    if any(re.search(UNTIMED, output.text) for output in evidence.outputs):
        stage.notes.append("played again: perftest could not measure the processor's clock")
        evidence = play_once(stage, row)
    return evidence


def play_once(stage, row):
    before = bytes_carried(stage)
    servers = []
    for command in row.commands[:-1]:
        servers.append(stage.start(command))
        stage.ready(row.ready, servers[-1], len(servers))
    client, status = client_of(stage, row, servers)
    if status != 0:
        lately = time.monotonic() + 1
        while any(server.running() for server in servers) and time.monotonic() < lately:
            time.sleep(0.05)
        seen = "\n".join(f"--- {one.command}\n{shorten(one.text())}" for one in [*servers, client])
        raise Failed(f"the client ended with {status}\n{seen}")
    outputs = []
    for server in servers:
        if row.servers_end:
            ended = server.wait()
            if ended != 0:
                raise Failed(f"{server.command}: ended with {ended}\n{shorten(server.text())}")
        else:
            server.stop()
            ended = None
        outputs.append(server.output(ended))
    carried = bytes_carried(stage) - before
    return Evidence(outputs + [client.output(status)], carried)
