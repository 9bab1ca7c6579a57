/* The rights of memory keys and of queue pairs. */
#ifndef WEIR_MEMORY_ACCESS_H
#define WEIR_MEMORY_ACCESS_H

enum access {
    ACCESS_LOCAL_WRITE = 1 << 0,
    ACCESS_REMOTE_WRITE = 1 << 1,
    ACCESS_REMOTE_READ = 1 << 2,
    ACCESS_REMOTE_ATOMIC = 1 << 3,
    ACCESS_BIND_WINDOW = 1 << 4,
    ACCESS_ZERO_BASED = 1 << 5,
    ACCESS_ON_DEMAND = 1 << 6, /* pages may be missing: see struct memory_probe */
    ACCESS_LOCAL_READ = 0,     /* always granted */
};

/* The rights to change what is there. */
#define MEMORY_CHANGES (ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE | ACCESS_REMOTE_ATOMIC)

#endif
