#include "test/captures/pcap.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC_MICROSECONDS UINT32_C(0xa1b2c3d4)
#define MAGIC_NANOSECONDS  UINT32_C(0xa1b23c4d)
#define FILE_HEADER_LENGTH 24u
#define FRAME_HEADER       16u
#define LINK_ETHERNET      1u

struct layout {
    bool swapped;
    uint32_t fraction_ns;
};

static uint32_t load(const uint8_t *bytes, bool swapped)
{
    uint32_t value;
    memcpy(&value, bytes, sizeof value);
    return swapped ? __builtin_bswap32(value) : value;
}

static const char *read_layout(const uint8_t *file, size_t length, struct layout *ret_layout)
{
    if (length < FILE_HEADER_LENGTH) {
        return "shorter than a file header";
    }
    for (int swapped = 0; swapped < 2; swapped++) {
        uint32_t magic = load(file, swapped != 0);
        if (magic == MAGIC_MICROSECONDS || magic == MAGIC_NANOSECONDS) {
            *ret_layout = (struct layout){swapped != 0, magic == MAGIC_NANOSECONDS ? 1 : 1000};
            return load(file + 20, swapped != 0) == LINK_ETHERNET ? NULL : "not of Ethernet";
        }
    }
    return "not a pcap file";
}

static const char *read_frames(const uint8_t *file, size_t length, const struct layout *layout,
                               struct pcap *pcap)
{
    size_t at = FILE_HEADER_LENGTH;
    while (at < length) {
        if (length - at < FRAME_HEADER) {
            return "ends within a frame's header";
        }
        const uint8_t *header = file + at;
        uint32_t captured = load(header + 8, layout->swapped);
        if (captured != load(header + 12, layout->swapped)) {
            return "holds a frame that was cut";
        }
        at += FRAME_HEADER;
        if (length - at < captured) {
            return "ends within a frame";
        }
        pcap->frames[pcap->count++] = (struct pcap_frame){
            .time_ns = load(header, layout->swapped) * UINT64_C(1000000000) +
                       (uint64_t)load(header + 4, layout->swapped) * layout->fraction_ns,
            .bytes = file + at,
            .length = captured,
        };
        at += captured;
    }
    return NULL;
}

static uint8_t *read_whole(const char *path, size_t *ret_length)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        return NULL;
    }
    uint8_t *bytes = NULL;
    long length = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (length >= 0) {
        rewind(file);
        bytes = malloc((size_t)length + 1);
    }
    if (bytes != NULL && fread(bytes, 1, (size_t)length, file) != (size_t)length) {
        free(bytes);
        bytes = NULL;
    }
    (void)fclose(file);
    *ret_length = (size_t)length;
    return bytes;
}

const char *pcap_read(const char *path, struct pcap *ret_pcap)
{
    size_t length;
    struct pcap pcap = {.file = read_whole(path, &length)};
    if (pcap.file == NULL) {
        return "cannot be read";
    }
    struct layout layout;
    const char *wrong = read_layout(pcap.file, length, &layout);
    if (wrong == NULL) {
        pcap.frames = calloc(length / FRAME_HEADER + 1, sizeof *pcap.frames);
        wrong = pcap.frames == NULL ? "too long for memory"
                                    : read_frames(pcap.file, length, &layout, &pcap);
    }
    if (wrong != NULL) {
        pcap_free(&pcap);
        return wrong;
    }
    *ret_pcap = pcap;
    return NULL;
}

void pcap_free(struct pcap *pcap)
{
    free(pcap->frames);
    free(pcap->file);
}
