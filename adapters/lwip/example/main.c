/*
 * main.c - lwIP with Casemate, as a program for Linux.
 *
 * start() below shows what a device's own program does with Casemate. The rest is specific to Linux:
 * options, a configuration file, frames through a descriptor.
 */

#include <stdio.h>
#include <stdlib.h>

#include "casemate_lwip.h"
#include "config.h"
#include "console.h"
#include "ike.h"
#include "link.h"
#include "loop.h"
#include "options.h"
#include "ping.h"
#include "services.h"
#include "setup.h"
#include "sockets.h"

#define TEXT 300

static struct casemate_lwip stack;
static struct casemate_lwip_netif guarded;
static struct netif netif;
static struct config config;

/* Called by Casemate on an internal error. */
void casemate_panic(const char *file, size_t file_bytes, uint32_t line)
{
    fprintf(stderr, "casemate: internal error at %.*s:%u\n", (int)file_bytes, file, (unsigned)line);
    abort();
}

static int open_link(const struct options *options)
{
    return options->tap != NULL ? link_open_tap(options->tap)
         : options->own != NULL ? link_open_unix(options->own, options->peer)
                                : options->fd;
}

/* Attaches Casemate between lwIP and the interface. Returns 0, or -1 with a message in error. */
static int guard(const struct options *options, char *error, size_t room)
{
    enum casemate_lwip_place place = options->is_below ? CASEMATE_LWIP_BELOW_IP : CASEMATE_LWIP_INSIDE_IP;
    struct casemate_host *host;
    if (setup_host(&config, options->mtu, &host, error, room) != 0) {
        return -1;
    }
    if (casemate_lwip_start(&stack, host) != ERR_OK
        || casemate_lwip_attach(&guarded, &netif, place) != ERR_OK) {
        snprintf(error, room, "lwIP lacks a setting that Casemate needs; casemate_lwip.h lists them");
        return -1;
    }
    if (ike_use(host) != ERR_OK) {
        snprintf(error, room, "lwIP lacks a setting that IKE needs; casemate_lwip_ike.h lists them");
        return -1;
    }
    return setup_items(&config, host, &netif, error, room);
}

/* Sets the addresses only, for --plain. */
static int plain(char *error, size_t room)
{
    for (int at = 0; at < config.count; at++) {
        enum item_kind kind = config.items[at].kind;
        if ((kind == ITEM_ADDRESS || kind == ITEM_GATEWAY)
            && setup_item(&config.items[at], NULL, &netif, error, room) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Sets up the interface, Casemate and the services. Called in the thread of the stack. */
static int start(const struct options *options, char *error, size_t room)
{
    int outcome;
    if (link_add(&netif, loop_fd(), options->mac, options->mtu, loop_input()) != ERR_OK) {
        snprintf(error, room, "lwIP does not accept the interface");
        return -1;
    }
    setup_link(&config, &netif);
    ping_open();
    outcome = options->is_plain ? plain(error, room) : guard(options, error, room);
    /* The configuration, which contains keys, is not needed any more. */
    config_forget(&config);
    if (outcome == 0) {
        services_open();
        netif_set_up(&netif);
    }
    return outcome;
}

static void finish(const struct options *options)
{
    if (!options->is_plain) {
        ike_use(NULL);
        casemate_lwip_detach(&guarded);
        casemate_destroy(stack.host);
    }
}

static int fail(const struct options *options, const char *error)
{
    if (options->has_console) {
        console_respond(1, "%s", error);
    } else {
        fprintf(stderr, "casemate-lwip: %s\n", error);
    }
    return 1;
}

int main(int argc, char **argv)
{
    struct options options;
    struct console console = { &stack, &netif, 0, { 0 } };
    char error[TEXT];
    int fd, status = options_read(&options, argc, argv);
    void *memory;
    if (status != 0) {
        return status - 1;
    }
    if (options.config != NULL && config_file(&config, options.config, error, sizeof(error)) != 0) {
        return fail(&options, error);
    }
    fd = open_link(&options);
    if (fd < 0) {
        perror("casemate-lwip: cannot open the interface");
        return 1;
    }
    console.mtu = options.mtu;
    console.tables = setup_tables(&config);
    memory = malloc(options.memory);
    casemate_memory(memory, options.memory);
    loop_init(fd);
    loop_lock();
    status = start(&options, error, sizeof(error));
    loop_unlock();
    if (status != 0) {
        return fail(&options, error);
    }
    if (sockets_start() != 0) {
        return fail(&options, "the page on port 8080 cannot be served: no socket or thread available");
    }
    console_respond(0, "ready");
    loop_run(&netif, options.has_console ? &console : NULL);
    loop_lock();
    finish(&options);
    loop_unlock();
    return 0;
}
