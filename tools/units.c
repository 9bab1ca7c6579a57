#include "tools/units.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool units_parse(const char *text, char unit, double *ret_value)
{
    static const char letters[] = "BKMGTP";
    char *end, behind = text[strspn(text, "0123456789.")];
    if (!isdigit((unsigned char)text[text[0] == '.']) ||
        (behind != 0 && strchr("xXeE", behind) != NULL)) { /* strtod knows more than rsync */
        return false;
    }
    double value = strtod(text, &end);
    const char *letter = strchr(letters, *end != 0 ? toupper((unsigned char)*end) : unit);
    const char *rest = *end != 0 ? end + 1 : end;
    bool thousands = strcasecmp(rest, "B") == 0;
    if (letter == NULL ||
        (*rest != 0 && (letter == letters || (!thousands && strcasecmp(rest, "iB") != 0)))) {
        return false;
    }
    for (const char *at = letters; at < letter; at++) {
        value *= thousands ? 1000 : 1024;
    }
    *ret_value = value;
    return true;
}
