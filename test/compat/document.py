"""docs/compatibility.md, made of the results of a run."""
import os
import re
import subprocess

import pysuite

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = """# Compatibility

Unmodified programs of Debian 12 on Weir's libraries, and what each of them proved. `./dev compat --write-doc` made this page from a run of
its own; do not edit it. `./dev compat --quick` runs the rows marked with a dot and all of rdma-core's Python tests; CI does so too.

Every row runs in a fresh network namespace, its programs as processes of their own, each started by `weir run` as a user would. The last command
is the client, those before it are servers. The exit status is never the proof alone: what the programs print is read, data is compared by the
programs or by digest, and "bytes on the wire" counts what the namespace's interfaces carried, and the memory link.
"""

PYTHON_HEAD = """## rdma-core's Python tests

The tests that Debian's python3-pyverbs {version} ships, unmodified: all vendor-neutral ones, each in a process and a namespace of its own. A skip
whose reason is not listed below counts as a failure.

| file | tests | passed | skipped | failed |
|---|---|---|---|---|
"""

ABSENT = """
## Not in the matrix, and why

- `raw_ethernet_bw` and its kin (perftest), flow steering and RSS tests: they send and receive whole Ethernet frames, which only a NIC or the
  kernel's raw sockets can give.
- qperf's `xrc_` tests: Debian's binary is built without them ("bad test", although its help lists them).
- `ibv_rc_pingpong -t -e`: takes an event for a completion that it has polled already, and then calls the empty queue an error. The verbs allow
  such events on every device.
- fio's `send` with a receiver slower than the sender: fio's server accepts with an RNR retry count of 0, so the first message without a receive ends
  the connection, as the count demands.
- `iscsi-ls` by iSER: libiscsi 1.19 destroys its completion queue in the callback that ends the discovery, then polls the freed queue (seen with
  valgrind); it crashes or not as the allocator pleases.
- `ucx_perftest -x rc_verbs -t swap`: an InfiniBand adapter has no 64-bit swap (compare-and-swap and fetch-and-add only), and UCX says so. By UCP,
  which makes it of others, `ucp_swap` is in the matrix. `-t get` needs `-D bcopy` or `-D zcopy`: no adapter reads into registers.
- `nc` and `fio --ioengine=net` under librspreload: nc calls accept4, which that library does not take over; fio insists on SO_REUSEPORT, which
  rsockets do not have.
- `udpong` without `-b`: its server asks the resolver for an address without AI_PASSIVE, gets that of loopback over IPv6, and hears no IPv4 client.
  With `-T e` it waits for ever once an echo took more than a millisecond, so that row sends few.
- UCX and what is above it with LD_LIBRARY_PATH alone: UCX looks for devices in /sys/class/infiniband, which `weir run` shows.
- `ib_write_bw -e`: perftest refuses ("Events feature not available on WRITE verb").
- `ib_write_bw -W port_xmit_data`: perftest reads the counters of /sys/class/infiniband, which a kernel keeps for its own devices ("Unable to
  access performance counters"); /sys of `weir run` is a picture of the start, and a counter that stands still would be a lie. What was counted:
  `WEIR_STATISTICS`.
- `mckey -s -l` as its manual has it (nobody on the host hears it): the flag that it sets, IBV_QP_CREATE_BLOCK_SELF_MCAST_LB, keeps a queue pair
  from hearing itself, as its name says; other queue pairs of the group are other receivers, wherever they are.
- `ucmatose -f gid`, `rstream -f gid`: names are GIDs and addresses AF_IB, which a port without an InfiniBand subnet does not have.
- `rstream`, `udpong` with `-T s` (and `-T f`, which forces it): they use the kernel's sockets then, not rsockets.
- `ucx_perftest -x ud_verbs -t put_lat` and the other one-sided tests: datagrams have no WRITE, and UCX says that the transport does not support it. By UCP,
  which makes them of messages, they are in the matrix.
- Ceph's RDMA messenger (ceph-osd, librados2): not tried; it needs a whole cluster. librpma0 and libgloo0 are libraries of which Debian has no program (its fio
  is built without librpma): below. gfio is a window around fio's engines. DPDK's programs import nothing from libibverbs, their drivers look for one vendor's
  devices. ibacm, srptools and opa-* speak management datagrams to an InfiniBand or Omni-Path subnet by /dev/infiniband/umad. Of QEMU the x86
  binary is in the matrix; those of other machines have the same migration code.

## Built from source, by hand

Not in the matrix, for Debian has no package of them, or one that is years old. Built on Debian 12 against its rdma-core 44, run with `weir run`: within the host, with `WEIR_LINK=udp`, and with `WEIR_FAULT=loss=0.01,seed=1`
beside it. That the bytes went by the software RNIC was read off `WEIR_STATISTICS`.

| date | program | run | seen |
|---|---|---|---|
| 2026-11-26 | valkey, unstable branch, commit 55bbbe09a | its own RDMA test, which starts `valkey-server --loadmodule valkey-rdma.so` and `rdma-test --thread 4` | all as wanted (random values set and read back by 4 threads, a BGSAVE, which forks, in between), with `WEIR_LINK=copy`, `WEIR_DIRECT=calls` and `WEIR_STRICT=1`, too. A server that is killed ends its clients within half a second and serves again when restarted; one whose client is killed goes on. This version's tools and replication speak TCP only |
| 2026-11-26 | librpma 1.2.0-1 (Debian), with the 17 examples of its source, tag 1.2.0 | its script that runs all examples, at 127.0.0.1, on memory and on a file with `PMEM_IS_PMEM_FORCE=1` | "All examples succeeded". A file that stands for a file system with DAX must have `/dev/dax` in its path: else the examples ask for prefetching of a region that is not on demand, which an adapter refuses, too. `07-atomic-write` with a librpma that knows the flag uses native atomic writes |
| 2026-11-26 | gloo, commit 70dc360, its `benchmark` with `-t ibverbs --ib-device weir0` | 19 of its benchmarks, 4 processes (sends: 2), 200 bytes to 400 KB, the result compared by the program; `--threads 3`; `--sync true --busy-poll true` | 18 complete without an error; a process whose peer is killed ends with "transport retry counter exceeded" within 30 ms. `isendirecv_stress` posts more sends than the 8 that its queue pair has, and locks itself up in handling the refusal |
| 2026-11-26 | brpc, commit 71871ee9, its example rdma_performance | `server`, `client -thread_num=1..8 -queue_depth=1..32 -attachment_size=64..4000000`, events and `-rdma_use_polling`, blocks of 8 KiB and 2 MiB | works (26,000 calls of 4 KiB a second within the host, 1.5 GB/s by UDP with 4 MB), but 13 of 32 starts failed: "Too many bytes in handshake ACK". Its server reads what comes by RDMA into the buffer of its TCP handshake, and takes a first request that overtakes the last 4 bytes of that for a part of them; with `-connection_type=pooled` the client then crashes on a null pointer. RDMA promises no order with TCP |
| 2026-11-26 | perftest 6.29, commit 00b55b6 | the eight `ib_` programs, RC, UC, UD and XRC, with `-a`, `-b`, `-e`, `-q 64`, `-D`, `-Q`, `-R`, `-z`, `--use-srq`, and what Debian's does not have: `--data_validation`, `--write_with_imm`, `--send_with_imm`, `--cqe_poll`, `--recv_post_list`, `--odp`, `--mr_per_qp`, `--no_lock`, `--reversed`, `--use_hugepages`, `--payload_file_path`, `--flow_label`, `--ipv6-addr`, `--out_json`, `-O --report-per-port`, `--run_infinitely` | well; data validation of WRITE and READ says "PASSED", with loss, too. `--use-null-mr` is refused by the peer: it names the L_Key of a null region as an R_Key, which `ibv_alloc_null_mr` does not give. `--rate_limit_type=HW` needs an adapter that paces. Multicast goes with a GID of the group's family (`-x 1`, or `--ipv6`). Where the peer is killed, who has WRITEs or READs under way fails with "transport retry counter exceeded" within 0.3 s by memory, 2 s by UDP; a server of `ib_write_bw -R` polls on, for it reads no event of rdma_cm |
| 2026-11-26 | SPDK 26.09-pre, commit 3230130, with Debian's DPDK 22.11.11 and ISA-L 2.30, which are older than it wants: a version check, some lines of its build and one call were changed | `nvmf_tgt --no-huge` with a disk in memory; `spdk_nvme_perf` (randread, randwrite, randrw, 4 to 128 KiB, 8 queue pairs), `bdevperf -w verify` (4 and 64 KiB, which compares what it reads) | well, with loss, too. Initiator or target killed: `spdk_nvme_perf` ends with status 12 within 0.6 s, the next initiator connects; `bdevperf` connects again to a target that comes back |
| 2026-11-26 | Mooncake's transfer engine, commit 3b5a594, without CUDA | `transfer_engine_bench --metadata_server=P2PHANDSHAKE` with `--device_name=weir0` and with `--auto_discovery`, read and write, blocks of 4 KiB to 1 MiB; its `rdma_transport_test`, `rdma_transport_test2`, `rdma_loopback_test` and `rdma_large_mr_test`, which compare what they moved | well. Where the target is killed a write fails within 0.1 s by memory, 2 s by UDP. With `--auto_discovery` and no device it goes by TCP without a word; "Found 1 HCAs" says that there was one |
"""


