/* What every fuzz target defines: libFuzzer calls it under clang, replay.c under any compiler.
 * It must end by CHECK if the code under test is wrong, and return 0 else. */
#ifndef WEIR_FUZZ_FUZZ_H
#define WEIR_FUZZ_FUZZ_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
