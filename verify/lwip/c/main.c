/*
 * main.c - a host with lwIP behind Casemate: `host OWN PEER MEMORY`, the paths of its wire and the bytes for Casemate; orders by
 * standard input until it ends.
 */

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "casemate_lwip.h"
#include "jobs.h"
#include "lwip/init.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"
#include "orders.h"
#include "orders_ike.h"
#include "wire.h"

#define MEMORY 400000
#define LINE 1024

static unsigned char memory[MEMORY];

u32_t sys_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u32_t)(now.tv_sec * 1000 + now.tv_nsec / 1000000) + ike_later;
}

void casemate_panic(const char *file, size_t file_bytes, uint32_t line)
{
    fprintf(stderr, "casemate: a panic at %.*s:%u\n", (int)file_bytes, file, (unsigned)line);
    abort();
}

static void fill(void *context, uint8_t *out, size_t bytes)
{
    (void)context;
    if (getrandom(out, bytes, 0) != (ssize_t)bytes) {
        abort();
    }
}

static void must(int32_t code)
{
    if (code != CASEMATE_OK) {
        fprintf(stderr, "casemate: %s\n", casemate_strerror(code));
        abort();
    }
}

static struct casemate_host *create(size_t bytes)
{
    struct casemate_setup setup;
    struct casemate_costs costs;
    struct casemate_host *host;
    size_t before;
    int32_t code;
    memset(&setup, 0, sizeof(setup));
    setup.tables.sas = 8;
    setup.tables.policies = 32;
    setup.tables.flows = 16;
    setup.tables.replay_window = 4096;
    setup.tables.reassemblies = 2;
    setup.tables.reassembly_bytes = 10000;
    setup.tables.ike_sas = 4;
    setup.tables.ike_children = 2;
    setup.mtu = 1500;
    setup.unmatched = CASEMATE_DISCARD;
    setup.random = fill;
    must(casemate_memory(memory, LWIP_MIN(bytes, sizeof(memory))));
    must(casemate_limits(&setup.tables, &costs));
    before = casemate_memory_free();
    code = casemate_create(&setup, &host);
    if (code != CASEMATE_OK) {
        answer(1, casemate_strerror(code));
        return NULL;
    }
    printf("0 host=%zu of %zu, sa %zu, policy %zu, total %zu\n", before - casemate_memory_free(), costs.host, costs.sa,
           costs.policy, costs.total);
    fflush(stdout);
    return host;
}

/* Reads what is there of standard input and obeys whole lines; 0 at its end. */
static int take_orders(struct casemate_host *host, struct netif *netif)
{
    static char line[LINE];
    static size_t len;
    char *end;
    ssize_t count = read(STDIN_FILENO, line + len, sizeof(line) - 1 - len);
    if (count <= 0) {
        return 0;
    }
    len += (size_t)count;
    line[len] = 0;
    while ((end = strchr(line, '\n')) != NULL) {
        size_t used = (size_t)(end - line) + 1;
        char order[LINE];
        memcpy(order, line, used - 1);
        order[used - 1] = 0;
        len -= used;
        memmove(line, line + used, len + 1);
        obey(host, netif, order);
    }
    return 1;
}

int main(int argc, char **argv)
{
    static struct casemate_lwip stack;
    static struct casemate_lwip_netif state;
    static struct netif netif;
    struct casemate_host *host;
    struct pollfd events[2] = { { 0, POLLIN, 0 }, { STDIN_FILENO, POLLIN, 0 } };
    if (argc != 4 || (events[0].fd = wire_open(argv[1], argv[2])) < 0) {
        perror("usage: host OWN PEER MEMORY");
        return 2;
    }
    lwip_init();
    host = create((size_t)atol(argv[3]));
    if (host == NULL) {
        return 0;
    }
    if (netif_add(&netif, NULL, NULL, NULL, NULL, wire_netif, ethernet_input) == NULL
        || casemate_lwip_start(&stack, host) != ERR_OK || casemate_lwip_attach(&state, &netif) != ERR_OK
        || ike_open(host) != ERR_OK) {
        return 2;
    }
    netif_set_default(&netif);
    netif_set_up(&netif);
    services_open();
    for (;;) {
        poll(events, 2, 20);
        wire_poll(&netif);
        sys_check_timeouts();
        if (events[1].revents != 0 && !take_orders(host, &netif)) {
            break;
        }
    }
    ike_close();
    casemate_lwip_detach(&state);
    casemate_destroy(host);
    return 0;
}
