/* The names below a source that alone are meant: a list of paths, as --files-from and --relative
 * have it. A path stands for what it names; the directories on the way to it come without what else
 * is in them. With a slash behind it, it stands for what is in that directory, too, but not for
 * what is in the directories there; "/" means that of the source.
 *
 * Here: the list, and which of it is in a directory. Not here: looking at files (walk.h). */
#ifndef TOOLS_TRANSFER_LISTING_H
#define TOOLS_TRANSFER_LISTING_H

#include <stdbool.h>
#include <stddef.h>

#include "tools/transfer/wire/protocol.h"

#define LISTING_LENGTH_MAX (64u << 20) /* of all paths together */

struct listing {
    char **paths; /* sorted by listing_sort, so that what is below a directory stands together */
    unsigned count, capacity;
    size_t length;
};

/* Without empty components and those that are "."; "" is the source itself. False: no memory, too
 * many, or a path that leads out of the source by "..". */
bool listing_add(struct listing *listing, struct span path);
/* The same, but that a slash at its end stays, whether or not a "." follows. */
bool listing_add_open(struct listing *listing, struct span path);
/* The latter for a path that comes behind all others in their order: nothing needs to be sorted
 * then. False also where it does not. */
bool listing_add_next(struct listing *listing, struct span path);
/* What memory the path takes. */
size_t listing_cost(size_t length);
/* Before it is asked for anything. */
void listing_sort(struct listing *listing);
void listing_clear(struct listing *listing);

/* A path whose components are sound, and which leads nowhere else than down. */
bool listing_is_path(struct span path);
/* The same, written in the one way in which rules know it; or "". */
bool listing_leads_down(struct span path);

/* What of the list is below one directory: those from `first` on and before `end`, whose path has
 * so many bytes with the slash behind it. */
struct listing_part {
    unsigned first, end;
    size_t depth;
};
struct listing_part listing_all(const struct listing *listing);
/* Takes the next name in that directory off `part`, with what is below it. ret_itself: it is in the
 * list, and not just on the way. False: there is none. */
bool listing_next(const struct listing *listing, struct listing_part *part, char ret_name[256],
                  struct listing_part *ret_below, bool *ret_itself);
/* What is below that name in the directory. */
struct listing_part listing_find(const struct listing *listing, const struct listing_part *part,
                                 const char *name);
/* The source itself is in the list. */
bool listing_names_source(const struct listing *listing);
/* The directory of the part is in the list with what is in it. */
bool listing_opens(const struct listing *listing, const struct listing_part *part);
/* There is something in the part besides its directory. */
bool listing_goes_on(const struct listing *listing, const struct listing_part *part);

/* What the list has to do with a path. */
struct listing_trace {
    /* It is in the list, or in a directory that is with what is in it, or, with `recursive`, below
     * what is; */
    bool is_held;
    bool leads;          /* it is on the way to what is, below it */
    unsigned on_the_way; /* of the directories that lead to it, and itself, so many are not held
                            before the first that is */
    unsigned listed;     /* so many of these, and of the source, are in the list themselves */
};
struct listing_trace listing_trace(const struct listing *listing, const char *path, bool recursive);
/* Of these the one or the other, or either. */
bool listing_holds(const struct listing *listing, const char *path, bool recursive);
bool listing_leads(const struct listing *listing, const char *path);
bool listing_meets(const struct listing *listing, const char *path, bool recursive);

#endif
