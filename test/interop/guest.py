"""The guest: one qemu, and commands run in it through its agent.

Here: the machine, the talk with the agent (agent.c has the protocol). Not here: what it boots (image.py) and
the network it is on (lab.py).
Invariant: a command either ends with a status or its wait fails in words; when the guest dies, all its
commands end, and `Died` says what its console last said."""
import itertools
import os
import socket
import subprocess
import tempfile
import threading
import time

from model import Failed, Output, shorten

MAC = "52:54:00:77:00:02"
BOOT_TCG_S = 60
BOOT_KVM_S = 10  # with real virtualization it takes one


class Died(Failed):
    """The guest is gone."""


class Command:
    """A command in the guest; what can be asked of it is what can be asked of stage.Process."""

    def __init__(self, guest, number, command):
        self.guest, self.number, self.command = guest, number, command
        self.output_bytes, self.status = b"", None

    def text(self):
        with self.guest.changed:
            return self.output_bytes.decode(errors="replace")

    def running(self):
        with self.guest.changed:
            return self.status is None and not self.guest.dead

    def wait(self, until):
        """Until its end, or the instant `until` of the monotonic clock."""
        with self.guest.changed:
            done = self.guest.changed.wait_for(lambda: self.status is not None or self.guest.dead,
                                               max(0.01, until - time.monotonic()))
            if self.status is not None:
                return self.status
        if self.guest.dead:
            raise Died(f"the guest died\n{self.guest.last_words()}")
        assert not done
        raise Failed(f"{self.command}: still running after its time")

    def stop(self):
        if self.running():
            self.guest.send(f"kill {self.number}\n")
            self.wait(time.monotonic() + 10)

    def output(self, status=None):
        return Output(self.command, status, self.text())


class Guest:
    """`tap` is an interface that exists, `image` a folder of image.make, `own` an archive on top of it."""

    def __init__(self, image, own, tap, accelerator, log_folder):
        self.changed = threading.Condition()
        self.commands, self.numbers, self.dead, self.uptime = {}, itertools.count(), False, None
        self.console = os.path.join(log_folder, "console")
        self.accelerator = accelerator
        with open(self.console, "w"):
            pass
        ours, theirs = socket.socketpair()
        with tempfile.NamedTemporaryFile(dir=log_folder) as initrd:
            with open(f"{image}/initrd", "rb") as base:
                initrd.write(base.read() + own)
            initrd.flush()
            self.process = subprocess.Popen(
                ["qemu-system-x86_64", "-no-user-config", "-nodefaults", "-no-reboot", "-display", "none", "-M", "q35",
                 # One processor. Where there can be no second one, qemu before 8.1 leaves the guest's barriers out, though
                 # its own thread for the network is another: a notification is lost then, and the link stands still.
                 "-accel", accelerator, "-cpu", "max", "-smp", "1,maxcpus=2", "-m", "768M",
                 "-kernel", f"{image}/vmlinux", "-initrd", initrd.name,
                 # On a busy machine the emulated timer is late, which the kernel's check takes for a broken one. And packets
                 # are let go as they are handed to the link: rxe stops a queue pair that has more than 64 on their way, and
                 # misses the last one's release if that comes just before it notes so; then it stands still for ever.
                 "-append", "console=ttyS0 panic=-1 quiet no_timer_check virtio_net.napi_tx=0",
                 "-serial", f"file:{self.console}",
                 "-netdev", f"tap,id=net,ifname={tap},script=no,downscript=no",
                 "-device", f"virtio-net-pci,netdev=net,romfile=,mac={MAC}",
                 "-chardev", f"socket,id=agent,fd={theirs.fileno()}",
                 "-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent"],
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT)
            theirs.close()
            self.channel = ours
            threading.Thread(target=self.listen, daemon=True).start()
            self.wait_ready(BOOT_KVM_S if accelerator == "kvm" else BOOT_TCG_S)

    def wait_ready(self, patience_s):
        with self.changed:
            self.changed.wait_for(lambda: self.uptime is not None or self.dead, patience_s)
        if self.uptime is None:
            self.close()
            raise Died(f"the guest did not start ({self.accelerator})\n{self.last_words()}")

    def last_words(self):
        with open(self.console, errors="replace") as file:
            said = shorten(file.read(), 30)
        qemu = self.process.stdout.read().decode(errors="replace") if self.process.poll() is not None else ""
        return f"--- its console\n{said}\n{qemu}".rstrip()

    def send(self, line, content=b""):
        try:
            self.channel.sendall(line.encode() + content)
        except OSError:
            pass  # its death is told by listen()

    def listen(self):
        """Own thread: what the agent says goes to the commands."""
        stream = self.channel.makefile("rb")
        try:
            for line in stream:
                words = line.decode().split()
                content = stream.read(int(words[2])) if words[0] == "output" else b""
                with self.changed:
                    self.hear(words, content)
                    self.changed.notify_all()
        except (OSError, ValueError, KeyError, IndexError) as failure:
            if not self.dead:
                print(f"interop: the agent's talk ended: {failure!r}", flush=True)
        with self.changed:
            self.dead = True
            self.changed.notify_all()

    def hear(self, words, content):
        if words[0] == "ready":
            self.uptime = float(words[1])
        elif words[0] == "output":
            self.commands[words[1]].output_bytes += content
        else:
            self.commands.pop(words[1]).status = int(words[2])

    def start(self, command):
        with self.changed:
            number = str(next(self.numbers))
            started = self.commands[number] = Command(self, number, command)
        content = command.encode()
        self.send(f"run {number} {len(content)}\n", content)
        return started

    def run(self, command, timeout_s=60):
        """To its end, which must be a good one; returns what it printed."""
        started = self.start(command)
        try:
            status = started.wait(time.monotonic() + timeout_s)
        except Died:
            raise
        except Failed:
            started.stop()
            raise
        if status != 0:
            raise Failed(f"in the guest: {command}: ended with {status}\n{shorten(started.text())}")
        return started.text()

    def close(self):
        with self.changed:
            self.dead = True
        self.process.kill()
        self.process.wait()
        self.channel.close()
