/* A peer whose REP says what no REP should: the other end is a bare cm in this process. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include "rnic/cm/cm.h"
#include "rnic/io/loop/loop.h"
#include "rnic/io/registry/registry.h"

#define PEER_TRY_NS (UINT64_C(4096) << 17)

static struct engine *peer;
static struct psn requested; /* the starting PSN of the REQ that came */

static uint16_t listen_there(void)
{
    if (peer == NULL) {
        assert_int_equal(loop_acquire(&peer), STATUS_OK);
    }
    struct registry_name name = {.scope = REGISTRY_ANY_IPV4};
    uint16_t port = 0;
    uint32_t claim;
    assert_int_equal(
        registry_claim_port(loop_registry(peer), RDMA_PS_TCP, &name, false, false, &port, &claim),
        STATUS_OK);
    assert_int_equal(registry_listen(loop_registry(peer), claim), STATUS_OK);
    struct cm_listener *listener;
    engine_lock(peer);
    assert_int_equal(
        cm_listen(peer->cm, rdma_cm_service_id(RDMA_PS_TCP, port), NULL, 0, NULL, &listener),
        STATUS_OK);
    engine_unlock(peer);
    return port;
}

static struct cm_connection *accept_there(uint8_t reads)
{
    struct cm_parameters parameters = {.qpn = {0x1234},
                                       .starting_psn = {0xabcdef},
                                       .responder_resources = reads,
                                       .initiator_depth = reads};
    struct cm_event event;
    for (int tries = 0; tries < 4000; tries++) {
        engine_lock(peer);
        bool came = cm_next_event(peer->cm, &event);
        if (came && event.kind == CM_EVENT_REQUEST) {
            requested = event.parameters.starting_psn;
            assert_int_equal(cm_accept(event.connection, engine_now(peer), &parameters), STATUS_OK);
            engine_unlock(peer);
            return event.connection;
        }
        engine_unlock(peer);
        poll(NULL, 0, 5);
    }
    fail_msg("no request came");
    return NULL;
}

/* Until the peer has heard that the application may take its time. */
static bool peer_is_patient(void)
{
    for (int tries = 0; tries < 1000; tries++) {
        engine_lock(peer);
        uint64_t wait_ns = instant_elapsed_ns(engine_now(peer), cm_next_deadline(peer->cm));
        engine_unlock(peer);
        if (wait_ns > 2 * PEER_TRY_NS) {
            return true;
        }
        poll(NULL, 0, 5);
    }
    return false;
}

static void expect(struct rdma_event_channel *channel, enum rdma_cm_event_type type)
{
    struct rdma_cm_event *event;
    struct pollfd wait = {.fd = channel->fd, .events = POLLIN};
    assert_int_equal(poll(&wait, 1, 20000), 1);
    assert_int_equal(rdma_get_cm_event(channel, &event), 0);
    if (event->event != type) {
        fail_msg("%s instead of %s (status %d)", rdma_event_str(event->event), rdma_event_str(type),
                 event->status);
    }
    rdma_ack_cm_event(event);
}

/* Up to the request; the peer has it. */
static struct rdma_cm_id *connect_there(struct rdma_event_channel *channel)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(listen_there()),
                                  .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct rdma_cm_id *id;
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&address, 2000), 0);
    expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    struct ibv_qp_init_attr init = {.cap = {4, 4, 1, 1, 0}, .qp_type = IBV_QPT_RC};
    assert_int_equal(rdma_create_qp(id, NULL, &init), 0);
    struct rdma_conn_param param = {.responder_resources = 3, .initiator_depth = 5};
    assert_int_equal(rdma_connect(id, &param), 0);
    return id;
}

static void destroy(struct rdma_cm_id *id)
{
    rdma_destroy_qp(id);
    assert_int_equal(rdma_destroy_id(id), 0);
}

