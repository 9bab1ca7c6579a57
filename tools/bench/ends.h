/* The two ends of a measurement. The client leads: for each case both make a carrier; a first run,
 * whose bytes are compared on both ends, and longer ones until one is long enough to tell how many
 * operations fill the time asked for; then the runs that count. */
#ifndef TOOLS_BENCH_ENDS_H
#define TOOLS_BENCH_ENDS_H

#include <weir/fabric.h>

#include "tools/bench/control.h"
#include "tools/bench/result.h"

#define ENDS_PROTOCOL 1

/* What an end is: device, why it, port, machine, kernel, version. */
json_t *ends_describe(const struct weir_fabric *fabric);

/* The greeting; the server's description, or NULL. */
json_t *ends_greet(struct control *control, const struct weir_fabric *fabric,
                   struct weir_error *ret_error);
/* Fills *ret_result, which is large. False: the session is over. */
bool ends_measure(struct control *control, struct weir_fabric *fabric, const struct plan_case *item,
                  const struct plan *plan, struct result *ret_result, struct weir_error *ret_error);

/* Serves one client until it leaves; false: not in order. */
bool ends_serve(struct control *control, struct weir_fabric *fabric, struct weir_error *ret_error);

#endif
