/* Families of adapters as ibv_devinfo -v shows typical members of them, but never more than this
 * device can do: mlx5 is a ConnectX-5, mlx4 a ConnectX-3, irdma an E810, bnxt a BCM57414. */
#include "rnic/verbs/limits.h"

#include <string.h>

#include "rnic/strict/strict.h"
#include "rnic/verbs/objects.h"

static const struct limits ours = {"weir",        QUEUE_LENGTH_MAX, SGE_MAX,          INLINE_MAX,
                                   CQ_LENGTH_MAX, READS_MAX,        QUEUE_LENGTH_MAX, SGE_MAX};

static const struct limits families[] = {
    /* name   wr     sge inline cqe            reads srq_wr srq_sge */
    {"mlx5", 16384, 30, 828, CQ_LENGTH_MAX, 16, 16384, 31},
    {"mlx4", 16351, 32, 912, CQ_LENGTH_MAX, 16, 16383, 31},
    {"irdma", 4063, 13, 101, CQ_LENGTH_MAX - 1, 127, 16384, 13},
    {"bnxt", 16384, 6, 96, CQ_LENGTH_MAX, 126, 16384, 6},
    {"rxe", 16384, 32, 512, 32767, 128, 16384, 27},
};

static const struct limits *find(void)
{
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        if (strcmp(families[i].name, strict_settings.profile) == 0) {
            return &families[i];
        }
    }
    return &families[0];
}

const struct limits *limits_now(void)
{
    return strict_is_on() ? find() : &ours;
}

bool limits_allow(uint32_t wanted, uint32_t limit, const char *what)
{
    if (wanted <= limit) {
        return true;
    }
    if (strict_is_on()) {
        pitfall_warn(PITFALL_LIMIT, NULL, "asked for at",
                     "%s is %u on this adapter, and %u is asked for", what, limit, wanted);
    }
    return false;
}
