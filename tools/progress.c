#include "tools/progress.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

void progress_rate(double value, char ret_text[PROGRESS_TEXT])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0])) {
        value /= 1024;
        unit++;
    }
    snprintf(ret_text, PROGRESS_TEXT, unit > 0 && value < 99.95 ? "%.1f %s" : "%.0f %s", value,
             units[unit]);
}

void progress_size(uint64_t bytes, char ret_text[PROGRESS_TEXT])
{
    progress_rate((double)bytes, ret_text);
}

void progress_duration(double seconds, char ret_text[PROGRESS_TEXT])
{
    uint64_t whole = seconds > 0 && seconds < 1e9 ? (uint64_t)seconds : 0;
    unsigned minutes = (unsigned)(whole / 60 % 60), rest = (unsigned)(whole % 60);
    if (whole >= 3600) {
        snprintf(ret_text, PROGRESS_TEXT, "%llu:%02u:%02u", (unsigned long long)(whole / 3600),
                 minutes, rest);
    } else {
        snprintf(ret_text, PROGRESS_TEXT, "%u:%02u", minutes, rest);
    }
}

void progress_count(uint64_t count, char ret_text[PROGRESS_TEXT])
{
    char digits[24];
    int length = snprintf(digits, sizeof(digits), "%llu", (unsigned long long)count);
    size_t at = 0;
    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            ret_text[at++] = ',';
        }
        ret_text[at++] = digits[i];
    }
    ret_text[at] = 0;
}

double progress_now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

void progress_start(struct progress *progress)
{
    *progress = (struct progress){0};
    progress->started_s = progress->last_s = progress_now_s();
}

void progress_update(struct progress *progress, const struct tally *tally)
{
    double now = progress_now_s();
    double passed = now - progress->last_s;
    if (passed <= 0) {
        return;
    }
    uint64_t bytes = tally->bytes > progress->last_bytes ? tally->bytes - progress->last_bytes : 0;
    double rate = (double)bytes / passed;
    double since = now - progress->started_s; /* until then it is the average of all */
    double weight = passed / (since < passed + 3 ? since : passed + 3);
    progress->rate += weight * (rate - progress->rate);
    progress->last_s = now;
    progress->last_bytes = tally->bytes;
}

/* Parts of the line as they stand, and the order in which they go where it is narrow: how much has
 * come and how fast stays, and what went wrong on the way outlives what was known before. */
enum part {
    PART_FILES,
    PART_BYTES,
    PART_RATE,
    PART_LEFT,
    PART_DEVICE,
    PART_AGAIN,
    PART_COUNT,
};
static const enum part dispensable[] = {PART_DEVICE, PART_FILES, PART_AGAIN, PART_LEFT, PART_RATE};

struct parts {
    char text[PART_COUNT][4 * PROGRESS_TEXT]; /* "": there is none */
};

/* Of what is to come: files, bytes and time. */
static void tell_totals(const struct progress *progress, const struct tally *tally,
                        struct parts *parts)
{
    char files[PROGRESS_TEXT], bytes[PROGRESS_TEXT], left[PROGRESS_TEXT] = "?";
    char total_files[PROGRESS_TEXT], total_bytes[PROGRESS_TEXT];
    progress_count(tally->total_files, total_files);
    progress_size(tally->total_bytes, total_bytes);
    uint64_t done = tally->bytes + tally->spared;
    if (progress->rate >= 1 && tally->total_bytes >= done) {
        progress_duration((double)(tally->total_bytes - done) / progress->rate, left);
    }
    /* devices and FIFOs are not in the total, and who sends does not see which of `same` are links
     */
    uint64_t seen = tally->files + tally->same + tally->left;
    progress_count(seen < tally->total_files ? seen : tally->total_files, files);
    progress_size(done, bytes);
    unsigned percent = tally->total_bytes > done
                           ? (unsigned)(100 * (double)done / (double)tally->total_bytes)
                           : 100;
    snprintf(parts->text[PART_FILES], sizeof(parts->text[0]), "%s of %s files", files, total_files);
    snprintf(parts->text[PART_BYTES], sizeof(parts->text[0]), "%s of %s (%u%%)", bytes, total_bytes,
             percent);
    snprintf(parts->text[PART_LEFT], sizeof(parts->text[0]), "%s left", left);
}

static void join(const struct parts *parts, char *ret_line, size_t length)
{
    size_t used = 0;
    ret_line[0] = 0;
    for (unsigned i = 0; i < PART_COUNT; i++) {
        if (parts->text[i][0] != 0 && used < length) {
            used += (size_t)snprintf(ret_line + used, length - used, "%s%s", used > 0 ? ", " : "",
                                     parts->text[i]);
        }
    }
}

void progress_line(const struct progress *progress, const struct tally *tally, const char *device,
                   size_t width, char *ret_line, size_t length)
{
    struct parts parts = {0};
    char number[PROGRESS_TEXT];
    progress_count(tally->files, number);
    snprintf(parts.text[PART_FILES], sizeof(parts.text[0]), "%s files", number);
    progress_size(tally->bytes, parts.text[PART_BYTES]);
    progress_rate(progress->rate, number);
    snprintf(parts.text[PART_RATE], sizeof(parts.text[0]), "%s/s", number);
    snprintf(parts.text[PART_DEVICE], sizeof(parts.text[0]), "%.80s", device);
    if (tally->retransmissions_known) {
        progress_count(tally->retransmissions, number);
        snprintf(parts.text[PART_AGAIN], sizeof(parts.text[0]), "%s retransmitted", number);
    }
    if (tally->totals_known) {
        tell_totals(progress, tally, &parts);
    }
    join(&parts, ret_line, length);
    for (size_t i = 0; i < sizeof(dispensable) / sizeof(dispensable[0]); i++) {
        if (strlen(ret_line) > width) {
            parts.text[dispensable[i]][0] = 0;
            join(&parts, ret_line, length);
        }
    }
}
