#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/transfer/ends/receiver_private.h"

/* Storage holds what was written, and memory no more: what is read now comes from there, as far as
 * there is a difference. 0 or an errno. */
static int drop(const struct place *place)
{
    return fdatasync(place->fd) != 0 ? errno : posix_fadvise(place->fd, 0, 0, POSIX_FADV_DONTNEED);
}

int receiver_read_back(struct receiver *receiver, const struct place *place,
                       const struct span *data)
{
    int error = drop(place);
    size_t done = 0;
    while (error == 0 && done < data->length) {
        ssize_t count = pread(place->fd, receiver->stored + done, data->length - done, (off_t)done);
        if (count < 0) {
            error = errno;
        } else if (count == 0) { /* zeros at its end that were left out */
            memset(receiver->stored + done, 0, data->length - done);
            done = data->length;
        } else {
            done += (size_t)count;
        }
    }
    bool same = error == 0 && memcmp(receiver->stored, data->bytes, data->length) == 0;
    return error != 0 || same ? error : EBADMSG;
}

void receiver_note_piece(struct receiver *receiver, const struct piece *piece)
{
    struct verifying *verifying = &receiver->verifying;
    if (!receiver_wishes(receiver, WISH_VERIFY) || verifying->overflow) {
        return;
    }
    if (verifying->count == verifying->capacity) {
        unsigned capacity = verifying->capacity > 0 ? 2 * verifying->capacity : 64;
        struct piece *list = capacity <= READ_BACK_PIECES_MAX
                                 ? realloc(verifying->list, capacity * sizeof(*list))
                                 : NULL;
        verifying->overflow = list == NULL;
        if (list == NULL) {
            return;
        }
        verifying->list = list;
        verifying->capacity = capacity;
    }
    verifying->list[verifying->count++] = *piece;
    /* so that there is less to wait for at the end */
    sync_file_range(receiver->file.place.fd, (off_t)piece->offset, (off_t)piece->length,
                    SYNC_FILE_RANGE_WRITE);
}

void receiver_forget_pieces(struct receiver *receiver)
{
    free(receiver->verifying.list);
    receiver->verifying = (struct verifying){0};
}

int receiver_begin_verifying(struct receiver *receiver)
{
    if (receiver->verifying.overflow) {
        return E2BIG;
    }
    receiver->state = RECEIVER_VERIFYING;
    int error = place_cut(&receiver->file.place, receiver->file.size); /* zeros at its end, too */
    return error != 0 ? error : drop(&receiver->file.place);
}

/* What is in the file between two pieces is a hole of the source. Up to READ_BACK_AT_ONCE bytes of
 * it. 0 or an errno; EBADMSG: there is something. */
static int read_hole_back(struct receiver *receiver, uint64_t *at, uint64_t end)
{
    int fd = receiver->file.place.fd;
    for (uint64_t done = 0; *at < end && done < READ_BACK_AT_ONCE;) {
        off_t data = lseek(fd, (off_t)*at, SEEK_DATA);
        if ((data < 0 && errno == ENXIO) || (data >= 0 && (uint64_t)data >= end)) {
            *at = end;
            return 0;
        }
        *at = data >= 0 ? (uint64_t)data : *at; /* or the file system does not tell holes */
        size_t length = end - *at < CACHED_LENGTH ? (size_t)(end - *at) : CACHED_LENGTH;
        ssize_t count = pread(fd, receiver->stored, length, (off_t)*at);
        if (count <= 0 || receiver->stored[0] != 0 ||
            memcmp(receiver->stored, receiver->stored + 1, (size_t)count - 1) != 0) {
            return count < 0 ? errno : EBADMSG;
        }
        *at += (size_t)count;
        done += (size_t)count;
    }
    return 0;
}

/* The same of the next piece; EBADMSG: it is not right. */
static int read_piece_back(struct receiver *receiver)
{
    struct verifying *verifying = &receiver->verifying;
    const struct piece *piece = &verifying->list[verifying->next];
    enum reading reading = receiver_read_piece(receiver, piece, &verifying->read);
    if (reading == READS_RIGHT) {
        verifying->at = piece->offset + piece->length;
        verifying->next++;
        verifying->read = 0;
    }
    return reading == READS_NOT ? errno : reading == READS_WRONG ? EBADMSG : 0;
}

bool receiver_verify(struct receiver *receiver)
{
    struct verifying *verifying = &receiver->verifying;
    bool last = verifying->next == verifying->count;
    uint64_t begin = last ? receiver->file.size : verifying->list[verifying->next].offset;
    int error = 0;
    receiver_say_alive(receiver);
    if (verifying->at < begin) {
        error = read_hole_back(receiver, &verifying->at, begin);
    } else if (!last) {
        error = read_piece_back(receiver);
    } else {
        receiver_end_file(receiver, 0);
        return false;
    }
    if (error != 0) {
        receiver_end_file(receiver, error);
    }
    return error == 0;
}
