#!/usr/bin/env python3
"""What the documents name is there. Usage: documents.py ROOT [FILE...]

Of the Markdown pages: links and their anchors, paths, file names, commands of ./dev, programs below build/,
options of the command.
Of the manual pages: the pages and options that they name; and each option that a command's --help names has its place there.
Of both: environment variables; and each variable that the libraries read has its row in docs/environment.md.
And each folder has its row in the map of docs/architecture.md."""
import os
import re
import sys

TOP = ["rnic", "weir", "include", "tools", "sim", "test", "bench", "fuzz", "checks", "examples", "container", "packaging", "docs"]
# A module is named from its layer on: `transport/train`, `io/udp/lender`, `transfer/disk/writer`.
LAYERS = ["", "rnic", "rnic/io", "tools", "tools/transfer"]
SOURCE = (".c", ".h", ".py", ".sh", ".build", ".in", ".yml", "/dev", "/Dockerfile")
MODULE = ("", ".c", ".h", ".py", ".sh", "_test.c", "_test.py", "_test.sh")
ELSEWHERE = {"string.h", "rxe_comp.c"}  # files of others
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
SPAN = re.compile(r"`([^`\n]+)`")
HEADING = re.compile(r"^#+ +(.*)$", re.M)
PATH = re.compile(r"(?<![\w./<>-])((?:" + "|".join(TOP) + r")/[\w./-]*\w)")
VARIABLE = re.compile(r"\bWEIR_[A-Z_]*[A-Z]\b")
OPTION = re.compile(r"(?<![\w-])--([a-z][a-z0-9-]+)")
COMMAND = re.compile(r"\bweir (?:cp|serve|key|bench|info) [^`#\n]*")  # what weir run starts has options of its own


def read(root, path):
    with open(os.path.join(root, path), errors="replace") as file:
        return file.read()


class Tree:
    """The files, and the words that the documents may use."""

    def __init__(self, root):
        self.root, self.files, self.folders = root, set(), set()
        for where, folders, names in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith((".", "build")) and f not in ("__pycache__", "canary")]
            here = os.path.relpath(where, root)
            self.folders.add(here)
            self.files |= {os.path.normpath(os.path.join(here, name)) for name in names}
        self.names = {os.path.basename(f) for f in self.files}
        sources = {f: read(root, f) for f in self.files if ("/" + f).endswith(SOURCE)}
        self.variables = {v for text in sources.values() for v in VARIABLE.findall(text)}
        self.programs = set(re.findall(r"\w+", "\n".join(t for f, t in sources.items() if f.endswith("meson.build"))))
        self.commands = set(re.findall(r"^cmd_(\w+)\(\)", sources.get("dev", ""), re.M))
        self.tools = "\n".join(t for f, t in sources.items() if f.startswith("tools/") and f.endswith(".c"))
        self.heard = {v for f, t in sources.items() if f.startswith("rnic/") and not f.endswith("_test.c")
                      for v in re.findall(r'secure_getenv\("(WEIR_[A-Z_]+)"', t)}
        self.anchors = {}

    def has(self, path):
        path = os.path.normpath(path)
        return path in self.folders or any(path + ending in self.files for ending in MODULE)

    def on_the_map(self):
        """The folders at the top, and those of the layers."""
        return sorted(f for f in self.folders if f in TOP or os.path.dirname(f) in LAYERS[1:])

    def has_option(self, name):
        return f'{{"{name}"' in self.tools

    def has_anchor(self, path, anchor):
        if path not in self.anchors:
            slugs = []
            for heading in HEADING.findall(read(self.root, path)):
                words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
                slugs.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
            self.anchors[path] = {s + (f"-{slugs[:i].count(s)}" if s in slugs[:i] else "") for i, s in enumerate(slugs)}
        return anchor in self.anchors[path]


