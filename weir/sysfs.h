/* What the kernel's drivers tell of devices in files. */
#ifndef WEIR_SYSFS_H
#define WEIR_SYSFS_H

#include <stdbool.h>
#include <stdint.h>

#define SYSFS_DEVICES "/sys/class/infiniband"

/* How often the device had to send something again; `devices` is SYSFS_DEVICES, or a test's. False:
 * its driver does not count that. */
bool sysfs_retransmissions(const char *devices, const char *device, unsigned port,
                           uint64_t *ret_count);

#endif
