#include "sim/seeds.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "rnic/base/check.h"

#define JOBS_MAX     64u
#define SECONDS_MAX  20u /* of real time for one run */
#define FAILURES_MAX 10u
#define OPTIONS_MAX  32u

struct options {
    uint64_t from, count;
    unsigned jobs;
    bool twice, quiet;
    FILE *trace;           /* NULL: none */
    uint64_t failures_max; /* so many are enough */
    const struct seeds_program *program;
};

/* What the workers and their parent share. */
struct board {
    uint64_t next; /* seed to run next; atomic builtins only */
    uint64_t done;
    uint64_t failures;
    uint64_t first_failure;
    uint64_t counts[JOBS_MAX][SEEDS_COUNTS_MAX];
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

static bool run_seed(const struct options *options, uint64_t seed, uint64_t *counts)
{
    struct run_result result, again;
    current_seed = seed;
    alarm(SECONDS_MAX);
    options->program->run(seed, options->trace, counts, &result);
    if (result.ok && options->twice) {
        options->program->run(seed, options->trace, counts, &again);
        if (again.hash != result.hash) {
            result.ok = false;
            snprintf(result.violation, sizeof result.violation,
                     "repeat: the same seed gave another trace");
        }
    }
    alarm(0);
    if (!result.ok) {
        print_failure(seed, result.profile, result.violation);
    } else if (options->trace != NULL) {
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
        if (!run_seed(options, seed, board->counts[job])) {
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

static void print_counts(const struct board *board, const struct options *options)
{
    uint64_t sums[SEEDS_COUNTS_MAX] = {0};
    for (unsigned job = 0; job < options->jobs; job++) {
        for (unsigned i = 0; i < options->program->counts; i++) {
            sums[i] += board->counts[job][i];
        }
    }
    options->program->print(sums);
}

static int usage(const char *name, const struct seeds_program *program)
{
    fprintf(stderr,
            "usage: %s [--seeds FROM COUNT] [--seed N] [--fresh COUNT] [--jobs N]\n"
            "       [--trace] [--twice] [--quiet] [--first | --keep-going]%s\n",
            name, program->usage);
    return 2;
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
    case 't':
        options->trace = stdout;
        return true;
    case '2':
        options->twice = true;
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
        return choice > 127 && options->program->take_option(choice, optarg);
    }
}

static bool parse_options(int argc, char **argv, struct options *options)
{
    static const struct option common[] = {
        {"seeds", required_argument, NULL, 's'}, {"seed", required_argument, NULL, 'n'},
        {"fresh", required_argument, NULL, 'f'}, {"jobs", required_argument, NULL, 'j'},
        {"trace", no_argument, NULL, 't'},       {"twice", no_argument, NULL, '2'},
        {"quiet", no_argument, NULL, 'q'},       {"keep-going", no_argument, NULL, 'k'},
        {"first", no_argument, NULL, '1'},
    };
    struct option names[OPTIONS_MAX] = {{0}};
    memcpy(names, common, sizeof common);
    uint32_t count = sizeof common / sizeof common[0];
    for (const struct option *own = options->program->options; own != NULL && own->name != NULL;
         own++) {
        CHECK(count + 1 < OPTIONS_MAX);
        names[count++] = *own;
    }
    int choice;
    while ((choice = getopt_long(argc, argv, "", names, NULL)) != -1) {
        if (!take_option(choice, argc, argv, options)) {
            return false;
        }
    }
    return optind == argc;
}

int seeds_main(int argc, char **argv, const struct seeds_program *program)
{
    CHECK(program->counts <= SEEDS_COUNTS_MAX);
    struct options options = {
        .from = 1, .count = 1000, .jobs = 2, .failures_max = FAILURES_MAX, .program = program};
    if (!parse_options(argc, argv, &options)) {
        return usage(argv[0], program);
    }
    struct board *board =
        mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED) {
        perror(argv[0]);
        return 2;
    }
    board->next = options.from;
    board->first_failure = UINT64_MAX;
    struct timespec start, end;
    clock_gettime(CLOCK_MONOTONIC, &start);
    printf("seeds %llu to %llu\n", (unsigned long long)options.from,
           (unsigned long long)(options.from + options.count - 1));
    if (options.trace != NULL || options.count == 1) {
        catch_deaths();
        work(&options, board, 0);
    } else {
        work_in_processes(&options, board);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds =
        (double)(end.tv_sec - start.tv_sec) + (double)(end.tv_nsec - start.tv_nsec) / 1e9;
    if (!options.quiet) {
        print_counts(board, &options);
    }
    printf("%llu runs, %llu violations, %.1f s, %.0f seeds/s\n", (unsigned long long)board->done,
           (unsigned long long)board->failures, seconds, (double)board->done / seconds);
    return board->failures == 0 ? 0 : 1;
}
