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

/* The device, and what it had to send again. */
static void name_carrier(const struct tally *tally, const char *device, char *ret_text,
                         size_t length)
{
    char count[PROGRESS_TEXT];
    progress_count(tally->retransmissions, count);
    if (tally->retransmissions_known) {
        snprintf(ret_text, length, "%.80s, %s retransmitted", device, count);
    } else {
        snprintf(ret_text, length, "%.80s", device);
    }
}

void progress_line(const struct progress *progress, const struct tally *tally, const char *device,
                   char *ret_line, size_t length)
{
    char files[PROGRESS_TEXT], bytes[PROGRESS_TEXT], rate[PROGRESS_TEXT];
    char carrier[128];
    name_carrier(tally, device, carrier, sizeof(carrier));
    progress_count(tally->files, files);
    progress_size(tally->bytes, bytes);
    progress_rate(progress->rate, rate);
    if (!tally->totals_known) {
        snprintf(ret_line, length, "%s files, %s, %s/s, %s", files, bytes, rate, carrier);
        return;
    }
    char total_files[PROGRESS_TEXT], total_bytes[PROGRESS_TEXT], left[PROGRESS_TEXT] = "?";
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
    snprintf(ret_line, length, "%s of %s files, %s of %s (%u%%), %s/s, %s left, %s", files,
             total_files, bytes, total_bytes, percent, rate, left, carrier);
}

void progress_fit(char *line, size_t width)
{
    if (strlen(line) <= width) {
        return;
    }
    for (size_t end = width; end > 0; end--) {
        if (strncmp(line + end, ", ", 2) == 0) {
            line[end] = 0;
            return;
        }
    }
    line[width] = 0;
}
