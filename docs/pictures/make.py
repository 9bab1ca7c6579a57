#!/usr/bin/env python3
"""Pictures of the terminal for the documents: what tmux shows of `weir cp` between two network namespaces.

Usage: test/namespaces.sh docs/pictures/make.py BUILD        (wants tmux)

Nothing is drawn by hand: each scene types its commands into a shell, waits for words on the screen, and takes
the screen as it is then; a scene whose words do not come is an error. In place of ssh stands a shell in the
other namespace."""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from xml.sax.saxutils import escape

COLUMNS, ROWS = 120, 24
PROMPT = r"^\$$"
WIDTH, HEIGHT, MARGIN = 8.43, 18, 14  # of a character of 14 px; around them


class Terminal:
    def __init__(self, folder, name):
        self.command = ["tmux", "-L", f"weir-pictures-{os.getpid()}-{name}", "-f", "/dev/null"]  # the last one's may not have ended
        self.run("new-session", "-d", "-x", str(COLUMNS), "-y", str(ROWS), "-c", folder, "bash --norc --noprofile")
        self.type("PS1='$ '; clear")
        self.wait(PROMPT)

    def run(self, *words):
        return subprocess.run(self.command + list(words), check=True, stdout=subprocess.PIPE, text=True).stdout

    def type(self, text, enter=True):
        self.run("send-keys", "-l", text)
        if enter:
            self.run("send-keys", "Enter")

    def screen(self):
        return [line.rstrip() for line in self.run("capture-pane", "-p").rstrip().split("\n")]

    def wait(self, pattern, seconds=30):
        """Until the last line has it."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if re.search(pattern, self.screen()[-1]):
                return
            time.sleep(0.02)
        sys.exit(f"'{pattern}' does not come: " + "\n".join(self.screen()))

    def enter(self, command):
        """The command, up to the next prompt."""
        self.type(command)
        time.sleep(0.2)
        self.wait(PROMPT)

    def close(self):
        self.run("kill-server")


def picture(lines, path):
    while lines and lines[-1] in ("", "$"):
        lines = lines[:-1]
    width, height = 2 * MARGIN + COLUMNS * WIDTH, 2 * MARGIN + len(lines) * HEIGHT
    with open(path, "w", encoding="utf-8") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" width="{width:.0f}" '
                   f'height="{height}">\n<rect width="100%" height="100%" rx="6" fill="#1d2021"/>\n'
                   '<g font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="14" fill="#d5c4a1">\n')
        for number, line in enumerate(lines):
            typed = ' fill="#fbf1c7" font-weight="bold"' if line.startswith("$ ") else ""
            file.write(f'<text x="{MARGIN}" y="{MARGIN + 14 + number * HEIGHT}"{typed} xml:space="preserve">'
                       f'{escape(line)}</text>\n')
        file.write("</g>\n</svg>\n")


def expect(lines, *words):
    for word in words:
        if not any(word in line for line in lines):
            sys.exit(f"'{word}' is not to be seen:\n" + "\n".join(lines))


def prepare(work, build):
    """A tree here, an empty home there, and what stands for ssh."""
    here, home, bin_folder = [os.path.join(work, name) for name in ("here", "home", "bin")]
    for folder in (here + "/results/plots", home, bin_folder):
        os.makedirs(folder)
    for number in range(3):
        with open(f"{here}/results/run{number}.h5", "wb") as file:
            file.write(os.urandom(96 << 20))
    for number in range(400):
        with open(f"{here}/results/plots/{number:03}.svg", "wb") as file:
            file.write(os.urandom(number * 97))
    libraries = os.path.join(build, "dropin")
    with open(bin_folder + "/ssh", "w", encoding="utf-8") as file:
        file.write(f"#!/bin/sh\nshift\ncd {shlex.quote(home)} && exec far env WEIR_LIBRARY_DIR={shlex.quote(libraries)} "
                   f"PATH={shlex.quote(build)}:\"$PATH\" sh -c \"$*\"\n")
    os.chmod(bin_folder + "/ssh", 0o755)
    os.environ.update(WEIR_LIBRARY_DIR=libraries, PATH=f"{bin_folder}:{build}:{os.environ['PATH']}")
    return here, home


def first(terminal, _):
    terminal.type("weir cp -r --bwlimit 60M results server:")
    terminal.wait(r"\(4\d%")
    middle = terminal.screen()
    terminal.wait(PROMPT)
    terminal.enter("weir cp -r results server:")
    lines = middle + terminal.screen()[len(middle) - 1:]
    expect(lines, "left, weir0", "retransmitted", "403 files", "unchanged")
    return lines


def resume(terminal, home):
    shutil.rmtree(home + "/results")
    terminal.type("weir cp -r --bwlimit 60M results server:")
    terminal.wait(r"\(4\d%")
    terminal.run("send-keys", "C-c")
    terminal.wait(PROMPT)
    terminal.enter("weir cp -r --resume results server:")
    lines = terminal.screen()
    expect(lines, "--resume goes on", "had come before")
    return lines


def error(terminal, home):
    os.makedirs(home + "/other/results/run1.h5/in the way")
    terminal.enter("weir cp results server:other")
    terminal.enter("weir cp -r results server:other")
    terminal.enter("weir cp -r results server:no/such/place")
    terminal.enter("weir cp --weir-path /opt/weir -r results server:")
    lines = terminal.screen()
    expect(lines, "-r copies directories", "--force replaces it", "1 not copied", "--mkpath makes it", "install weir there")
    return lines


def main():
    if len(sys.argv) != 2 or not shutil.which("tmux") or not shutil.which("far"):
        sys.exit("usage: test/namespaces.sh docs/pictures/make.py BUILD (with tmux)")
    work = tempfile.mkdtemp(prefix="weir-pictures-")
    try:
        here, home = prepare(work, os.path.realpath(sys.argv[1]))
        for scene in (first, resume, error):
            terminal = Terminal(here, scene.__name__)
            try:
                picture(scene(terminal, home), os.path.join(os.path.dirname(os.path.realpath(__file__)), scene.__name__ + ".svg"))
            finally:
                terminal.close()
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
