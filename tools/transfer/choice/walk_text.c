/* What is said of a step that failed. */
#include <errno.h>
#include <string.h>

#include "tools/transfer/choice/walk.h"

const char *walk_failure_text(const struct walk_step *step)
{
    return step->target != NULL ? step->target : walk_error_text(step->error);
}

const char *walk_error_text(int error)
{
    switch (error) {
    case WALK_ERROR_SPECIAL:
        return "left out: a device, FIFO or socket (-D copies them)";
    case WALK_ERROR_SPECIAL_SOURCE:
        return "is a device, FIFO or socket (-D copies them)";
    case WALK_ERROR_RULES:
        return "its rules cannot be had, and so it is left alone";
    case WALK_ERROR_TEMPORARY:
        return "left out: its name stands for a file under way";
    case WALK_ERROR_NOT_RECURSIVE:
        return "is a directory (-r copies directories)";
    case WALK_ERROR_DEEP:
        return "is deeper in directories than this server takes";
    case WALK_ERROR_PARENT:
        return "a path with \"..\" is not taken from a server";
    case ESTALE:
        return "became something else than a file";
    case EXDEV:
        return "leads out of the served folder";
    case ELOOP:
        return "a symbolic link where none is followed";
    default:
        return strerror(error);
    }
}
