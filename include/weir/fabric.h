/* Which verbs library carries the data: the machine's RNIC through rdma-core, or Weir's own
 * software RNIC. Both are loaded at run time; a program that links libweir needs neither to start.
 */
#ifndef WEIR_FABRIC_H
#define WEIR_FABRIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <weir/error.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

struct weir_fabric;

enum weir_fabric_kind {
    WEIR_FABRIC_AUTO, /* a real device if there is a usable one, else the software RNIC */
    WEIR_FABRIC_RDMA, /* a real device or an error; never falls back */
    WEIR_FABRIC_SOFT,
};

struct weir_fabric_options {
    enum weir_fabric_kind kind;
    const char *device;   /* NAME, NAME:PORT or NAME:PORT:GID_INDEX; NULL: the first that fits.
                             rdma_cm finds port and GID by the addresses that are connected: there
                             only the NAME counts */
    const char *soft_dir; /* folder of our drop-in libraries; NULL: found by WEIR_LIBRARY_DIR,
                             beside the program, or where installed */
    const char *toward;   /* HOST:PORT: of several devices the first by which this address is
                             reached, or that has it, where rdma_cm knows one. NULL, or with
                             `device`: not asked. A name is looked up, and each of its addresses may
                             be waited for, 2 s at most */
};

/* Loads the library and finds the device. A verbs library that is in the process already, linked to
 * the program for example, is the one that is used: there can be no second. `options` may be NULL.
 * Not closed before everything that was made from it; closing NULL is fine. Threads may open
 * fabrics at once, and may make pollers, and memory, of one; none is cancelled while it opens one.
 */
enum weir_status weir_fabric_open(const struct weir_fabric_options *options,
                                  struct weir_fabric **ret_fabric, struct weir_error *ret_error);
void weir_fabric_close(struct weir_fabric *fabric);

/* AUTO never comes back: what was taken. */
enum weir_fabric_kind weir_fabric_kind(const struct weir_fabric *fabric);
/* "mlx5_0", "weir0" */
const char *weir_fabric_device(const struct weir_fabric *fabric);
/* Why this one, in a phrase: "no RDMA device on this machine (/sys/class/infiniband is empty)". */
const char *weir_fabric_reason(const struct weir_fabric *fabric);
/* Path of the verbs library that was loaded. */
const char *weir_fabric_library(const struct weir_fabric *fabric);
/* What carries data to processes of this host, and why, in a phrase: "memory, long payloads read
 * from where they lie". NULL: the device does, as to any other. */
const char *weir_fabric_same_host(const struct weir_fabric *fabric);

/* How often the device has sent something again since it was there: packets, or occasions where it
 * counts no packets. Of the software RNIC only what this process sent, of a real one what all
 * programs did. False: it does not say. */
bool weir_fabric_retransmissions(const struct weir_fabric *fabric, uint64_t *ret_count);

/* How many packets have gone and come in this process, by what carried them; what was done in the
 * memory of a process of this host without a packet counts as one. False: a real device does not
 * say. */
struct weir_fabric_carried {
    uint64_t network, memory;
};
bool weir_fabric_carried(const struct weir_fabric *fabric, struct weir_fabric_carried *ret_carried);

/* The port in use: its number, MTU in bytes, size of its GID table. */
struct weir_fabric_facts {
    unsigned port;
    unsigned mtu_length, mtu_length_max; /* 0: unknown */
    unsigned gid_count;
};
void weir_fabric_facts(const struct weir_fabric *fabric, struct weir_fabric_facts *ret_facts);
/* The GID as text, "192.0.2.7" where it holds an IPv4 address. False: none at this index. */
#define WEIR_GID_LENGTH 46
bool weir_fabric_gid(const struct weir_fabric *fabric, unsigned index,
                     char ret_text[WEIR_GID_LENGTH]);

/* Registered memory: of the fabric, or of one connection.
 *
 * Memory of the fabric is for this side alone: the source of puts and the target of gets, on any
 * connection (each registers it anew when it first uses it, until either ends). No key reaches it.
 * Memory of a connection is used by that connection's transfers and, with rights, by its peer; the
 * keys are worth nothing on any other connection. To show one region to several peers, register it
 * once for each. */
struct weir_memory;
struct weir_connection;

enum weir_rights {
    WEIR_LOCAL = 0, /* source of puts, target of gets */
    WEIR_REMOTE_WRITE = 1 << 0,
    WEIR_REMOTE_READ = 1 << 1,
};

/* Registers [bytes, bytes+length), the caller's, until weir_memory_deregister. `rights` are
 * WEIR_LOCAL, else INVALID. NO_MEMORY explains the memlock limit where that is the cause. */
enum weir_status weir_memory_register(struct weir_fabric *fabric, void *bytes, size_t length,
                                      unsigned rights, struct weir_memory **ret_memory,
                                      struct weir_error *ret_error);
/* Allocates page-aligned memory (huge pages where they are to be had) and registers it. */
enum weir_status weir_memory_allocate(struct weir_fabric *fabric, size_t length, unsigned rights,
                                      struct weir_memory **ret_memory,
                                      struct weir_error *ret_error);
/* The same for one connection, from weir_connect or `accepted` on, in any state. The memory may
 * outlive the connection; nobody reaches it then. */
enum weir_status weir_memory_register_for(struct weir_connection *connection, void *bytes,
                                          size_t length, unsigned rights,
                                          struct weir_memory **ret_memory,
                                          struct weir_error *ret_error);
enum weir_status weir_memory_allocate_for(struct weir_connection *connection, size_t length,
                                          unsigned rights, struct weir_memory **ret_memory,
                                          struct weir_error *ret_error);
/* No operation that uses it is under way. Frees what weir_memory_allocate allocated. NULL is fine.
 */
void weir_memory_deregister(struct weir_memory *memory);
void *weir_memory_bytes(const struct weir_memory *memory);
size_t weir_memory_length(const struct weir_memory *memory);

/* What a peer needs to name a region: sent in messages, on the connection that it belongs to. */
struct weir_remote {
    uint64_t address;
    uint64_t length;
    uint32_t key;
};
struct weir_remote weir_memory_remote(const struct weir_memory *memory);
/* 20 bytes, big-endian, for messages. */
#define WEIR_REMOTE_LENGTH 20
void weir_remote_pack(const struct weir_remote *remote, uint8_t ret_bytes[WEIR_REMOTE_LENGTH]);
struct weir_remote weir_remote_unpack(const uint8_t bytes[WEIR_REMOTE_LENGTH]);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
