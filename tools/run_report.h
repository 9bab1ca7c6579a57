/* What weir run --verbose says: which libraries, which devices with which addresses, and why. */
#ifndef TOOLS_RUN_REPORT_H
#define TOOLS_RUN_REPORT_H

#include <stdbool.h>
#include <stdio.h>

/* The machine's own RDMA devices, which the program will not see; nothing where there are none. */
void run_report_hidden(FILE *stream);
/* `folder` of the libraries; `tree` of dropin.h, or "". */
void run_report(FILE *stream, const char *folder, const char *tree, bool in_namespace);

#endif