def check_link(tree, page, target):
    if re.match(r"[a-z]+:", target):
        return None
    path, _, anchor = target.partition("#")
    path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if not os.path.exists(os.path.join(tree.root, path)):
        return f"the link {target} leads nowhere"
    if anchor and not tree.has_anchor(path, anchor):
        return f"the link {target} names no heading of {path}"
    return None


def check_span(tree, page, span):
    """A name in backquotes, alone or at the head of a command."""
    word = span.split(" ")[0]
    if re.fullmatch(r"[\w-]+\.(c|h|py|sh)", word):
        return None if word in tree.names or word in ELSEWHERE else f"there is no file {word}"
    if not re.fullmatch(r"[a-z_.]+(/[\w.-]+)+/?", word):
        return None
    if word.startswith("build"):
        return None if os.path.basename(word) in tree.programs else f"no program {word} is built"
    if any(tree.has(os.path.join(layer, word)) for layer in LAYERS + [os.path.dirname(page)]):
        return None
    return f"there is no {word}"


def check_page(tree, page):
    text = read(tree.root, page)
    said = [(m, check_link(tree, page, m.group(1))) for m in LINK.finditer(text)]
    plain = LINK.sub(lambda m: " " * len(m.group()), text)
    said += [(m, check_span(tree, page, m.group(1))) for m in SPAN.finditer(plain)]
    said += [(m, None if tree.has(m.group(1)) or tree.has(os.path.join(os.path.dirname(page), m.group(1)))
              else f"there is no {m.group(1)}") for m in PATH.finditer(plain)]
    said += [(m, None if m.group(1) in tree.commands else f"there is no ./dev {m.group(1)}")
             for m in re.finditer(r"\./dev ([a-z]+)", text)]
    said += [(m, None if tree.has_option(name) else f"no command has --{name}")
             for m in COMMAND.finditer(text) for name in OPTION.findall(m.group())]
    return text, said


def check_manual(tree, page):
    text = read(tree.root, page)
    command = os.path.basename(page)[len("weir-"):-len(".1")]
    flags = [(m, name) for m in re.finditer(r"\bFl ([^A-Z\n]*)", text)  # up to the next macro
             for name in re.findall(r"(?<![\w-])-([a-z][a-z0-9-]*)", m.group(1))]
    said = [(m, None if f"docs/man/{m.group(1)}.1" in tree.files else f"there is no page {m.group(1)}(1)")
            for m in re.finditer(r"^\.Xr (weir[\w-]*) 1", text, re.M)]
    said += [(m, None if tree.has_option(name) or name == "no-" else f"no command has --{name}") for m, name in flags]
    here = {name for _, name in flags} | set(OPTION.findall(text))
    usage = re.search(r"\b" + command + r"_usage\[\] =(.*?);\n", tree.tools, re.S)
    options = set(OPTION.findall(usage.group(1))) if usage else set()
    said += [(None, f"--{name} of weir {command} --help is not there") for name in sorted(options - here)]
    return text, said


def check(tree, page):
    text, said = (check_manual if page.endswith(".1") else check_page)(tree, page)
    said += [(m, None if m.group() in tree.variables else f"nothing reads {m.group()}") for m in VARIABLE.finditer(text)]
    if os.path.basename(page) == "environment.md":
        said += [(None, f"{name} has no row") for name in sorted(tree.heard) if not re.search(rf"^\| .*`{name}`", text, re.M)]
    if os.path.basename(page) == "architecture.md":
        said += [(None, f"{folder} has no row") for folder in tree.on_the_map() if not re.search(rf"`{folder}[/`]", text)]
    return [f"{page}:{text[:m.start()].count(chr(10)) + 1 if m else 0}: {what}" for m, what in said if what]


def main():
    tree = Tree(sys.argv[1])
    pages = sys.argv[2:] or sorted(f for f in tree.files if f.endswith(".md") or f.startswith("docs/man/") and f.endswith(".1"))
    bad = [line for page in pages for line in check(tree, page)]
    print("\n".join(bad) if bad else f"documents: {len(pages)} pages name what is there")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
