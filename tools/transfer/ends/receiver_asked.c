/* What a client pulls it has asked for: a server that says other names does not get them written,
 * and one that asks about others is told nothing. It may be anybody's, and the target a home where
 * a name alone has a meaning. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "tools/transfer/choice/expand.h"
#include "tools/transfer/choice/filter.h"
#include "tools/transfer/ends/receiver_private.h"
#include "tools/transfer/wire/listing.h"

/* The part of the path below the source; "" for that itself. */
static const char *path_below_source(const struct receiver *receiver, unsigned source,
                                     const char *path)
{
    path += strlen(receiver_source_name(receiver, source, ""));
    return path + (*path == '/');
}

/* In the list itself, or a name that a pattern stands for, or below one of these. */
static bool is_listed(const struct receiver *receiver, const char *below)
{
    const struct listing *listing = receiver->options.listing;
    bool recursive = receiver_wishes(receiver, WISH_RECURSIVE);
    return listing_holds(listing, below, recursive) ||
           (receiver_wishes(receiver, WISH_EXPAND) && expand_may_give(listing, below, recursive));
}

/* By the rules that the peer was told. What files of rules at the peer say is not known here, and
 * may come before any of the others. */
static bool is_left_out(const struct receiver *receiver, unsigned source, const char *below,
                        bool is_directory)
{
    const struct filter *filter = receiver->options.filter;
    char path[2 * PATH_MAX];
    if (filter == NULL || filter_is_of_place(filter)) {
        return false;
    }
    const char *name = receiver->options.names[source];
    bool slash = name[0] != 0 && below[0] != 0;
    snprintf(path, sizeof(path), "%s%s%s", name, slash ? "/" : "", below);
    return path[0] != 0 && filter_excludes(filter, NULL, path, is_directory);
}

bool receiver_is_asked_for(const struct receiver *receiver, unsigned source, const char *path,
                           bool is_directory)
{
    if (receiver->options.names == NULL) { /* a push */
        return true;
    }
    const char *below = path_below_source(receiver, source, path);
    const struct listing *listing = receiver->options.listing;
    if (listing != NULL && is_directory && listing_leads(listing, below)) {
        return true; /* no rule is for what leads there */
    }
    return (listing == NULL || is_listed(receiver, below)) &&
           !is_left_out(receiver, source, below, is_directory);
}

bool receiver_may_lose(const struct receiver *receiver, unsigned source, const char *path)
{
    return receiver->options.names == NULL || receiver->options.listing == NULL ||
           is_listed(receiver, path_below_source(receiver, source, path));
}
