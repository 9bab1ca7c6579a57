"""`weir cp` between the host on our RNIC and the guest on rdma-core and rxe: libweir and the command on a kernel's RDMA
device. Each row copies both ways."""
import functools
import re
import shlex

from model import Failed
from row import Row

GROUP = "weir cp"

MAKE = """rm -rf cp && mkdir -p cp/served "cp/tree/a/b/with space" && cd cp/tree &&
for length in 0 1 4095 65537 {}; do head -c $length /dev/urandom >a/f$length || exit 1; done &&
head -c 100 /dev/urandom >"a/b/with space/x" && chmod 640 a/f1 && ln -s ../f1 a/b/link"""

# Of each file its digest and mode, of each link where it leads.
DIGEST = """cd cp/{} && (find . -type f -exec sha256sum {{}} + ; find . -type f -exec stat -c "%a %n" {{}} + ;
find . -type l -exec readlink {{}} + ) | LC_ALL=C sort | sha256sum"""


def shell(scene, end, words):
    started = end.start(f"cd {end.folder} && {words}", native=True)
    status = scene.wait(started)
    if status != 0:
        raise Failed(f"{end.name}: {words}: ended with {status}")
    return started.text()


def digest(scene, end, folder):
    found = re.search(r"^[0-9a-f]{64}", shell(scene, end, DIGEST.format(folder)), re.MULTILINE)
    if not found:
        raise Failed(f"no digest of {folder} at {end.name}")
    return found.group(0)


def weir(scene, end):
    """The command, and a device that must be there: ours has no other, the guest's must be the kernel's."""
    return f"{end.weir} {{}} --fabric " + ("soft" if end is scene.host else "rdma")


def bracketed(address):
    return f"[{address}]" if ":" in address else address


def know_each_other(scene):
    """A key for the client, its line for the server."""
    key = shell(scene, scene.client, f"rm -f cp.key && {scene.client.weir} key --name interop cp.key && cat cp.key")
    shell(scene, scene.server, f"umask 077 && rm -f cp.keys && echo {shlex.quote(key.strip())} >cp.keys")


def copy_both_ways(longest, trust, scene):
    """A tree with files up to `longest` bytes there and back, and its longest file. `trust`: options of the client, none
    for a server that serves anybody. Returns what the server said."""
    family = scene.cell.family
    listen, server, client = scene.server.address[family], scene.server, scene.client
    for end in (server, client):
        shell(scene, end, MAKE.format(longest))
    if trust:
        know_each_other(scene)
    serving = server.start(f"cd {server.folder} && exec {weir(scene, server).format('serve')}"
                           f" {'--keys cp.keys' if trust else '--insecure'} --root cp --listen '{bracketed(listen)}'", native=True)
    scene.stage.wait_until(lambda: " at weir:" in serving.text(), "the server", serving)
    url = f"weir://{bracketed(listen)}"
    cp = f"{weir(scene, client).format('cp')} {trust}"
    shell(scene, client, f"{cp} -r cp/tree '{url}/served/sent'")
    shell(scene, client, f"{cp} -r '{url}/tree' cp/fetched")
    shell(scene, client, f"{cp} '{url}/tree/a/f{longest}' cp/one")
    if digest(scene, client, "tree") != digest(scene, server, "served/sent"):
        raise Failed("what was sent is not what came")
    if digest(scene, server, "tree") != digest(scene, client, "fetched"):
        raise Failed("what was fetched is not what was there")
    ones = [re.search(r"^[0-9a-f]{64}", shell(scene, end, f"sha256sum {path}"), re.MULTILINE).group(0)
            for end, path in ((server, f"cp/tree/a/f{longest}"), (client, "cp/one"))]
    if ones[0] != ones[1]:
        raise Failed("the single file differs")
    serving.stop()
    return serving.text()


def play(longest, trust, scene):
    copy_both_ways(longest, trust, scene)


def copying(longest, trust="", **more):
    return Row(f"a tree and a file, both ways {trust}".strip(), body=functools.partial(play, longest, trust),
               wire=3 * longest, **more)


ROWS = [
    copying(3000001, timeout_s=60, short=4),
    copying(1000001, "--key cp.key", timeout_s=60, short=1, mtus=(1024,)),
    copying(1000001, "--key cp.key --encrypt", timeout_s=60, short=1, mtus=(1024,)),
    # rxe recovers from 10% of the packets out of order at 30 to 60 KB/s, see README.md.
    copying(300001, timeout_s=90, short=1, mtus=(1024,), impairment="everything"),
]
