#include "rnic/io/senders.h"

#define SMALL_LIMIT 64u /* of identifications: the longest segmented send */
#define HABIT       16u /* so many small ones are no chance: for random ones 2^-160 */
#define CHANGE      8u  /* so many others in a row are no damage: somebody else has the address */

bool senders_believe(struct senders *senders, const struct gid *sender, uint16_t identification)
{
    uint32_t hash = 0;
    for (uint32_t i = 0; i < sizeof sender->bytes; i++) {
        hash = hash * 31 + sender->bytes[i];
    }
    uint32_t at = hash % SENDERS_PLACES;
    if (!gid_equal(&senders->places[at].gid, sender)) {
        senders->places[at].gid = *sender;
        senders->places[at].small = senders->places[at].large = 0;
    }
    if (identification < SMALL_LIMIT) {
        senders->places[at].small += senders->places[at].small < HABIT;
        senders->places[at].large = 0;
        return true;
    }
    if (senders->places[at].small == HABIT && ++senders->places[at].large < CHANGE) {
        return false;
    }
    senders->places[at].small = 0;
    return true;
}
