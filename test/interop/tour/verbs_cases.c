/* Mistakes that a program makes through verbs. */
#include "test/interop/tour/case.h"

/* [IBA 9.9.3] A request that is refused for its key: NAK, queue pair in error, an event, and the
 * receive that was waiting is flushed. */
#define REFUSED_FOR_ACCESS                                                                         \
    {                                                                                              \
        .requester = "REM_ACCESS_ERR", .responder = "WR_FLUSH_ERR", .event = "QP_ACCESS_ERR",      \
        .states = "ERR/ERR", .answers = "ACC"                                                      \
    }
#define REFUSED_AS_INVALID                                                                         \
    {                                                                                              \
        .requester = "REM_INV_REQ_ERR", .responder = "WR_FLUSH_ERR", .event = "QP_REQ_ERR",        \
        .states = "ERR/ERR", .answers = "INV"                                                      \
    }

/* [IBA 11.6.3.3] What is refused as invalid for its length, alignment or number is an access error
 * to the responder's event; where a receive was in use, that one tells, and no event. */
#define REFUSED_AS_INVALID_ACCESS                                                                  \
    {                                                                                              \
        .requester = "REM_INV_REQ_ERR", .responder = "WR_FLUSH_ERR", .event = "QP_ACCESS_ERR",     \
        .states = "ERR/ERR", .answers = "INV"                                                      \
    }
#define REFUSED_FOR_LENGTH                                                                         \
    {                                                                                              \
        .requester = "REM_INV_REQ_ERR", .responder = "LOC_LEN_ERR", .states = "ERR/ERR",           \
        .answers = "INV"                                                                           \
    }