def version_of(package):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", package], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True)
    return done.stdout or "not installed"


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def code(row):
    """Commands as one cell; a second command that only adds the server's name is shortened."""
    options = f"{row.run_options} " if row.run_options else ""
    variables = "".join(f"{name}={value} " for name, value in row.environment.items())
    shown = []
    for command in row.commands:
        command = command.replace(f"{HERE}/", "test/compat/")
        text = f"{variables}{options and 'weir run ' + options}{command}"
        if text not in shown:
            shown.append(text)
    return "<br>".join(f"`{cell(text)}`" for text in shown)


def sum_of(results):
    states = [result["status"] for _, result in results]
    return ", ".join(f"{states.count(state)} {word}" for state, word in
                     (("pass", "passed"), ("fail", "failed"), ("skip", "skipped")))


def group_table(name, results):
    row = results[0][0]
    versions = ", ".join(f"{package} {version_of(package)}" for package in row.packages)
    text = f"## {name}\n\n{versions}. {sum_of(results)}.\n\n| | program | result | proof |\n|---|---|---|---|\n"
    for row, result in results:
        outcome = result["status"]
        if outcome != "pass":
            outcome += ": " + cell(result["reason"].splitlines()[0][:160])
        proofs = "; ".join(dict.fromkeys(check.text for check in row.checks))
        text += f"| {'·' if row.quick else ''} | {code(row)} | {outcome} | {cell(proofs)} |\n"
    return text