static void a_reply_sets_the_queue_pair_up(void **state)
{
    (void)state;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = connect_there(channel);
    (void)accept_there(200);
    assert_true(peer_is_patient());
    expect(channel, RDMA_CM_EVENT_ESTABLISHED);

    struct ibv_qp_attr attributes;
    struct ibv_qp_init_attr init;
    int mask = IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_RQ_PSN | IBV_QP_SQ_PSN;
    assert_int_equal(ibv_query_qp(id->qp, &attributes, mask, &init), 0);
    /* A starting PSN is what its sender wants to receive first. [IBA 12.7, Starting PSN] */
    assert_int_equal(attributes.rq_psn, requested.value);
    assert_int_equal(attributes.sq_psn, 0xabcdef);
    assert_int_equal(attributes.max_dest_rd_atomic, 3);
    assert_int_equal(attributes.max_rd_atomic, 5);
    destroy(id);
    rdma_destroy_event_channel(channel);
}

/* The peer takes its acceptance back before the application has heard of it. */
static void a_failed_connection_does_not_end(void **state)
{
    (void)state;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = connect_there(channel);
    struct cm_connection *connection = accept_there(1);
    assert_true(peer_is_patient()); /* the REP has come */
    engine_lock(peer);
    cm_data_arrived(connection, engine_now(peer));
    assert_int_equal(cm_disconnect(connection, engine_now(peer)), STATUS_OK);
    engine_unlock(peer);
    struct cm_event event = {.kind = CM_EVENT_REQUEST};
    do { /* it is answered */
        engine_lock(peer);
        bool came = cm_next_event(peer->cm, &event);
        engine_unlock(peer);
        if (!came) {
            poll(NULL, 0, 5);
        }
    } while (event.kind != CM_EVENT_DISCONNECTED);
    expect(channel, RDMA_CM_EVENT_CONNECT_ERROR);
    expect(channel, RDMA_CM_EVENT_TIMEWAIT_EXIT);
    destroy(id);
    rdma_destroy_event_channel(channel);
}

static void say(const struct arrival *arrival, const struct cm_message *message)
{
    uint8_t mad[MAD_LENGTH];
    cm_message_build(message, mad);
    assert_int_equal(device_send_management(peer->device, &arrival->path, mad, MAD_LENGTH),
                     STATUS_OK);
}

/* Accepts, and says in the same breath that nobody listens there. */
static void receive_as_liar(struct management_handler *handler, struct instant now,
                            const struct arrival *arrival, struct qpn source, const uint8_t *mad,
                            uint32_t length)
{
    (void)handler, (void)now, (void)source;
    struct cm_message request;
    if (cm_message_parse(mad, length, &request) == STATUS_OK && request.kind == CM_MESSAGE_REQ) {
        struct cm_message answer = {.kind = CM_MESSAGE_REP,
                                    .transaction = request.transaction,
                                    .local_id = 0x1234,
                                    .remote_id = request.local_id,
                                    .local_qpn = {0x1234}};
        say(arrival, &answer);
        answer.kind = CM_MESSAGE_REJ;
        answer.answered = 1;
        answer.reject_reason = CM_REJECT_INVALID_SERVICE_ID;
        say(arrival, &answer);
    }
}

/* A refusal after which a request is sent again, of one that has been answered already. */
static void a_reply_that_is_taken_back_is_no_late_listener(void **state)
{
    (void)state;
    struct rdma_event_channel *channel = rdma_create_event_channel();
    static struct management_handler liar = {receive_as_liar};
    (void)listen_there();
    engine_lock(peer);
    device_set_management(peer->device, &liar);
    engine_unlock(peer);
    struct rdma_cm_id *id = connect_there(channel);
    poll(NULL, 0, 100); /* what is sent again leaves after 1 ms */
    expect(channel, RDMA_CM_EVENT_CONNECT_ERROR);
    destroy(id);
    rdma_destroy_event_channel(channel);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_reply_sets_the_queue_pair_up),
        cmocka_unit_test(a_failed_connection_does_not_end),
        cmocka_unit_test(a_reply_that_is_taken_back_is_no_late_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
