#include "rnic/io/loop/apart.h"

#define RINGS   4u
#define AWAY_NS 10000000u /* long enough for memory to become common, and for a slice to end */

enum apart_step apart_next(struct apart *apart, struct instant now, bool crowded)
{
    apart->rings = crowded ? apart->rings + 1 : 0;
    if (apart->rings >= RINGS) {
        *apart = (struct apart){.is_away = true, .until = instant_after(now, AWAY_NS)};
        return APART_LEAVE;
    }
    if (apart->is_away && !instant_before(now, apart->until)) {
        apart->is_away = false;
        return APART_RETURN;
    }
    return APART_STAY;
}
