/* By what weir cp believes a standing server, and is believed. */
#include <stdio.h>
#include <string.h>

#include "tools/cp_private.h"
#include "tools/trust/guard.h"

static int check_options(const struct cp *cp, char **names, int count)
{
    const struct cp_options *options = &cp->options;
    const struct certificate_files *files = &options->certificates;
    const struct cp_targets *targets = &options->targets;
    struct location where;
    names = targets->count > 0 ? targets->list : names;
    count = targets->count > 0 ? (int)targets->count : count;
    if (options->key != NULL && files->authorities != NULL) {
        return command_usage_error(cp->command, "either --key or --ca");
    }
    if ((files->certificate != NULL) != (files->key != NULL)) {
        return command_usage_error(cp->command, "--certificate and --certificate-key go together");
    }
    if (files->certificate != NULL && files->authorities == NULL) {
        return command_usage_error(cp->command, "--certificate wants --ca, whom to show it to");
    }
    for (int i = 0; i < count && options->encrypt && !cp_has_trust(cp); i++) {
        location_parse(names[i], &where);
        if (where.kind == LOCATION_SERVER) {
            return command_usage_error(cp->command, "--encrypt with weir:// wants --key or --ca: "
                                                    "there is nothing to encrypt by");
        }
    }
    return EXIT_DONE;
}

int cp_take_trust(struct cp *cp, char **names, int count)
{
    char why[CERTIFICATES_WHY_LENGTH > KEYS_WHY_LENGTH ? CERTIFICATES_WHY_LENGTH : KEYS_WHY_LENGTH];
    const struct cp_options *options = &cp->options;
    int code = check_options(cp, names, count);
    if (code != EXIT_DONE) {
        return code;
    }
    if (options->key != NULL && !keys_load(options->key, &cp->keys, why)) {
        command_error(cp->command, "--key %s", why);
        return EXIT_SETUP;
    }
    if (options->certificates.authorities != NULL &&
        !certificates_load(&options->certificates, false, &cp->certificates, why)) {
        command_error(cp->command, "%s", why);
        return EXIT_SETUP;
    }
    const char *doubt =
        cp->certificates.context != NULL ? certificates_doubt(&cp->certificates) : NULL;
    if (doubt != NULL) {
        command_error(cp->command, "note: %s: %s", options->certificates.certificate, doubt);
    }
    return EXIT_DONE;
}

bool cp_has_trust(const struct cp *cp)
{
    return cp->options.key != NULL || cp->options.certificates.authorities != NULL;
}

struct guard *cp_create_guard(const struct cp *cp, const char *address)
{
    char host[LOCATION_ADDRESS_LENGTH];
    if (cp->options.key != NULL) {
        const struct key *key = &cp->keys.list[0];
        return guard_create_client(key->name, &key->secret, cp->options.encrypt);
    }
    location_host(address, host);
    return guard_create_client_of(&cp->certificates, host, cp->options.encrypt);
}

void cp_free_trust(struct cp *cp)
{
    keys_free(&cp->keys);
    certificates_free(&cp->certificates);
}
