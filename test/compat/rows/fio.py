"""fio's rdma engine: the client chooses the verb, the server follows. Blocks that are sent carry a header
with a checksum that the receiving job verifies."""
from model import Evidence, Failed, Row, above, absent, line, proof, wire

GROUP = "fio"
PACKAGES = ["fio"]
SIZE = 16 << 20
LISTENS = "waiting for connection"  # says the server. A client that comes before ends well, having moved nothing


def row(verb, server_mode, client_mode, options="", verify="", quick=False, link=""):
    """Its jobs end by _exit, and tell of no bytes but those on a wire: only over UDP can these be counted."""
    common = "--ioengine=rdma --port=8888 --bs=64k --size=16m"
    depth = 256 if verb == "send" else 16  # all receives posted: fio has no flow control
    server = f"fio --name=server {common} --iodepth={depth} --rw={server_mode} {options}{verify}"
    client = f"fio --name=client {common} --iodepth=16 --hostname=127.0.0.1 --verb={verb} --rw={client_mode} {options}"
    if verify:
        client += verify + " --do_verify=0"
    checks = [line(r"(READ|WRITE): bw=[0-9.]+", text="a sum of what was moved"),
              line(r"err= 0"), line(r"err= 0", where=0), absent("verify: bad|verify failed|fio: .*error", 0,
                                                                 "no error, no bad block"),
              above(r"io=([0-9.]+)MiB", "MiB moved", 15.9)]
    if link == "udp":
        checks.append(wire(SIZE))
    if verify:
        checks.append(proof(f"the receiving fio verifies each block ({verify.split('=')[1].split()[0]})"))
    name = " ".join(word for word in (verb, verify.strip(), options.strip(), f"over {link}" if link else "") if word)
    return Row(name, [server.strip(), client.strip()], checks, ready=LISTENS, quick=quick, timeout_s=40,
               environment={"WEIR_LINK": link} if link else {})


def bad_data(receiver, sender, complaint):
    """The proof that the verification can fail: the sender's blocks are not what the receiver expects."""
    common = "--ioengine=rdma --port=8888 --bs=64k --size=4m"
    server = f"fio --name=server {common} --iodepth=256 --rw=read {receiver}"
    client = f"fio --name=client {common} --iodepth=16 --hostname=127.0.0.1 --verb=send --rw=write {sender}".strip()

    def body(stage):
        receiving = stage.start(server)
        stage.ready(LISTENS, receiving, 1)
        sending = stage.start(client)
        ended = (sending.wait(), receiving.wait())
        if ended[1] == 0:
            raise Failed(f"the receiver took bad data\n{receiving.text()}")
        return Evidence([receiving.output(ended[1]), sending.output(ended[0])], 0)
    return Row(f"bad data, {receiver} from {sender.split()[0] if sender else 'none'}", [server, client],
               [line(complaint, where=0), line(r"err=84", where=0, text="the receiver fails with err=84")],
               body=body, timeout_s=30)


ROWS = [
    *(row(verb, "read", "write", options, verify, quick and bool(verify or link), link) for link in ("", "udp")
      for verb, options, verify, quick in (
          ("write", "", "", True),
          ("read", "", "", True),
          ("send", "", "", False),
          ("send", "", " --verify=crc32c", True),
          ("send", "", " --verify=sha256", False),
          ("send", "", " --verify=pattern --verify_pattern=0xaabbccdd", False),
          ("write", "--iodepth_batch=4 ", "", False))),
    bad_data("--verify=crc32c", "--verify=crc32 --do_verify=0", "crc32c: verify failed"),
    bad_data("--verify=crc32c", "", "verify: bad magic header"),
    bad_data("--verify=pattern --verify_pattern=0xaabbccdd",
             "--verify=pattern --verify_pattern=0xaabbccde --do_verify=0", "bad pattern block offset"),
]
