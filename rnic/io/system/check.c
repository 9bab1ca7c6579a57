/* What a broken invariant does to a program that uses the product libraries: the one place where
 * a library prints, for nobody is left to return to. */
#include "rnic/base/check.h"

#include <stdio.h>
#include <stdlib.h>

void check_failed(const char *file, int line, const char *condition)
{
    fprintf(stderr, "weir: %s:%d: CHECK failed: %s\n", file, line, condition);
    abort();
}
