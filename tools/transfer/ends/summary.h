/* What a receiver says at its end, as who sends to it counts it. */
#ifndef TOOLS_TRANSFER_SUMMARY_H
#define TOOLS_TRANSFER_SUMMARY_H

#include <stdint.h>

#include "tools/transfer/ends/report.h"

/* `message` is of MESSAGE_SUMMARY. How many entries it accounts for, failures not counted. */
uint64_t summary_entries(const struct message *message);
/* Into the tally; of failures the greater number counts, for some are known here only. */
void summary_take(const struct message *message, struct tally *tally);

#endif
