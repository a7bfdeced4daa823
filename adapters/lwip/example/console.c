/* console.c - see console.h. */

#include "console.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "ike.h"
#include "jobs.h"
#include "ping.h"
#include "setup.h"
#include "sockets.h"

#define LINE 1024
#define WORDS 200
#define TEXT 300

const char console_help[] =
    "Commands of --console; the response is `0 ...` for success, `1 ...` for failure:\n"
    "  a line of the configuration      add an address, SA, policy or connection\n"
    "  keys FILE                        replace all SAs and policies; the file's addresses are ignored\n"
    "  drops                            print the drop counters\n"
    "  costs                            print the memory of the tables, and the free memory, in bytes\n"
    "  ping FROM TO SIZE...             send echo requests, one after the other; SIZE is N or FIRST-LAST\n"
    "  udp FROM TO BYTES                send a datagram to the echo service and receive it again\n"
    "  tcp FROM TO BYTES                send bytes to the echo service and receive them again\n"
    "  get TO                           fetch a page by HTTP with the socket interface, in builds with "
    "threads\n"
    "  iperf TO                         send to an iperf server for ten seconds\n";

void console_respond(int failed, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%d ", failed);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

/* Adds an item of the configuration. */
static void add_item(struct console *console, char *line)
{
    struct config single;
    char error[TEXT];
    int is_wrong;
    memset(&single, 0, sizeof(single));
    is_wrong = config_line(&single.items[0], line, error, sizeof(error)) != 0;
    if (!is_wrong && (single.items[0].kind == ITEM_NEIGHBOUR || single.items[0].kind == ITEM_TABLES
                      || single.items[0].kind == ITEM_UNMATCHED)) {
        snprintf(error, sizeof(error), "this item can only be set at the start, in the configuration file");
        is_wrong = 1;
    }
    if (!is_wrong) {
        is_wrong = setup_item(&single.items[0], console->stack->host, console->netif, error,
                              sizeof(error)) != 0;
    }
    console_respond(is_wrong, "%s", error);
    config_forget(&single);
}

/*
 * Creates a host with the SAs and policies of a file, and returns its table sizes. Returns NULL on an
 * error.
 */
static struct casemate_host *load(const struct console *console, struct casemate_tables *tables,
                                  const char *path, char *error, size_t room)
{
    static struct config config;
    struct casemate_host *host = NULL;
    if (config_file(&config, path, error, room) == 0
        && setup_host(&config, console->mtu, &host, error, room) == 0) {
        for (int at = 0; at < config.count; at++) {
            if (config.items[at].kind == ITEM_ADDRESS || config.items[at].kind == ITEM_GATEWAY) {
                config.items[at].kind = ITEM_NONE;
            }
        }
        *tables = setup_tables(&config);
        if (ike_use(host) != ERR_OK || setup_items(&config, host, console->netif, error, room) != 0) {
            ike_use(console->stack->host);
            casemate_destroy(host);
            host = NULL;
        }
    }
    config_forget(&config);
    return host;
}

static void load_keys(struct console *console, const char *path)
{
    char error[TEXT] = "Casemate is not used (--plain), so keys cannot be loaded";
    struct casemate_tables tables;
    struct casemate_host *before = console->stack->host;
    struct casemate_host *host = before != NULL ? load(console, &tables, path, error, sizeof(error)) : NULL;
    if (host == NULL) {
        console_respond(1, "%s", error);
        return;
    }
    casemate_lwip_use(console->stack, host);
    console->tables = tables;
    casemate_destroy(before);
    console_respond(0, "loaded");
}

static void print_drops(const struct casemate_host *host)
{
    char text[2000] = "";
    const char *name;
    size_t len, at = 0;
    uint64_t count;
    for (size_t index = 0; casemate_drops(host, index, &name, &len, &count) == CASEMATE_OK; index++) {
        if (count > 0 && at < sizeof(text)) {
            int added = snprintf(text + at, sizeof(text) - at, "%s%.*s %llu", at == 0 ? "" : ", ", (int)len,
                                 name,
                                 (unsigned long long)count);
            at += (size_t)added;
        }
    }
    console_respond(0, "%s%s", at == 0 ? "nothing dropped" : "dropped: ", text);
}

static void print_costs(const struct console *console)
{
    struct casemate_costs costs;
    int32_t code = casemate_limits(&console->tables, &costs);
    if (code != CASEMATE_OK) {
        console_respond(1, "%s", casemate_strerror(code));
        return;
    }
    console_respond(0, "host %zu, sa %zu, policy %zu, ike %zu, child %zu, exchange %zu, total %zu, free %zu",
                    costs.host, costs.sa, costs.policy,
                   costs.ike_sa, costs.ike_child, costs.ike_exchange, costs.total,
                   casemate_memory_free());
}

/* Splits a command into words. Returns their number. */
static int split(char *line, char **words)
{
    char *rest = line;
    int count = 0;
    while (count < WORDS && (words[count] = strtok_r(rest, " \t\r\n", &rest)) != NULL) {
        count++;
    }
    return count;
}

static void ping(const ip_addr_t *from, const ip_addr_t *to, char **sizes, int count)
{
    ping_init(from, to);
    for (int at = 0; at < count; at++) {
        if (!ping_add(sizes[at])) {
            console_respond(1, "`%s`: expected a size in bytes or FIRST-LAST, no more than 512 in all",
                            sizes[at]);
            return;
        }
    }
    ping_start();
}

/* Starts a request from a local address to a remote one. */
static void start_job(char **words, int count)
{
    ip_addr_t from, to;
    int bytes = atoi(words[3]);
    if (!ipaddr_aton(words[1], &from) || !ipaddr_aton(words[2], &to)) {
        console_respond(1, "`%s %s`: expected two addresses", words[1], words[2]);
    } else if (strcmp(words[0], "ping") == 0) {
        ping(&from, &to, words + 3, count - 3);
    } else if (strcmp(words[0], "udp") == 0 && count == 4) {
        job_udp(&from, &to, bytes);
    } else if (strcmp(words[0], "tcp") == 0 && count == 4) {
        job_tcp(&from, &to, bytes);
    } else {
        console_respond(1, "`%s`: unknown command; the option --help lists the commands", words[0]);
    }
}

static void iperf(const char *address)
{
    ip_addr_t to;
    if (ipaddr_aton(address, &to)) {
        job_iperf(&to);
    } else {
        console_respond(1, "`%s`: expected an address", address);
    }
}

static void execute(struct console *console, char *line)
{
    char *words[WORDS + 1] = { NULL };
    int count;
    if (config_knows(line)) {
        add_item(console, line);
        return;
    }
    count = split(line, words);
    if (count == 2 && strcmp(words[0], "keys") == 0) {
        load_keys(console, words[1]);
    } else if (count == 1 && strcmp(words[0], "drops") == 0) {
        print_drops(console->stack->host);
    } else if (count == 1 && strcmp(words[0], "costs") == 0) {
        print_costs(console);
    } else if (count == 2 && strcmp(words[0], "iperf") == 0) {
        iperf(words[1]);
    } else if (count == 2 && strcmp(words[0], "get") == 0) {
        sockets_get(words[1]);
    } else if (count > 0 && ike_command(console->stack->host, words, count)) {
        return;
    } else if (count >= 4) {
        start_job(words, count);
    } else {
        console_respond(1, "`%s`: unknown command; the option --help lists the commands", words[0]);
    }
}

int console_poll(struct console *console)
{
    static char buffered[LINE];
    static size_t len;
    char *end;
    ssize_t count = read(STDIN_FILENO, buffered + len, sizeof(buffered) - 1 - len);
    if (count <= 0) {
        return 0;
    }
    len += (size_t)count;
    buffered[len] = 0;
    while ((end = strchr(buffered, '\n')) != NULL) {
        size_t used = (size_t)(end - buffered) + 1;
        char line[LINE];
        memcpy(line, buffered, used - 1);
        line[used - 1] = 0;
        len -= used;
        memmove(buffered, buffered + used, len + 1);
        execute(console, line);
    }
    return 1;
}
