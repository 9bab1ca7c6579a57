#!/usr/bin/env python3
"""Follows container/Dockerfile without docker, as far as one machine allows: its packages exist, its build
commands give an image folder, which works from where it lies and needs no library but those of the packages that
the last stage installs. Usage: container_test.py SOURCE_DIR"""
import fnmatch
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

problems = []


def check(good, what):
    if not good:
        problems.append(what)
        print("FAIL", what)


def instructions(path):
    """(word, rest) of each instruction; continued lines are joined."""
    text = re.sub(r"^#.*\n", "", open(path).read(), flags=re.M)
    text = re.sub(r"\\\n", " ", text)
    return [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]


def packages_of(command):
    words = shlex.split(command.replace("&&", " ; "))
    if "install" not in words or "apt-get" not in words:
        return []
    names = []
    for word in words[words.index("install") + 1:]:
        if word == ";":
            break
        if not word.startswith("-"):
            names.append(word)
    return names


def check_packages(names, where):
    for name in names:
        known = subprocess.run(["apt-cache", "show", name], capture_output=True).returncode == 0
        check(known, f"{where}: there is no package {name}")
    print(f"{where}: {len(names)} packages")


def copy_context(source, target):
    """What docker would send: everything that .dockerignore does not name."""
    patterns = [l.strip() for l in open(f"{source}/.dockerignore") if l.strip() and l[0] != "#"]

    def ignored(folder, names):
        relative = os.path.relpath(folder, source)
        path = {n: n if relative == "." else f"{relative}/{n}" for n in names}
        return [n for n in names for p in patterns
                if (fnmatch.fnmatch(n, p[3:]) if p.startswith("**/") else
                    "/" not in path[n] and fnmatch.fnmatch(path[n], p))]

    shutil.copytree(source, target, ignore=ignored, symlinks=True)


def build(commands, context, image):
    for command in commands:
        command = command.replace("DESTDIR=/image", f"DESTDIR={image}")
        done = subprocess.run(command, shell=True, cwd=context, capture_output=True, text=True)
        check(done.returncode == 0, f"{command}: {(done.stdout + done.stderr)[-1500:]}")
        if done.returncode != 0:
            return


def libraries_needed(image):
    needed = set()
    for folder, _, names in os.walk(image):
        for name in names:
            path = os.path.join(folder, name)
            head = open(path, "rb").read(4) if os.path.isfile(path) else b""
            if head == b"\x7fELF":
                out = subprocess.run(["readelf", "-d", path], capture_output=True, text=True).stdout
                needed |= set(re.findall(r"NEEDED.*\[(.*)\]", out))
    return needed


EVERYWHERE = {"libc6", "libgcc-s1"} # the second is what the first depends on


def check_libraries(image, packages):
    own = {n for _, _, names in os.walk(image) for n in names}
    paths = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True).stdout
    for library in sorted(libraries_needed(image) - own):
        found = re.search(rf"^\s*{re.escape(library)} .*=> (.*)$", paths, re.M)
        check(found, f"{library} is nowhere")
        if found and "ld-linux" not in library:
            path = os.path.realpath(found.group(1))
            owners = "".join(subprocess.run(["dpkg", "-S", p], capture_output=True, text=True).stdout
                             for p in (path, path.removeprefix("/usr")))
            names = set(re.findall(r"^([^:\s]+)", owners, re.M))
            check(names & (set(packages) | EVERYWHERE),
                  f"{library} is of {names}, which the image does not install")


def check_image(image):
    run = [f"{image}/usr/local/bin/weir", "run", "--"]
    if shutil.which("ibv_devinfo"):
        done = subprocess.run(run + ["ibv_devinfo"], capture_output=True, text=True)
        check("PORT_ACTIVE" in done.stdout, f"ibv_devinfo in the image: {done.stdout}{done.stderr}")
    done = subprocess.run(run + ["cat", "/sys/class/infiniband/weir0/ports/1/link_layer"],
                          capture_output=True, text=True)
    check(done.stdout == "Ethernet\n", f"sysfs in the image: {done.stdout}{done.stderr}")
    check_link(image)


def check_link(image):
    """A program linked by pkg-config to our verbs finds weir0 with no environment at all."""
    pc = [os.path.join(f, n) for f, _, names in os.walk(image) for n in names if n == "weir-verbs.pc"]
    check(len(pc) == 1, "weir-verbs.pc is not installed")
    program = f"{image}/linked.c"
    open(program, "w").write("#include <infiniband/verbs.h>\n#include <stdio.h>\nint main(void)\n"
                             '{ puts(ibv_get_device_name(ibv_get_device_list(0)[0])); }\n')
    flags = subprocess.run(["pkg-config", f"--define-variable=prefix={image}/usr/local", "--cflags", "--libs",
                            "weir-verbs"], env={**os.environ, "PKG_CONFIG_PATH": os.path.dirname(pc[0])},
                           capture_output=True, text=True).stdout.strip()
    done = subprocess.run(f"cc -o {image}/linked {program} {flags} && {image}/linked", shell=True,
                          capture_output=True, text=True)
    check(done.stdout == "weir0\n", f"linked by pkg-config ({flags}): {done.stdout}{done.stderr}")


def main():
    source = os.path.abspath(sys.argv[1])
    stages = []
    for word, rest in instructions(f"{source}/container/Dockerfile"):
        if word == "FROM":
            stages.append([])
        stages[-1].append((word, rest))
    installed = []
    for number, stage in enumerate(stages, 1):
        installed = [p for word, rest in stage if word == "RUN" for p in packages_of(rest)]
        check_packages(installed, f"stage {number}")
    actions = open(f"{source}/container/github-actions.yml").read()
    step = re.search(r"apt-get install [^:]*?(?=\n *- )", actions).group(0)
    check_packages(packages_of("apt-get " + step.split(None, 1)[1].replace("\n", " ")), "actions")
    with tempfile.TemporaryDirectory() as work:
        copy_context(source, f"{work}/source")
        commands = [rest for word, rest in stages[0] if word == "RUN" and "apt-get" not in rest]
        options = " ".join(w for w in commands[0].split() if w.startswith("-"))
        check(options in actions, f"the workflow does not configure with {options}")
        build(commands, f"{work}/source", f"{work}/image")
        if not problems:
            check_libraries(f"{work}/image", installed)
            check_image(f"{work}/image")
    print(f"container: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
