"""What is copied: one large file, a tree of files of mixed sizes, and one of many small files; of random bytes, and the
same each time.

Not here: who copies them (file_tools.py)."""
import os
import random
import shutil

GIB = 1 << 30
FILES_IN_FOLDER = 200
LOADS = {"big": "one file of 4 GiB", "tree": "20,000 files of 1 GiB together", "small": "100,000 files of 4 KiB"}
BLOCK_LENGTH = 64 << 20


def sizes(load, scale):
    """Of its files. The tree's are spread as those of a home are: most small, most bytes in the large ones."""
    if load == "big":
        return [int(4 * GIB * scale)]
    if load == "small":
        return [4096] * max(1, int(100000 * scale))
    count = max(1, int(20000 * scale))
    drawn = random.Random(20000)
    raw = [drawn.lognormvariate(0, 1.5) for _ in range(count)]
    unit = GIB * scale / sum(raw)
    return [int(size * unit) for size in raw]


def write(path, size, block, begin):
    with open(path, "wb", buffering=0) as file:
        while size > 0:
            part = block[begin:begin + size]
            file.write(part)
            size -= len(part)
            begin = 0


def make_file(path, length):
    write(path, length, memoryview(random.Random("big").randbytes(BLOCK_LENGTH)), 0)
    return path


def make(load, folder, scale):
    """`folder`/`load`, and how many files and bytes are in it."""
    path, all_sizes = os.path.join(folder, load), sizes(load, scale)
    block = memoryview(random.Random(load).randbytes(BLOCK_LENGTH))
    if load == "big":
        write(path, all_sizes[0], block, 0)
    for number, size in enumerate(all_sizes if load != "big" else []):
        inside = os.path.join(path, f"folder{number // FILES_IN_FOLDER}")
        if number % FILES_IN_FOLDER == 0:
            os.makedirs(inside)
        write(os.path.join(inside, f"file{number}"), size, block, number * 4099 % (BLOCK_LENGTH // 2))
    return len(all_sizes), sum(all_sizes)


def count(path):
    """How many files and bytes are there."""
    if os.path.isfile(path):
        return 1, os.path.getsize(path)
    files = total = 0
    for folder, _, names in os.walk(path):
        files += len(names)
        total += sum(os.lstat(os.path.join(folder, name)).st_size for name in names)
    return files, total


def remove(path):
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def touch_memory(length):
    """Whoever runs this machine gives it a page at its first touch, which costs several times the rest, and takes back what was freed
    seconds ago (free page reporting). What was freed last is used first, so call this right before memory is needed."""
    path = f"/dev/shm/weir-bench-fill.{os.getpid()}"
    zeros = bytes(16 << 20)
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(min(length, int(available * 0.8)) // len(zeros)):
                file.write(zeros)
    finally:
        os.unlink(path)
