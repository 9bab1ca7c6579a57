/* The results as one HTML page that needs nothing else: page.html with the JSON in its place. */
#ifndef TOOLS_BENCH_PAGE_H
#define TOOLS_BENCH_PAGE_H

#include <jansson.h>
#include <stdbool.h>

/* JSON as it may stand in a <script> element, whatever its strings hold; the caller frees it. */
char *page_json(const json_t *document);
/* False with errno: the file was not written. One that was there before is as it was if the disk,
 * or a limit, has no room for the page. */
bool page_write(const char *path, const json_t *document);

#endif
