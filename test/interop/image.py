"""What the guest boots: a stock Debian kernel and the file system in its memory.

Here: fetching the kernel package (unpacked, never installed), collecting programs with their libraries and
modules with what they need, writing cpio archives. Not here: starting qemu (guest.py).
Invariant: the cache folder holds either a whole image or none; its name is a digest of all that it was made
of, so a new kernel or another list of programs makes a new one."""
import functools
import glob
import hashlib
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIBRARIES = "/usr/lib/x86_64-linux-gnu"

# dash, as busybox's shell would prefer its own ip to the one beside it.
PROGRAMS = """dash ip tc rdma rping ucmatose udaddy mckey rstream riostream rcopy cmtime ibv_devices ibv_devinfo
    ibv_rc_pingpong ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong ibv_xsrq_pingpong
    ib_send_bw ib_send_lat ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_atomic_bw ib_atomic_lat""".split()

# Loaded by init, in this order; what they need comes along.
MODULES = """virtio_pci virtio_net virtio_console crc32-pclmul crc32_generic crc32c-intel ib_uverbs rdma_cm rdma_ucm
    rdma_rxe""".split()
# Loaded when something asks for them.
MODULES_ON_DEMAND = "sch_netem sch_ingress ifb act_mirred act_gact cls_matchall cls_u32 ib_umad crc32c_generic dummy".split()


class NoImage(Exception):
    """The text says what is missing, in words for who started the suite."""


