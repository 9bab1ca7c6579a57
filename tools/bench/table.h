/* Results as a table for people, row by row as they come. */
#ifndef TOOLS_BENCH_TABLE_H
#define TOOLS_BENCH_TABLE_H

#include <stdio.h>

#include "tools/bench/result.h"

struct table {
    FILE *stream;
    enum plan_measure measure; /* of the header that was printed */
    bool has_header;
};

void table_add(struct table *table, const struct result *result);

/* Three digits that count: "0.352", "12.3", "4,567". */
#define TABLE_NUMBER 24
void table_number(double value, char ret_text[TABLE_NUMBER]);

#endif
