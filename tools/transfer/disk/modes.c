#include "tools/transfer/disk/modes.h"

#include <stddef.h>
#include <string.h>

#define ALL_BITS 07777
#define ANY_X    0111

/* Whose bits: "u", "g", "o" or all, with the bit beside them that is theirs. */
struct whom {
    mode_t each;    /* 0100, 0010 and 0001 of those who are named */
    mode_t special; /* set-user-ID, set-group-ID */
    mode_t allowed; /* what may be changed */
};

static bool take_whom(char letter, struct whom *whom)
{
    switch (letter) {
    case 'u':
        whom->each |= 0100;
        whom->special |= 04000;
        return true;
    case 'g':
        whom->each |= 0010;
        whom->special |= 02000;
        return true;
    case 'o':
        whom->each |= 0001;
        return true;
    case 'a':
        whom->each |= 0111;
        whom->special |= 06000;
        return true;
    default:
        return false;
    }
}

static bool take_octal(const char *text, size_t length, struct mode_change *change)
{
    mode_t mode = 0;
    if (length == 0 || length > 5 || strspn(text, "01234567") < length) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        mode = mode * 8 + (mode_t)(text[i] - '0');
    }
    change->clear = ALL_BITS;
    change->set = mode;
    return mode <= ALL_BITS;
}

/* The bits that letters stand for; "X" apart. False: one stands for none. */
static bool take_bits(const char *text, size_t length, const struct whom *whom, mode_t *ret_bits,
                      mode_t *ret_if_executable)
{
    mode_t bits = 0, executable = 0;
    for (size_t i = 0; i < length; i++) {
        switch (text[i]) {
        case 'r':
            bits |= whom->each * 4;
            break;
        case 'w':
            bits |= whom->each * 2;
            break;
        case 'x':
            bits |= whom->each;
            break;
        case 'X':
            executable |= whom->each;
            break;
        case 's':
            bits |= whom->special;
            break;
        case 't':
            bits |= 01000;
            break;
        default:
            return false;
        }
    }
    *ret_bits = bits & whom->allowed;
    *ret_if_executable = executable & whom->allowed;
    return true;
}

/* "=u" and the like: what one has is given to the others, or taken from them. */
static bool take_copy(const char *text, size_t length, const struct whom *whom,
                      struct mode_change *change)
{
    struct whom source = {.each = 0};
    if (length != 2 || text[1] == 'a' || !take_whom(text[1], &source)) {
        return false;
    }
    mode_t bits = whom->each * 7 & whom->allowed;
    change->copied = source.each * 7;
    change->set_copied = *text != '-' ? bits : 0;
    change->clear_copied = *text == '-' ? bits : 0;
    if (*text == '=') { /* their special bits, too, as in rsync: the sticky one is that of others */
        change->clear = whom->each * 7 | whom->special | ((whom->each & 0001) != 0 ? 01000 : 0);
    }
    return true;
}

/* One of the list, without its comma. */
static bool take_change(const char *text, size_t length, mode_t mask, struct mode_change *change)
{
    struct whom whom = {.allowed = ALL_BITS};
    *change = (struct mode_change){.subject = MODE_OF_ALL};
    if (length > 0 && (*text == 'D' || *text == 'F')) {
        change->subject = *text == 'D' ? MODE_OF_DIRECTORIES : MODE_OF_OTHERS;
        text++;
        length--;
    }
    if (length > 0 && *text >= '0' && *text <= '7') {
        return take_octal(text, length, change);
    }
    while (length > 0 && take_whom(*text, &whom)) {
        text++;
        length--;
    }
    if (whom.each == 0) { /* all, but what the umask holds back */
        take_whom('a', &whom);
        whom.allowed = ALL_BITS & ~mask;
    }
    if (length == 0 || strchr("+-=", *text) == NULL) {
        return false;
    }
    if (take_copy(text, length, &whom, change)) {
        return true;
    }
    mode_t bits, executable;
    if (!take_bits(text + 1, length - 1, &whom, &bits, &executable)) {
        return false;
    }
    if (*text == '-') {
        change->clear = bits;
        change->clear_if_executable = executable;
    } else {
        change->set = bits;
        change->set_if_executable = executable;
        bool special = memchr(text + 1, 's', length - 1) != NULL; /* else they stay, as in rsync */
        change->clear = *text != '=' ? 0 : whom.each * 7 | (special ? whom.special : 0);
    }
    return true;
}

bool modes_parse(const char *text, mode_t mask, struct mode_changes *changes)
{
    for (;; text++) {
        size_t length = strcspn(text, ",");
        if (changes->count == MODE_CHANGES_MAX ||
            !take_change(text, length, mask, &changes->list[changes->count])) {
            return false;
        }
        changes->count++;
        text += length;
        if (*text == 0) {
            return true;
        }
    }
}

/* The three bits of the one who is copied, for each. */
static mode_t copied_of(const struct mode_change *change, mode_t mode)
{
    return change->copied != 0 ? (mode & change->copied) / (change->copied / 7) * 0111 : 0;
}

mode_t modes_apply(const struct mode_changes *changes, mode_t mode, bool is_directory)
{
    for (unsigned i = 0; changes != NULL && i < changes->count; i++) {
        const struct mode_change *change = &changes->list[i];
        bool executable = is_directory || (mode & ANY_X) != 0;
        if (change->subject == (is_directory ? MODE_OF_OTHERS : MODE_OF_DIRECTORIES)) {
            continue;
        }
        mode_t copied = copied_of(change, mode);
        mode &= ~(change->clear | (executable ? change->clear_if_executable : 0) |
                  (copied & change->clear_copied));
        mode |= change->set | (executable ? change->set_if_executable : 0) |
                (copied & change->set_copied);
    }
    return mode;
}
