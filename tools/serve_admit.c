/* What a client may is decided by the secret that it has proven to know. */
#include <stdio.h>
#include <string.h>

#include "tools/remote/greeting.h"
#include "tools/serve_private.h"

/* What it is said to be goes with it: by the end of the handshake the name may be nobody's. */
const struct secret *serve_find_secret(void *user, const char *name)
{
    struct served *served = user;
    const struct serve *serve = served->serve;
    const struct secret *hop = relay_secret(&serve->relays, name);
    const struct key *key = serve->options.session ? NULL : keys_find(&serve->keys, name);
    served->proof = PROOF_NONE;
    if (hop != NULL) {
        served->proof = PROOF_HOP;
        return hop;
    }
    if (serve->options.session && strcmp(name, GREETING_KEY_NAME) == 0) {
        served->proof = PROOF_SESSION;
        return &serve->secret;
    }
    served->proof = key != NULL ? PROOF_KEY : PROOF_NONE;
    return key != NULL ? &key->secret : NULL;
}

/* A peer that knows the secret of one that is to be fed here, and may do that and no more. */
static const char *admit_to_feed(const struct served *served, const char *name,
                                 struct session_service *service)
{
    if (relay_secret(&served->serve->relays, name) == NULL) {
        return "it is not awaited any more";
    }
    snprintf(service->hop_name, sizeof(service->hop_name), "%s", name);
    return NULL;
}

const char *serve_admit(struct served *served, const char *name,
                        struct session_service *ret_service)
{
    const struct serve *serve = served->serve;
    bool by_secret = secret_name_is_valid(name);
    const struct key *key = by_secret ? keys_find(&serve->keys, name) : NULL;
    *ret_service = serve->service;
    if (by_secret && served->proof == PROOF_HOP) {
        return admit_to_feed(served, name, ret_service);
    }
    if (by_secret && served->proof != PROOF_SESSION && (served->proof != PROOF_KEY || !key)) {
        return "its key does not count any more";
    }
    served->proof = by_secret ? served->proof : PROOF_NONE;
    ret_service->read_only |= key != NULL && key->read_only;
    if (key != NULL && key->user >= 0) {
        ret_service->root = key->user;
        ret_service->root_count = 0;
    }
    return NULL;
}