const struct tour_case verbs_cases[] = {
    /* keys and ranges */
    {"write_unknown_key", "9.7.4.1.5", .key = KEY_UNKNOWN, .expected = REFUSED_FOR_ACCESS},
    {"write_key_of_other_domain", "10.6.3.1", .key = KEY_OTHER_DOMAIN,
     .expected = REFUSED_FOR_ACCESS},
    {"write_past_end", "9.7.4.1.5", .aim = AIM_PAST_END, .expected = REFUSED_FOR_ACCESS},
    {"write_long_past_end", "9.7.4.1.5", .at_each_mtu = true, .aim = AIM_PAST_END, .length = 5000,
     .expected = REFUSED_FOR_ACCESS},
    {"write_before_start", "9.7.4.1.5", .aim = AIM_BEFORE_START, .expected = REFUSED_FOR_ACCESS},
    {"write_around_the_end_of_addresses", "9.7.4.1.5", .aim = AIM_WRAPS,
     .expected = REFUSED_FOR_ACCESS},
    {"read_unknown_key", "9.7.4.1.5", .opcode = IBV_WR_RDMA_READ, .key = KEY_UNKNOWN,
     .expected = REFUSED_FOR_ACCESS},
    {"read_key_of_other_domain", "10.6.3.1", .opcode = IBV_WR_RDMA_READ, .key = KEY_OTHER_DOMAIN,
     .expected = REFUSED_FOR_ACCESS},
    {"read_past_end", "9.7.4.1.5", .at_each_mtu = true, .opcode = IBV_WR_RDMA_READ,
     .aim = AIM_PAST_END, .expected = REFUSED_FOR_ACCESS},
    {"read_before_start", "9.7.4.1.5", .opcode = IBV_WR_RDMA_READ, .aim = AIM_BEFORE_START,
     .expected = REFUSED_FOR_ACCESS},
    {"read_around_the_end_of_addresses", "9.7.4.1.5", .opcode = IBV_WR_RDMA_READ, .aim = AIM_WRAPS,
     .expected = REFUSED_FOR_ACCESS},
    {"atomic_unknown_key", "9.7.4.1.5", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .key = KEY_UNKNOWN,
     .expected = REFUSED_FOR_ACCESS},
    {"atomic_past_end", "9.7.4.1.5", .opcode = IBV_WR_ATOMIC_CMP_AND_SWP, .aim = AIM_PAST_END,
     .expected = REFUSED_FOR_ACCESS},
    {"empty_write_unknown_key", "9.7.4.1.5", .length = EMPTY, .key = KEY_UNKNOWN},
    {"empty_read_unknown_key", "9.7.4.1.5", .opcode = IBV_WR_RDMA_READ, .length = EMPTY,
     .key = KEY_UNKNOWN},

    /* rights */
    {"write_to_read_only_region", "9.7.4.1.5", .region_lacks = IBV_ACCESS_REMOTE_WRITE,
     .expected = REFUSED_FOR_ACCESS},
    {"read_from_region_without_right", "9.7.4.1.5", .opcode = IBV_WR_RDMA_READ,
     .region_lacks = IBV_ACCESS_REMOTE_READ, .expected = REFUSED_FOR_ACCESS},
    {"atomic_on_region_without_right", "9.7.4.1.5", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .region_lacks = IBV_ACCESS_REMOTE_ATOMIC, .expected = REFUSED_FOR_ACCESS},
    {"write_to_queue_pair_without_right", "9.7.4.1.3", .qp_lacks = IBV_ACCESS_REMOTE_WRITE,
     .expected = REFUSED_AS_INVALID},
    {"read_from_queue_pair_without_right", "9.7.4.1.3", .opcode = IBV_WR_RDMA_READ,
     .qp_lacks = IBV_ACCESS_REMOTE_READ, .expected = REFUSED_AS_INVALID},
    {"atomic_on_queue_pair_without_right", "9.7.4.1.3", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .qp_lacks = IBV_ACCESS_REMOTE_ATOMIC, .expected = REFUSED_AS_INVALID},
    {"atomic_misaligned", "9.4.5", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, .aim = AIM_MISALIGNED,
     .expected = REFUSED_AS_INVALID_ACCESS},
    {"read_without_resources", "9.7.4.1.4", .opcode = IBV_WR_RDMA_READ, .no_read_resources = true,
     .expected = REFUSED_AS_INVALID_ACCESS},
    {"invalidate_unknown_key", "9.9.3", .opcode = IBV_WR_SEND_WITH_INV, .invalidate = KEY_UNKNOWN,
     .expected = REFUSED_FOR_ACCESS},
    {"invalidate_key_of_region", "9.9.3", .opcode = IBV_WR_SEND_WITH_INV, .invalidate = KEY_RIGHT,
     .expected = REFUSED_FOR_ACCESS},

    /* receives */
    {"receive_too_short", "9.7.4.1.6", .at_each_mtu = true, .opcode = IBV_WR_SEND,
     .receives = RECEIVES_SHORT, .expected = REFUSED_FOR_LENGTH},
    {"receive_too_short_for_many_packets", "9.7.4.1.6", .at_each_mtu = true, .opcode = IBV_WR_SEND,
     .length = 9000, .expected = REFUSED_FOR_LENGTH},
    {"receive_with_bad_key", "9.7.4.1.7", .opcode = IBV_WR_SEND, .receives = RECEIVES_BAD_KEY,
     .expected = {.requester = "REM_OP_ERR",
                  .responder = "LOC_PROT_ERR",
                  .states = "ERR/ERR",
                  .answers = "OP"}},
    {"no_receive_no_retry", "9.7.5.2.8", .opcode = IBV_WR_SEND, .receives = RECEIVES_NONE,
     .rnr_retry = 1 + 0,
     .expected = {.requester = "RNR_RETRY_EXC_ERR", .states = "ERR/RTS", .answers = "RNR*1"}},
    {"no_receive_two_retries", "9.7.5.2.8", .opcode = IBV_WR_SEND, .receives = RECEIVES_NONE,
     .rnr_retry = 1 + 2,
     .expected = {.requester = "RNR_RETRY_EXC_ERR", .states = "ERR/RTS", .answers = "RNR*3"}},
    {"late_receive_retried_for_ever", "9.7.5.2.8", .opcode = IBV_WR_SEND, .receives = RECEIVES_LATE,
     .rnr_retry = 1 + 7, .expected = {.responder = "SUCCESS", .answers = "RNR*9"}},
    {"no_receive_for_immediate", "9.7.4.1.4", .opcode = IBV_WR_RDMA_WRITE_WITH_IMM, .length = EMPTY,
     .receives = RECEIVES_NONE, .rnr_retry = 1 + 1,
     .expected = {.requester = "RNR_RETRY_EXC_ERR", .states = "ERR/RTS", .answers = "RNR*2"}},
    {"empty_shared_queue", "9.7.4.1.4", .opcode = IBV_WR_SEND, .shared_queue = true,
     .receives = RECEIVES_NONE, .rnr_retry = 1 + 1,
     .expected = {.requester = "RNR_RETRY_EXC_ERR", .states = "ERR/RTS", .answers = "RNR*2"}},
    {"shared_queue_limit", "10.2.9.4", .opcode = IBV_WR_SEND, .shared_queue = true, .limit = true,
     .expected = {.responder = "SUCCESS", .event = "SRQ_LIMIT_REACHED"}},
    {"shared_queue_receive_too_short", "9.7.4.1.6", .opcode = IBV_WR_SEND, .shared_queue = true,
     .receives = RECEIVES_SHORT,
     .expected = {.requester = "REM_INV_REQ_ERR",
                  .responder = "LOC_LEN_ERR",
                  .event = "QP_LAST_WQE_REACHED",
                  .states = "ERR/ERR",
                  .answers = "INV"}},
    {"completion_queue_overrun", "11.6.3.2", .opcode = IBV_WR_SEND, .as_receives = true,
     .gives_up = true,
     .expected = {.requester = "RETRY_EXC_ERR", .event = "CQ_ERR,QP_FATAL", .states = "ERR/ERR"}},

    /* the requester's own memory */
    {"send_with_bad_key", "10.6.3", .opcode = IBV_WR_SEND, .local_key = KEY_UNKNOWN,
     .expected = {.requester = "LOC_PROT_ERR", .states = "ERR/RTS"}},
    {"send_with_key_of_other_domain", "10.6.3", .opcode = IBV_WR_SEND,
     .local_key = KEY_OTHER_DOMAIN, .expected = {.requester = "LOC_PROT_ERR", .states = "ERR/RTS"}},
    {"write_with_bad_local_key", "10.6.3", .local_key = KEY_UNKNOWN,
     .expected = {.requester = "LOC_PROT_ERR", .states = "ERR/RTS"}},
    {"read_into_bad_key", "10.6.3", .opcode = IBV_WR_RDMA_READ, .local_key = KEY_UNKNOWN,
     .expected = {.requester = "LOC_PROT_ERR", .states = "ERR/RTS"}},
    {"read_into_read_only_memory", "10.6.3", .opcode = IBV_WR_RDMA_READ, .local_key = KEY_READ_ONLY,
     .expected = {.requester = "LOC_PROT_ERR", .states = "ERR/RTS"}},
    {"atomic_into_bad_key", "10.6.3", .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
     .local_key = KEY_UNKNOWN,
     .expected = {.requester = "LOC_PROT_ERR", .states = "ERR/RTS", .memory = "written"}},

    /* the other end is not what it should be */
    {"peer_in_reset", "9.6.1.2", .opcode = IBV_WR_SEND, .readiness = NOT_RESET, .gives_up = true,
     .expected = {.requester = "RETRY_EXC_ERR", .states = "ERR/RESET"}},
    {"peer_in_init", "9.6.1.2", .opcode = IBV_WR_SEND, .readiness = NOT_INIT, .gives_up = true,
     .expected = {.requester = "RETRY_EXC_ERR", .states = "ERR/INIT"}},
    {"peer_in_error", "9.6.1.2", .opcode = IBV_WR_SEND, .readiness = NOT_ERROR, .gives_up = true,
     .expected = {.requester = "RETRY_EXC_ERR", .states = "ERR/ERR"}},
    {"peer_gone", "9.6.1.2", .opcode = IBV_WR_SEND, .readiness = NOT_THERE, .gives_up = true,
     .expected = {.requester = "RETRY_EXC_ERR", .states = "ERR/none"}},
    {"mtu_of_peer_smaller", "9.7.4.1.6", .opcode = IBV_WR_SEND, .at_each_mtu = true,
     .mtus = MTU_HALF_OF_RESPONDER, .expected = REFUSED_FOR_LENGTH},
    {"mtu_of_peer_larger", "9.7.4.1.6", .opcode = IBV_WR_SEND, .at_each_mtu = true,
     .mtus = MTU_HALF_OF_REQUESTER, .expected = REFUSED_FOR_LENGTH},
    {"to_itself", "9.2", .at_each_mtu = true, .opcode = IBV_WR_SEND, .to_itself = true,
     .expected = {.responder = "SUCCESS"}},

    /* services that do not answer */
    {"uc_write_unknown_key", "9.8.2.2", .type = IBV_QPT_UC, .key = KEY_UNKNOWN},
    {"uc_write_past_end", "9.8.2.2", .at_each_mtu = true, .type = IBV_QPT_UC, .aim = AIM_PAST_END,
     .length = 5000},
    {"uc_write_to_read_only_region", "9.8.2.2", .type = IBV_QPT_UC,
     .region_lacks = IBV_ACCESS_REMOTE_WRITE},
    {"uc_write_to_queue_pair_without_right", "9.8.2.2", .type = IBV_QPT_UC,
     .qp_lacks = IBV_ACCESS_REMOTE_WRITE},
    {"uc_receive_too_short", "9.8.2.2", .at_each_mtu = true, .type = IBV_QPT_UC,
     .opcode = IBV_WR_SEND, .receives = RECEIVES_SHORT},
    {"uc_no_receive", "9.8.2.2", .type = IBV_QPT_UC, .opcode = IBV_WR_SEND,
     .receives = RECEIVES_NONE},
    {"uc_send_with_bad_key", "10.3.1.6", .type = IBV_QPT_UC, .opcode = IBV_WR_SEND,
     .local_key = KEY_UNKNOWN, .expected = {.requester = "LOC_PROT_ERR", .states = "SQE/RTS"}},
    {"ud_wrong_qkey", "9.6.1.3", .type = IBV_QPT_UD, .opcode = IBV_WR_SEND, .wrong_qkey = true},
    {"ud_no_receive", "9.8.3.2", .type = IBV_QPT_UD, .opcode = IBV_WR_SEND,
     .receives = RECEIVES_NONE},
    {"ud_receive_too_short", "9.8.3.2", .type = IBV_QPT_UD, .opcode = IBV_WR_SEND,
     .receives = RECEIVES_SHORT},
    {"ud_longer_than_mtu", "10.7.2.2", .at_each_mtu = true, .type = IBV_QPT_UD,
     .opcode = IBV_WR_SEND, .length = 8000},
    {"ud_send_with_bad_key", "10.3.1.6", .type = IBV_QPT_UD, .opcode = IBV_WR_SEND,
     .local_key = KEY_UNKNOWN, .expected = {.requester = "LOC_PROT_ERR", .states = "SQE/RTS"}},
    {0},
};
