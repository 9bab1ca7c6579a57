/* Sizes, rates and times as text, and the line that is redrawn while a copy runs. */
#ifndef TOOLS_PROGRESS_H
#define TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tools/transfer/ends/report.h"

#define PROGRESS_TEXT 32

/* "17 B", "1.5 KiB", "12 GiB" */
void progress_size(uint64_t bytes, char ret_text[PROGRESS_TEXT]);
/* The same of bytes a second, which with holes can be more than there are numbers of bytes. */
void progress_rate(double value, char ret_text[PROGRESS_TEXT]);
/* "0:07", "12:34", "1:02:03" */
void progress_duration(double seconds, char ret_text[PROGRESS_TEXT]);
/* "2,000" */
void progress_count(uint64_t count, char ret_text[PROGRESS_TEXT]);

/* The rate of late: the average, in which the last seconds weigh most. */
struct progress {
    double started_s, last_s, rate;
    uint64_t last_bytes;
};

double progress_now_s(void);
void progress_start(struct progress *progress);
void progress_update(struct progress *progress, const struct tally *tally);
/* "12 of 2,000 files, 1.5 GiB of 5.0 GiB (30%), 1.2 GiB/s, 0:03 left, weir0, 12 retransmitted";
 * what is not known is left out. Where that is more than `width` bytes, parts of it go: the device
 * first, then the files, and last of all how much has come. */
void progress_line(const struct progress *progress, const struct tally *tally, const char *device,
                   size_t width, char *ret_line, size_t length);

#endif
