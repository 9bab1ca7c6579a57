/* What strict mode remembers of memory keys: where each was registered and, for a while after its
 * end, where it was deregistered. Thread-safe. */
#ifndef WEIR_STRICT_LEDGER_H
#define WEIR_STRICT_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rnic/strict/pitfall.h"

struct key_record {
    uint32_t key;
    bool dead;
    bool window;
    uint64_t address; /* as users of the key name it */
    uint64_t length;
    struct trace where; /* registered or bound; deregistered or given up when dead */
};

void ledger_register(uint32_t key, uint64_t address, uint64_t length, bool window);
void ledger_deregister(uint32_t key);
/* False: a key that was never given out, or long ago. A live record is found before a dead one. */
bool ledger_find(uint32_t key, struct key_record *ret_record);

#endif
