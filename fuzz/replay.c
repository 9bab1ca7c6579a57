/* Runs a fuzz target over a corpus without libFuzzer, so that every compiler and every sanitizer
 * build sees the inputs: each whole, and each cut to all shorter lengths.
 *
 * Usage: replay DIRECTORY... A directory without inputs is an error. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

#define INPUT_MAX ((size_t)1 << 20)
#define CUTS_MAX  ((size_t)4096) /* longer inputs are cut at these lengths only */

/* An exact copy for every run, so that ASan sees a read behind the end. */
static void run(const uint8_t *bytes, size_t length)
{
    uint8_t *copy = malloc(length == 0 ? 1 : length);
    if (copy == NULL) {
        perror("malloc");
        exit(1);
    }
    memcpy(copy, bytes, length);
    LLVMFuzzerTestOneInput(copy, length);
    free(copy);
}

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = malloc(INPUT_MAX);
    if (file == NULL || bytes == NULL) {
        perror(path);
        exit(1);
    }
    size_t length = fread(bytes, 1, INPUT_MAX, file);
    fclose(file);
    for (size_t cut = 0; cut < length && cut < CUTS_MAX; cut++) {
        run(bytes, cut);
    }
    run(bytes, length);
    free(bytes);
    return 1;
}

static int replay_directory(const char *path)
{
    DIR *directory = opendir(path);
    if (directory == NULL) {
        perror(path);
        exit(1);
    }
    int count = 0;
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        char name[4096];
        if (entry->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", path, entry->d_name);
            count += replay_file(name);
        }
    }
    closedir(directory);
    return count;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        int count = replay_directory(argv[i]);
        printf("%s: %d inputs\n", argv[i], count);
        if (count == 0) {
            return 1;
        }
    }
    return argc > 1 ? 0 : 1;
}
