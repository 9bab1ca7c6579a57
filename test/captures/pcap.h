/* Capture files: classic pcap with Ethernet frames, read whole and written frame by frame. */
#ifndef WEIR_TEST_CAPTURES_PCAP_H
#define WEIR_TEST_CAPTURES_PCAP_H

#include <stdint.h>
#include <stdio.h>

struct pcap_frame {
    uint64_t time_ns;
    const uint8_t *bytes; /* from the Ethernet header on; borrowed from the file */
    uint32_t length;
};

struct pcap {
    uint8_t *file;
    struct pcap_frame *frames;
    uint32_t count;
};

/* NULL, or what is wrong with the file, static; *ret_pcap is untouched then. Files of either byte
 * order, with microseconds or nanoseconds; a frame that was cut when it was recorded is wrong. */
const char *pcap_read(const char *path, struct pcap *ret_pcap);
void pcap_free(struct pcap *pcap);

#endif
