/* How libweir fills a struct weir_error. Formats sentences; decides nothing. */
#ifndef WEIR_ERROR_PRIVATE_H
#define WEIR_ERROR_PRIVATE_H

#include <weir/error.h>

/* Writes `status` and the sentence if `ret_error` is not NULL. Returns `status`. */
enum weir_status error_set(struct weir_error *ret_error, enum weir_status status,
                           const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
