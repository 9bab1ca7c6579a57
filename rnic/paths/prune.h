/* Trees that no process uses any more. */
#ifndef WEIR_PATHS_PRUNE_H
#define WEIR_PATHS_PRUNE_H

void remove_tree(const char *path);
/* Where `home` holds many trees: removes those that are not new and that no living process was
 * started with. Another user's processes cannot be seen, nor can they be using them. */
void prune_trees(const char *home);

#endif
