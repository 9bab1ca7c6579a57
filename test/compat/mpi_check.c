/* Three patterns of MPI whose results every rank checks: a ring, an allreduce, an alltoall.
 * Prints "checked NAME N" once per pattern, by rank 0; aborts at the first wrong value. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int rank, ranks;

static void require(int right, const char *pattern, int size)
{
    if (!right) {
        fprintf(stderr, "rank %d: wrong result of %s, %d elements\n", rank, pattern, size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
}

static void say(const char *pattern, int size)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        printf("checked %s %d\n", pattern, size);
        fflush(stdout);
    }
}

/* Each rank adds its number to every element on the way round. */
static void ring(int size)
{
    int *data = calloc((size_t)size, sizeof(int));
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    if (rank != 0) {
        MPI_Recv(data, size, MPI_INT, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < size; i++) {
        data[i] += rank + (rank == 0 ? i : 0);
    }
    MPI_Request request;
    MPI_Isend(data, size, MPI_INT, to, 7, MPI_COMM_WORLD, &request);
    if (rank == 0) {
        int *back = calloc((size_t)size, sizeof(int));
        MPI_Recv(back, size, MPI_INT, from, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < size; i++) {
            require(back[i] == i + ranks * (ranks - 1) / 2, "ring", size);
        }
        free(back);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    free(data);
    say("ring", size);
}

static void allreduce(int size)
{
    long *mine = calloc((size_t)size, sizeof(long));
    long *sum = calloc((size_t)size, sizeof(long));
    for (int i = 0; i < size; i++) {
        mine[i] = (long)i * (rank + 1);
    }
    MPI_Allreduce(mine, sum, size, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < size; i++) {
        require(sum[i] == (long)i * ranks * (ranks + 1) / 2, "allreduce", size);
    }
    free(mine);
    free(sum);
    say("allreduce", size);
}

static void alltoall(int size)
{
    int *out = calloc((size_t)size * (size_t)ranks, sizeof(int));
    int *in = calloc((size_t)size * (size_t)ranks, sizeof(int));
    for (int i = 0; i < size * ranks; i++) {
        out[i] = rank * 1000000 + i;
    }
    MPI_Alltoall(out, size, MPI_INT, in, size, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < size * ranks; i++) {
        require(in[i] == (i / size) * 1000000 + rank * size + i % size, "alltoall", size);
    }
    free(out);
    free(in);
    say("alltoall", size);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 1000, 100000};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ring(sizes[i]);
        allreduce(sizes[i]);
        alltoall(sizes[i]);
    }
    MPI_Finalize();
    return 0;
}
