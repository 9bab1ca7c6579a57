/* When a file was made. Its device and its inode's number may be those of one that has gone since.
 */
#ifndef TOOLS_TRANSFER_BIRTH_H
#define TOOLS_TRANSFER_BIRTH_H

#include <stdint.h>

struct birth {
    int64_t s; /* both 0 where the file system does not tell, or the file cannot be asked */
    uint32_t ns;
};

/* Below 0: the first is older. */
int birth_compare(const struct birth *one, const struct birth *other);
/* Of what the descriptor holds, which may be one of O_PATH. */
struct birth birth_of(int fd);

#endif
