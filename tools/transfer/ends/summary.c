#include "tools/transfer/ends/summary.h"

uint64_t summary_entries(const struct message *message)
{
    return message->summary.files + message->summary.symlinks + message->summary.same +
           message->summary.left + message->summary.again_files + message->summary.again_symlinks;
}

void summary_take(const struct message *message, struct tally *tally)
{
    tally->files = message->summary.files;
    tally->directories = message->summary.directories;
    tally->symlinks = message->summary.symlinks;
    tally->bytes = message->summary.bytes;
    tally->same = message->summary.same;
    tally->left = message->summary.left;
    tally->deleted = message->summary.deleted;
    tally->kept = message->summary.kept;
    tally->held_back = message->summary.held_back;
    tally->again_files = message->summary.again_files;
    tally->again_symlinks = message->summary.again_symlinks;
    tally->again_bytes = message->summary.again_bytes;
    tally->untouched_symlinks = message->summary.untouched_symlinks;
    tally->specials = message->summary.specials;
    tally->untouched_specials = message->summary.untouched_specials;
    tally->undeleted = message->summary.undeleted;
    if (tally->failed < message->summary.failed) {
        tally->failed = message->summary.failed;
    }
}
