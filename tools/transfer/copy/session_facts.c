/* What is to be known of a session. */
#include "tools/transfer/copy/session_private.h"

bool session_is_running(const struct session *session)
{
    return session->state >= SESSION_TRANSFER;
}

bool session_has_greeted(const struct session *session)
{
    return session->state > SESSION_GREETING;
}

bool session_is_feeding(const struct session *session)
{
    return session->feeds;
}

bool session_is_writing(const struct session *session)
{
    return session->receiver != NULL && receiver_is_writing(session->receiver);
}

uint64_t session_activity(const struct session *session)
{
    return session->heard << 20 ^ session->link->backlog_count;
}

bool session_is_closed(const struct session *session)
{
    return session->state == SESSION_CLOSED;
}

enum session_outcome session_outcome(const struct session *session)
{
    return session->outcome;
}

enum problem_code session_refusal(const struct session *session)
{
    return session->refusal;
}

struct session_copy session_copy(const struct session *session)
{
    return session->request.copy;
}

const char *session_reason(const struct session *session)
{
    return session->reason;
}

const struct tally *session_tally(const struct session *session)
{
    return &session->tally;
}

enum direction session_direction(const struct session *session)
{
    return session->request.direction;
}

bool session_is_dry(const struct session *session)
{
    return (session->request.wishes.bits & WISH_DRY_RUN) != 0;
}

const char *session_path(const struct session *session)
{
    if (session->request.direction == DIRECTION_PUSH) {
        return session->request.target_path != NULL ? session->request.target_path : "";
    }
    return session->name_count > 0 ? session->names[0] : "";
}

const char *session_peer_device(const struct session *session)
{
    return session->device;
}

enum session_rest session_rest(const struct session *session)
{
    return session->rest;
}
