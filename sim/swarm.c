/* sim_swarm: runs of the simulated world, one per seed, over several processes.
 *
 * Prints `seed=N` and the violated oracle for each run that fails, and ends with 1 then. The same
 * seed replays the same run, to the last packet: --seed N --trace shows it. */
#include <errno.h>
#include <getopt.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "sim/world.h"

#define JOBS_MAX     64u
#define SECONDS_MAX  20u /* of real time for one run */
#define FAILURES_MAX 10u

struct options {
    uint64_t from, count;
    unsigned jobs;
    bool twice, quiet;
    struct run_options run;
    uint64_t failures_max; /* so many are enough */
};

/* What the workers and their parent share. */
struct board {
    uint64_t next; /* seed to run next; atomic builtins only */
    uint64_t done;
    uint64_t failures;
    uint64_t first_failure;
    struct coverage coverage[JOBS_MAX];
};

static volatile uint64_t current_seed;

static void print_failure(uint64_t seed, const char *profile, const char *violation)
{
    printf("seed=%llu profile=%s %s\n", (unsigned long long)seed, profile, violation);
    fflush(stdout);
}

/* Only write(): the process may be in any state. */
static void died(int signal)
{
    char text[96];
    const char *what =
        signal == SIGALRM ? "ends: it does not, in real time" : "crash: the run died";
    int length = snprintf(text, sizeof text, "seed=%llu profile=? %s (signal %d)\n",
                          (unsigned long long)current_seed, what, signal);
    ssize_t ignored = write(STDOUT_FILENO, text, (size_t)length);
    (void)ignored;
    _exit(3);
}

static bool run_seed(const struct options *options, uint64_t seed, struct coverage *coverage)
{
    struct run_result result, again;
    current_seed = seed;
    alarm(SECONDS_MAX);
    world_run(seed, &options->run, coverage, &result);
    if (result.ok && options->twice) {
        world_run(seed, &options->run, coverage, &again);
        if (again.hash != result.hash) {
            result.ok = false;
            snprintf(result.violation, sizeof result.violation,
                     "repeat: the same seed gave another trace");
        }
    }
    alarm(0);
    if (!result.ok) {
        print_failure(seed, result.profile, result.violation);
    } else if (options->run.trace != NULL) {
        printf("seed=%llu profile=%s hash=%016llx\n", (unsigned long long)seed, result.profile,
               (unsigned long long)result.hash);
    }
    return result.ok;
}

static void note_failure(struct board *board, uint64_t seed)
{
    __atomic_add_fetch(&board->failures, 1, __ATOMIC_SEQ_CST);
    uint64_t first = __atomic_load_n(&board->first_failure, __ATOMIC_SEQ_CST);
    while (seed < first && !__atomic_compare_exchange_n(&board->first_failure, &first, seed, false,
                                                        __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
    }
}

static void work(const struct options *options, struct board *board, unsigned job)
{
    uint64_t end = options->from + options->count;
    for (;;) {
        uint64_t seed = __atomic_fetch_add(&board->next, 1, __ATOMIC_SEQ_CST);
        bool enough = __atomic_load_n(&board->failures, __ATOMIC_SEQ_CST) >= options->failures_max;
        if (seed >= end || enough) {
            return;
        }
        if (!run_seed(options, seed, &board->coverage[job])) {
            note_failure(board, seed);
        }
        __atomic_add_fetch(&board->done, 1, __ATOMIC_SEQ_CST);
    }
}

static void catch_deaths(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGALRM};
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        signal(signals[i], died);
    }
}

static pid_t start_worker(const struct options *options, struct board *board, unsigned job)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        catch_deaths();
        work(options, board, job);
        fflush(stdout);
        _exit(0);
    }
    return pid;
}