def python_table(results):
    text = PYTHON_HEAD.format(version=version_of("python3-pyverbs"))
    files = {}
    for row, result in results:
        files.setdefault(row.name.split(".")[1], []).append((row, result))
    for name, tests in files.items():
        states = [result["status"] for _, result in tests]
        text += f"| {name}.py | {len(tests)} | {states.count('pass')} | {states.count('skip')} |" \
                f" {states.count('fail')} |\n"
    text += f"\n{len(results)} tests: {sum_of(results)}.\n"
    skips = {}
    for row, result in results:
        if result["status"] == "skip":
            reason = (result["reason"], pysuite.allowed(row.name, result["reason"]) or "")
            skips.setdefault(reason, []).append(re.sub(r"^tests\.", "", row.name))
    if skips:
        text += "\n| skipped | reason given | why |\n|---|---|---|\n"
        for (reason, why), names in skips.items():
            text += f"| {'<br>'.join(names)} | {cell(reason)} | {cell(why)} |\n"
    failures = [(row, result) for row, result in results if result["status"] == "fail"]
    for row, result in failures:
        text += f"\n- failed: {row.name}: {cell(result['reason'].splitlines()[0])}\n"
    return text


def once(results):
    """A row that ran several times counts with its worst result."""
    order = {"fail": 0, "skip": 1, "pass": 2}
    worst = {}
    for row, result in results:
        key = (row.group, row.name)
        if key not in worst or order[result["status"]] < order[worst[key][1]["status"]]:
            worst[key] = (row, result)
    return list(worst.values())


def write(path, results):
    results = once(results)
    groups = {}
    for row, result in results:
        groups.setdefault(row.group, []).append((row, result))
    text = HEAD + f"\nIn all: {sum_of(results)}.\n\n"
    for name, entries in groups.items():
        text += python_table(entries) if name == pysuite.GROUP else group_table(name, entries)
        text += "\n"
    with open(path, "w") as file:
        file.write(text.rstrip("\n") + "\n" + ABSENT)
