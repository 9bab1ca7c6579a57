/* One end of a connection of a fan-out's chain: the one that feeds. It puts the frames of a stream,
 * from where the other wants them on, as far as the other has room. */
#ifndef TOOLS_TRANSFER_FEED_H
#define TOOLS_TRANSFER_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/transfer/chain/hop.h"
#include "tools/transfer/chain/stream.h"
#include "tools/transfer/wire/link.h"

struct feed;

/* Becomes the link's user; both are borrowed. NULL: no memory. */
struct feed *feed_create(struct link *link, const struct stream *stream,
                         const uint8_t id[HOP_ID_LENGTH]);
void feed_destroy(struct feed *feed);
struct link *feed_link(const struct feed *feed);
/* Puts what there is room for. */
void feed_pump(struct feed *feed);
/* Frames before this one have been taken by all behind it. */
uint64_t feed_acked(const struct feed *feed);
/* Lends the link's memory, of this length, as long as the link is there: chunks of the stream that
 * lie in it are put without a copy. From then on all must, while there are any. NULL: it has none.
 */
void *feed_lend(struct feed *feed, size_t length);
/* A put from there is under way. */
bool feed_uses(const struct feed *feed, const void *bytes);
/* Bytes of chunks that were put. */
uint64_t feed_bytes(const struct feed *feed);
/* The other has said what it wants: the connection works. */
bool feed_has_begun(const struct feed *feed);
/* The link has closed; why. */
bool feed_is_closed(const struct feed *feed);
const char *feed_why(const struct feed *feed);

#endif