/* A worker that died takes its seed with it; another goes on. */
static void work_in_processes(const struct options *options, struct board *board)
{
    unsigned running = 0;
    for (unsigned job = 0; job < options->jobs; job++) {
        running += start_worker(options, board, job) > 0;
    }
    while (running > 0) {
        int status;
        pid_t pid = wait(&status);
        if (pid < 0 && errno != EINTR) {
            return;
        }
        if (pid > 0 && status == 0) {
            running--;
        } else if (pid > 0) {
            note_failure(board, UINT64_MAX - 1);
            running--;
            running += start_worker(options, board, running) > 0;
        }
    }
}

static void print_coverage(const struct coverage *all, unsigned jobs)
{
    uint64_t sum[sizeof(struct coverage) / sizeof(uint64_t)] = {0};
    for (unsigned job = 0; job < jobs; job++) {
        const uint64_t *one = (const uint64_t *)&all[job];
        for (size_t i = 0; i < sizeof sum / sizeof sum[0]; i++) {
            sum[i] += one[i];
        }
    }
    struct coverage total;
    memcpy(&total, sum, sizeof total);
    printf("packets=%llu events=%llu lost=%llu corrupted=%llu duplicated=%llu delayed=%llu "
           "sink_full=%llu deaths=%llu\n",
           (unsigned long long)total.packets, (unsigned long long)total.events,
           (unsigned long long)total.lost, (unsigned long long)total.corrupted,
           (unsigned long long)total.duplicated, (unsigned long long)total.delayed,
           (unsigned long long)total.refusals, (unsigned long long)total.deaths);
    printf("retransmitted=%llu duplicate_requests=%llu rnr_naks=%llu connects=%llu "
           "disconnects=%llu overruns=%llu referred=%llu unread=%llu early=%llu reports=%llu "
           "shots=%llu reused=%llu recovered=%llu moved=%llu batches=%llu broken=%llu stale=%llu "
           "taken_back=%llu shorts=%llu posted=%llu\n",
           (unsigned long long)total.retransmitted, (unsigned long long)total.duplicates,
           (unsigned long long)total.rnr_naks, (unsigned long long)total.connects,
           (unsigned long long)total.disconnects, (unsigned long long)total.overruns,
           (unsigned long long)total.referred, (unsigned long long)total.unread,
           (unsigned long long)total.early, (unsigned long long)total.reports,
           (unsigned long long)total.shots, (unsigned long long)total.reused,
           (unsigned long long)total.recovered, (unsigned long long)total.moved,
           (unsigned long long)total.batches, (unsigned long long)total.broken,
           (unsigned long long)total.stale, (unsigned long long)total.taken_back,
           (unsigned long long)total.shorts, (unsigned long long)total.posted);
    static const char *const kinds[WORK_KIND_COUNT] = {
        [WORK_SEND] = "send",
        [WORK_SEND_IMMEDIATE] = "send_immediate",
        [WORK_SEND_INVALIDATE] = "send_invalidate",
        [WORK_WRITE] = "write",
        [WORK_WRITE_IMMEDIATE] = "write_immediate",
        [WORK_READ] = "read",
        [WORK_COMPARE_SWAP] = "compare_swap",
        [WORK_FETCH_ADD] = "fetch_add",
        [WORK_ATOMIC_WRITE] = "atomic_write",
        [WORK_LOCAL_INVALIDATE] = "local_invalidate",
        [WORK_BIND_WINDOW] = "bind_window",
    };
    printf("done:");
    for (unsigned i = 0; i < WORK_KIND_COUNT; i++) {
        printf(" %s=%llu", kinds[i], (unsigned long long)total.done[i]);
    }
    printf(" received=%llu datagrams=%llu unreliable=%llu\nfailed:",
           (unsigned long long)total.received, (unsigned long long)total.datagrams,
           (unsigned long long)total.unreliable);
    for (unsigned i = 1; i < COMPLETION_STATUS_COUNT; i++) {
        if (total.failed[i] > 0) {
            printf(" %s=%llu", completion_status_name((enum completion_status)i),
                   (unsigned long long)total.failed[i]);
        }
    }
    printf("\n");
}

