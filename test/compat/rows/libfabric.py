"""libfabric: the verbs provider and the layers above it, with the pingpong's data check on (-c)."""
from model import Row, line, proof

GROUP = "libfabric"
PACKAGES = ["libfabric-bin", "libfabric1"]


def pingpong(provider, endpoint, options="", sizes=5, quick=False):
    command = f"fi_pingpong -p '{provider}' -e {endpoint} -c {options}".strip()
    rows = line(r"^\d+[km]? +\d+ +=\d+ +[0-9.]+[km]? +[0-9.]+s", times=sizes, text="size: all acknowledged")
    return Row(f"fi_pingpong {provider} {endpoint} {options}".strip(), [command, f"{command} 127.0.0.1"],
               [rows, proof("fi_pingpong compares the data (-c)")], quick=quick, timeout_s=60)


ROWS = [
    Row("fi_info verbs", ["fi_info -p verbs"],
        [line("domain: weir0"), line("type: FI_EP_MSG"), line("type: FI_EP_DGRAM"),
         line("provider: verbs;ofi_rxm"), line("provider: verbs;ofi_rxd")], quick=True),
    Row("fi_info verbs, in detail", ["fi_info -v -p verbs -t FI_EP_MSG"],
        [line(r"inject_size: [1-9]"), line(r"max_msg_size: [1-9]"), line("FI_RMA")]),
    pingpong("verbs", "msg", sizes=6, quick=True),
    pingpong("verbs", "msg", "-S 65536 -I 200", 1),
    pingpong("verbs;ofi_rxm", "rdm", sizes=6, quick=True),
    pingpong("verbs;ofi_rxm", "rdm", "-m tagged", 6),
    pingpong("verbs;ofi_rxm", "rdm", "-S 1048576 -I 50", 1),
    pingpong("verbs;ofi_rxd", "rdm", sizes=6, quick=True),
    pingpong("verbs;ofi_rxd", "rdm", "-m tagged", 6),
    pingpong("verbs", "dgram", sizes=3, quick=True),
    pingpong("verbs", "dgram", "-S 1024 -I 200", 1),
]
