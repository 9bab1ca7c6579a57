/* The words of WEIR_DEVICES, as text alone: what devices.c makes devices of.
 *
 * Here: pure functions, which cut up what they are given. Not here: which names and ports may
 * follow each other. */
#ifndef WEIR_VERBS_DEVICES_TEXT_H
#define WEIR_VERBS_DEVICES_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#define DEVICES_MAX 16u
#define PORTS_MAX   4u

/* NAME[:PORT][=PLACE[+PLACE]...]. Texts point into the list. */
struct device_words {
    const char *name; /* letters, digits, '_' and '-', at most 63 */
    uint32_t port;    /* 1 where none is named */
    const char *places;
};

/* Takes the first entry off *list, which is NULL after the last one. False: not as above. */
bool devices_text_next(char **list, struct device_words *ret_words);
/* A number from 1 to `most`; 0: it is none. */
uint32_t devices_text_number(const char *digits, uint32_t most);

#endif
