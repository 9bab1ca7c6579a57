/* How frames are written in a trace: "A>B WRITE_FIRST psn=7", "B>A NAK sequence psn=8",
 * "A>B REQ". Names are the opcode table's, without the service; UC and UD are said in front. */
#ifndef WEIR_SIM_DESCRIBE_H
#define WEIR_SIM_DESCRIBE_H

#include <stddef.h>

#include "sim/network.h"

#define DESCRIPTION_MAX 160u

/* The text without time and fate. `detail` adds the queue pair and the headers' fields. */
void describe_bytes(unsigned from, unsigned to, const uint8_t *bytes, uint32_t length, bool detail,
                    char ret_text[DESCRIPTION_MAX]);

/* One line in the trace, if one is kept. */
void describe_frame(struct simulator *simulator, const struct frame *frame, enum fate fate);

#endif
