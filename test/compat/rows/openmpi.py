"""Open MPI over three ways to verbs: UCX, libfabric, and its own openib."""
import os

from model import Evidence, Row, line, wire
from stage import bytes_carried

GROUP = "Open MPI"

# Two errors of Open MPI 4.1 that ASan finds wherever it is loaded, and that are kept out of its sight here:
# - btl_openib never sets its device's count of users before it increments it, so it counts on malloc
#   giving zeroes. If not, the device is never released, and MPI_Finalize calls into the unloaded component:
#   on plain libraries, too, with -x GLIBC_TUNABLES=glibc.malloc.tcache_count=0:glibc.malloc.perturb=85.
# - mpirun reads a help message after it has freed it (pmix_server_log_fn): with ASan's runtime alone,
#   and no library of ours, with --mca btl tcp,self --mca btl_tcp_if_include nonexist,lo.
OPEN_MPI_ERRORS = {"ASAN_OPTIONS": "malloc_fill_byte=0",
                   "OMPI_MCA_btl_openib_warn_no_device_params_found": "0"}
PACKAGES = ["openmpi-bin", "libopenmpi3"]
SOURCE = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mpi_check.c")
MPIRUN = "mpirun.openmpi -np 4 --oversubscribe --allow-run-as-root"


def row(name, options, quick=False, run_options="", environment=None, least=10000000, mpirun=MPIRUN,
        compiler="mpicc.openmpi", sanitized_environment=None):
    command = " ".join(f"{mpirun} {options} ./mpi_check".split())

    def body(stage):
        stage.run(f"{compiler} -O1 -o mpi_check {SOURCE}", native=True)
        before = bytes_carried(stage)
        done = stage.run(command)
        return Evidence([done], bytes_carried(stage) - before)
    return Row(name, [command],
               [*[line(f"^checked {pattern} {size}$") for pattern in ("ring", "allreduce", "alltoall")
                  for size in (1, 1000, 100000)], wire(least)],
               body=body, quick=quick, run_options=run_options, timeout_s=90,
               environment=environment or {}, programs=[mpirun.split()[0], compiler],
               paths="ofi" not in options, sanitized_environment=sanitized_environment or {})


ROWS = [
    row("pml ucx, rc_verbs", "--mca pml ucx -x UCX_TLS=rc_verbs,ud_verbs,self -x UCX_NET_DEVICES=weir0:1",
        quick=True),
    row("pml ucx, ud_verbs", "--mca pml ucx -x UCX_TLS=ud_verbs,self -x UCX_NET_DEVICES=weir0:1"),
    row("mtl ofi, verbs;ofi_rxm", "--mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include 'verbs;ofi_rxm'",
        quick=True),
    row("btl openib", "--mca pml ob1 --mca btl openib,self --mca btl_openib_allow_ib 1",
        run_options="--link-layer infiniband", sanitized_environment=OPEN_MPI_ERRORS),
]
