/* For run_test.sh: a block goes round all ranks, each adds to it and looks at what arrived. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#define WORDS  4096
#define ROUNDS 20

int main(int argc, char **argv)
{
    static unsigned block[WORDS];
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (unsigned round = 0; round < ROUNDS; round++) {
        unsigned seen = round * (unsigned)ranks + (unsigned)rank; /* additions before this one */
        if (rank != 0 || round != 0) {
            MPI_Recv(block, WORDS, MPI_UNSIGNED, (rank + ranks - 1) % ranks, 7, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        }
        for (unsigned i = 0; i < WORDS; i++) {
            if (block[i] != seen * (i + 1)) {
                printf("ring: rank %d, round %u, word %u is %u\n", rank, round, i, block[i]);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
            block[i] += i + 1;
        }
        if (rank != ranks - 1 || round != ROUNDS - 1) {
            MPI_Send(block, WORDS, MPI_UNSIGNED, (rank + 1) % ranks, 7, MPI_COMM_WORLD);
        }
    }
    if (rank == ranks - 1) {
        printf("ring: %d ranks, %d bytes, right\n", ranks, ROUNDS * ranks * (int)sizeof block);
    }
    MPI_Finalize();
    return 0;
}
