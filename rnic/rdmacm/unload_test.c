/* A plug-in that is closed: the library's threads run on, so its code has to stay, and the program
 * may load it again. This program is linked with neither library.
 * usage: unload_test LIBRDMACM */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <rdma/rsocket.h>
#include <stdio.h>
#include <stdlib.h>

static void need(int truth, const char *what)
{
    if (!truth) {
        const char *why = dlerror();
        fprintf(stderr, "not %s%s%s\n", what, why != NULL ? ": " : "", why != NULL ? why : "");
        exit(1);
    }
}

#define FIND(library, name)                                                                        \
    __typeof__(&(name)) load_##name = (__typeof__(&(name)))dlsym(library, #name);                  \
    need(load_##name != NULL, #name)

static void listen_once(void *library)
{
    FIND(library, rdma_create_event_channel);
    FIND(library, rdma_destroy_event_channel);
    FIND(library, rdma_create_id);
    FIND(library, rdma_destroy_id);
    FIND(library, rdma_bind_addr);
    FIND(library, rdma_listen);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct rdma_event_channel *channel = load_rdma_create_event_channel();
    struct rdma_cm_id *id;
    need(channel != NULL, "a channel");
    need(load_rdma_create_id(channel, &id, NULL, RDMA_PS_TCP) == 0, "an id");
    need(load_rdma_bind_addr(id, (struct sockaddr *)&address) == 0, "bound");
    need(load_rdma_listen(id, 5) == 0, "listening");
    need(load_rdma_destroy_id(id) == 0, "destroyed");
    load_rdma_destroy_event_channel(channel);
}

static void socket_once(void *library)
{
    FIND(library, rsocket);
    FIND(library, rbind);
    FIND(library, rlisten);
    FIND(library, rclose);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int socket = load_rsocket(AF_INET, SOCK_STREAM, 0);
    need(socket >= 0, "a socket");
    need(load_rbind(socket, (struct sockaddr *)&address, sizeof address) == 0, "bound");
    need(load_rlisten(socket, 5) == 0, "listening");
    need(load_rclose(socket) == 0, "closed");
}

int main(int count, char **arguments)
{
    need(count == 2, "given the library");
    for (int i = 0; i < 4; i++) {
        void *library = dlopen(arguments[1], RTLD_NOW);
        need(library != NULL, "loaded");
        (i % 2 == 0 ? listen_once : socket_once)(library);
        need(dlclose(library) == 0, "closed");
        library = dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD);
        need(library != NULL, "still there");
        need(dlclose(library) == 0, "closed again");
    }
    puts("loaded and closed four times");
    return 0;
}