static int usage(void)
{
    fprintf(
        stderr,
        "usage: sim_swarm [--seeds FROM COUNT] [--seed N] [--fresh COUNT] [--jobs N]\n"
        "                 [--profile NAME] [--lossy A>B=PER_MILLION]\n"
        "                 [--selective] [--trace] [--twice] [--quiet] [--first | --keep-going]\n");
    return 2;
}

/* "A>B=20000": of a million frames from A to B so many are lost, and none elsewhere. */
static bool parse_lossy(const char *text, struct run_options *options)
{
    char from, to;
    unsigned loss;
    if (sscanf(text, "%c>%c=%u", &from, &to, &loss) != 3 || from < 'A' || to < 'A' ||
        from >= 'A' + (int)HOST_MAX || to >= 'A' + (int)HOST_MAX) {
        return false;
    }
    options->lossy_from = (unsigned)(from - 'A');
    options->lossy_to = (unsigned)(to - 'A');
    options->loss = loss;
    return true;
}

/* One option; "--seeds" takes the next argument too. */
static bool take_option(int choice, int argc, char **argv, struct options *options)
{
    switch (choice) {
    case 's':
        if (optind >= argc) {
            return false;
        }
        options->from = strtoull(optarg, NULL, 0);
        options->count = strtoull(argv[optind++], NULL, 0);
        return true;
    case 'n':
        options->from = strtoull(optarg, NULL, 0);
        options->count = 1;
        return true;
    case 'f':
        options->from = (uint64_t)time(NULL) * 1000003u;
        options->count = strtoull(optarg, NULL, 0);
        return true;
    case 'j':
        options->jobs = (unsigned)strtoul(optarg, NULL, 0);
        return options->jobs >= 1 && options->jobs <= JOBS_MAX;
    case 'p':
        options->run.profile = optarg;
        return world_has_profile(optarg);
    case 'l':
        return parse_lossy(optarg, &options->run);
    case 't':
        options->run.trace = stdout;
        return true;
    case '2':
        options->twice = true;
        return true;
    case 'e':
        options->run.selective = true;
        return true;
    case 'q':
        options->quiet = true;
        return true;
    case 'k':
        options->failures_max = UINT64_MAX;
        return true;
    case '1':
        options->failures_max = 1;
        return true;
    default:
        return false;
    }
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    static const struct option names[] = {
        {"seeds", required_argument, NULL, 's'},
        {"seed", required_argument, NULL, 'n'},
        {"fresh", required_argument, NULL, 'f'},
        {"jobs", required_argument, NULL, 'j'},
        {"profile", required_argument, NULL, 'p'},
        {"lossy", required_argument, NULL, 'l'},
        {"trace", no_argument, NULL, 't'},
        {"twice", no_argument, NULL, '2'},
        {"selective", no_argument, NULL, 'e'},
        {"quiet", no_argument, NULL, 'q'},
        {"keep-going", no_argument, NULL, 'k'},
        {"first", no_argument, NULL, '1'},
        {NULL, 0, NULL, 0},
    };
    int choice;
    while ((choice = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (!take_option(choice, argc, argv, options)) {
            return false;
        }
    }
    return optind == argc;
}

int main(int argc, char **argv)
{
    struct options options = {.from = 1, .count = 1000, .jobs = 2, .failures_max = FAILURES_MAX};
    if (!parse_options(argc, argv, &options)) {
        return usage();
    }
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror("sim_swarm");
        return 2;
    }
    board->next = options.from;
    board->first_failure = UINT64_MAX;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    printf("seeds %llu to %llu\n", (unsigned long long)options.from,
           (unsigned long long)(options.from + options.count - 1));
    if (options.run.trace != NULL || options.count == 1) {
        catch_deaths();
        work(&options, board, 0);
    } else {
        work_in_processes(&options, board);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    if (!options.quiet) {
        print_coverage(board->coverage, options.jobs);
    }
    printf("%llu runs, %llu violations, %.1f s, %.0f seeds/s\n", (unsigned long long)board->done,
           (unsigned long long)board->failures, seconds, (double)board->done / seconds);
    return board->failures == 0 ? 0 : 1;
}