def say_run(*command, **more):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more)
    if done.returncode != 0:
        raise NoImage(f"{' '.join(command)}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


# --- cpio, "newc": what the kernel unpacks

class Archive:
    """Bytes of a cpio archive. Several may stand behind each other; later files replace earlier ones."""

    def __init__(self):
        self.parts, self.names, self.length = [], {"", "."}, 0

    def entry(self, name, mode, content=b""):
        encoded = name.encode() + b"\0"
        head = b"070701" + b"".join(b"%08x" % number for number in (
            len(self.parts) + 1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(encoded), 0))
        for part in (head + encoded, content):
            self.parts.append(part + b"\0" * (-len(part) % 4))

    def folder(self, name):
        if name not in self.names:
            self.folder(os.path.dirname(name))
            self.names.add(name)
            self.entry(name, 0o040755)

    def add(self, name, content, executable=False):
        self.folder(os.path.dirname(name))
        self.entry(name, 0o100755 if executable else 0o100644, content)

    def file(self, name, path):
        with open(path, "rb") as file:
            self.add(name, file.read(), os.access(path, os.X_OK))

    def link(self, name, target):
        self.folder(os.path.dirname(name))
        self.entry(name, 0o120777, target.encode())

    def bytes(self):
        self.entry("TRAILER!!!", 0)
        return b"".join(self.parts)


def libraries_of(paths):
    """The shared libraries that these programs load, themselves not included."""
    text = subprocess.run(["ldd", *paths], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    return {path for path in re.findall(r"(/\S+\.so\S*)", text) if not path.endswith(":")}


def add_programs(archive, paths):
    """Programs to /bin, libraries to /lib, and the loader to where it is looked for."""
    for path in paths:
        archive.file(f"bin/{os.path.basename(path)}", path)
    for path in libraries_of(paths):
        in_loader_place = os.path.basename(path).startswith("ld-linux")
        archive.file(("lib64/" if in_loader_place else "lib/") + os.path.basename(path), path)


# --- the kernel

def kernel_package():
    """The package that linux-image-amd64 of this suite depends on (the cloud flavour has no rxe)."""
    def look():
        text = say_run("apt-cache", "depends", "linux-image-amd64", text=True)
        found = re.search(r"Depends: (linux-image-\S+-amd64)$", text, re.MULTILINE)
        return found and found.group(1)
    try:
        package = look()
    except NoImage:
        package = None
    if not package:
        subprocess.run(["apt-get", "-qq", "update"], stdout=subprocess.DEVNULL)
        package = look()
    if not package:
        raise NoImage("apt knows no linux-image-amd64")
    version = re.search(r"^Version: (\S+)", say_run("apt-cache", "show", "--no-all-versions", package, text=True),
                        re.MULTILINE).group(1)
    return package, version


def fetch_kernel(package, folder):
    """Downloads and unpacks the package; returns the kernel's file and its modules' version."""
    say_run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", "download", package, cwd=folder)
    say_run("dpkg-deb", "-x", *glob.glob(f"{folder}/{package}_*.deb"), f"{folder}/kernel")
    version = os.listdir(f"{folder}/kernel/lib/modules")[0]
    say_run("depmod", "-b", f"{folder}/kernel", version)
    return f"{folder}/kernel/boot/vmlinuz-{version}", version


def unpacked_kernel(path):
    """The ELF inside a bzImage. qemu starts it through its PVH entry: under TCG, the kernel's own
    decompression takes longer than all the rest of the boot."""
    with open(path, "rb") as file:
        image = file.read()
    setup_sectors = image[0x1f1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)  # payload_offset, payload_length
    payload = image[(setup_sectors + 1) * 512 + offset:][:length]
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor().decompress(payload)
    for magic, tool in ((b"\x28\xb5\x2f\xfd", "zstd"), (b"\x1f\x8b", "gzip")):
        if payload.startswith(magic):  # what follows the stream is not theirs: they complain, and are done
            return subprocess.run([tool, "-dcq"], input=payload, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL).stdout
    raise NoImage(f"{path}: compressed in an unknown way")


def module_files(folder, version):
    """Paths, relative to the modules' root, of MODULES and all that they need."""
    base = f"{folder}/kernel/lib/modules/{version}"
    needs, by_name = {}, {}
    with open(f"{base}/modules.dep") as file:
        for line in file:
            path, others = line.split(":")
            needs[path] = others.split()
            by_name[re.sub(r"\.ko(\.\w+)?$", "", os.path.basename(path)).replace("-", "_")] = path
    with open(f"{base}/modules.builtin") as file:
        builtin = {os.path.basename(line.strip())[:-3].replace("-", "_") for line in file}
    wanted = set()
    for name in MODULES + MODULES_ON_DEMAND:
        plain = name.replace("-", "_")
        if plain in by_name:
            wanted.update([by_name[plain], *needs[by_name[plain]]])
        elif plain not in builtin:
            raise NoImage(f"the kernel {version} has no module {name}")
    return base, sorted(wanted)


def add_modules(archive, folder, version):
    base, files = module_files(folder, version)
    root = f"{folder}/modules"
    for path in files:
        with open(f"{base}/{path}", "rb") as file:
            content = file.read()
        if path.endswith(".xz"):
            content, path = lzma.decompress(content), path[:-3]
        target = f"{root}/lib/modules/{version}/{path}"
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "wb") as file:
            file.write(content)
    for name in ("modules.order", "modules.builtin", "modules.builtin.modinfo"):
        shutil.copy(f"{base}/{name}", f"{root}/lib/modules/{version}/{name}")
    say_run("depmod", "-b", root, version)
    for path in glob.glob(f"{root}/**", recursive=True):
        if os.path.isfile(path):
            archive.file(os.path.relpath(path, root), path)


# --- the whole

def base_archive(folder, version):
    archive = Archive()
    for name in ("proc", "sys", "dev", "tmp", "root", "run", "etc", "var/lib"):
        archive.folder(name)
    archive.link("sbin", "bin")
    archive.link("usr", ".")
    programs = [shutil.which(name) for name in PROGRAMS]
    if None in programs:
        raise NoImage(f"not installed: {PROGRAMS[programs.index(None)]}")
    busybox = shutil.which("busybox")
    if not busybox or libraries_of([busybox]):
        raise NoImage("not installed: busybox-static")
    for name in set(say_run(busybox, "--list", text=True).split()) - set(PROGRAMS) - {"busybox", "sh"}:
        archive.link(f"bin/{name}", "busybox")
    archive.link("bin/sh", "dash")
    archive.file("bin/busybox", busybox)
    provider = glob.glob(f"{LIBRARIES}/libibverbs/librxe-rdmav*.so")
    if not provider:
        raise NoImage("not installed: ibverbs-providers")
    add_programs(archive, programs)
    archive.file(f"lib/x86_64-linux-gnu/libibverbs/{os.path.basename(provider[0])}", provider[0])
    archive.file("lib/libgcc_s.so.1", f"{LIBRARIES}/libgcc_s.so.1")  # what pthread_exit loads
    archive.add("etc/libibverbs.d/rxe.driver", b"driver rxe\n")
    archive.add("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    archive.add("etc/hosts", b"127.0.0.1 localhost\n")
    archive.add("etc/modules", " ".join(MODULES).encode())
    add_modules(archive, folder, version)
    return archive.bytes()


@functools.lru_cache
def recipe():
    """A digest of what the image is made of besides the kernel: this file and the packages."""
    versions = say_run("dpkg-query", "-W", "libc6", "busybox-static", "iproute2", "ibverbs-utils", "rdmacm-utils",
                       "perftest", "ibverbs-providers")
    with open(__file__, "rb") as file:
        return hashlib.sha256(file.read() + versions).hexdigest()[:16]


def make(cache):
    """Makes the image where it is not there yet; returns the folder with `vmlinux` and `initrd`."""
    package, version = kernel_package()
    folder = os.path.join(cache, f"{package}_{version}_{recipe()}".replace(":", "."))
    if os.path.exists(folder):
        return folder
    os.makedirs(cache, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="making.") as work:
        kernel, modules_version = fetch_kernel(package, work)
        os.mkdir(f"{work}/image")
        with open(f"{work}/image/vmlinux", "wb") as file:
            file.write(unpacked_kernel(kernel))
        with open(f"{work}/image/initrd", "wb") as file:
            file.write(base_archive(work, modules_version))
        try:
            os.rename(f"{work}/image", folder)
        except OSError:  # another run was faster
            if not os.path.exists(folder):
                raise
    return folder


def of_this_build(build):
    """What changes with every build: the agent, init, the suite's programs, those of ../many, and the command `weir`."""
    archive = Archive()
    own = [path for path in glob.glob(f"{build}/test/interop/*")
           if os.path.isfile(path) and os.access(path, os.X_OK)]
    if not own:
        raise NoImage(f"{build}/test/interop is not built")
    add_programs(archive, own + [f"{build}/weir", f"{build}/test/many"])
    archive.file("init", f"{HERE}/init")
    return archive.bytes()
