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
    "Orders of --console, each answered by `0 ...` or, if it failed, `1 ...`:\n"
    "  a line of the configuration      an address, SA, policy or connection more\n"
    "  keys FILE                        other SAs and policies in place of all that there are; its addresses stay as they are\n"
    "  drops                            how many packets were dropped, and why\n"
    "  costs                            bytes that the tables take, bytes of memory that are free\n"
    "  ping FROM TO SIZE...             echo requests, one after the other; SIZE is N or FIRST-LAST\n"
    "  udp FROM TO BYTES                a datagram to the echo service and back\n"
    "  tcp FROM TO BYTES                bytes to the echo service and back\n"
    "  get TO                           a page by HTTP and the socket interface, in builds with threads\n"
    "  iperf TO                         ten seconds to an iperf server\n";

void console_answer(int failed, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%d ", failed);
    vprintf(format, arguments);
    printf("\n");
    fflush(stdout);
    va_end(arguments);
}

/* An item of the configuration. */
static void add_item(struct console *console, char *line)
{
    struct config one;
    char error[TEXT];
    int is_wrong;
    memset(&one, 0, sizeof(one));
    is_wrong = config_line(&one.items[0], line, error, sizeof(error)) != 0;
    if (!is_wrong && (one.items[0].kind == ITEM_NEIGHBOUR || one.items[0].kind == ITEM_TABLES
                      || one.items[0].kind == ITEM_UNMATCHED)) {
        snprintf(error, sizeof(error), "this has to be known from the start");
        is_wrong = 1;
    }
    if (!is_wrong) {
        is_wrong = setup_item(&one.items[0], console->stack->host, console->netif, error, sizeof(error)) != 0;
    }
    console_answer(is_wrong, "%s", error);
    config_forget(&one);
}

/* A host with other SAs and policies, and its tables; or NULL. */
static struct casemate_host *load(const struct console *console, struct casemate_tables *tables, const char *path, char *error, size_t room)
{
    static struct config config;
    struct casemate_host *host = NULL;
    if (config_file(&config, path, error, room) == 0 && setup_host(&config, console->mtu, &host, error, room) == 0) {
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

static void take_keys(struct console *console, const char *path)
{
    char error[TEXT] = "there is no Casemate to give keys to";
    struct casemate_tables tables;
    struct casemate_host *before = console->stack->host;
    struct casemate_host *host = before != NULL ? load(console, &tables, path, error, sizeof(error)) : NULL;
    if (host == NULL) {
        console_answer(1, "%s", error);
        return;
    }
    casemate_lwip_use(console->stack, host);
    console->tables = tables;
    casemate_destroy(before);
    console_answer(0, "loaded");
}

static void tell_drops(const struct casemate_host *host)
{
    char text[2000] = "";
    const char *name;
    size_t len, at = 0;
    uint64_t count;
    for (size_t index = 0; casemate_drops(host, index, &name, &len, &count) == CASEMATE_OK; index++) {
        if (count > 0 && at < sizeof(text)) {
            int added = snprintf(text + at, sizeof(text) - at, "%s%.*s %llu", at == 0 ? "" : ", ", (int)len, name,
                                 (unsigned long long)count);
            at += (size_t)added;
        }
    }
    console_answer(0, "%s%s", at == 0 ? "nothing dropped" : "dropped: ", text);
}

static void tell_costs(const struct console *console)
{
    struct casemate_costs costs;
    int32_t code = casemate_limits(&console->tables, &costs);
    if (code != CASEMATE_OK) {
        console_answer(1, "%s", casemate_strerror(code));
        return;
    }
    console_answer(0, "host %zu, sa %zu, policy %zu, ike %zu, child %zu, exchange %zu, total %zu, free %zu", costs.host, costs.sa, costs.policy,
                   costs.ike_sa, costs.ike_child, costs.ike_exchange, costs.total,
                   casemate_memory_free());
}

/* The words of an order; how many. */
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
    ping_begin(from, to);
    for (int at = 0; at < count; at++) {
        if (!ping_add(sizes[at])) {
            console_answer(1, "`%s`: expected a size in bytes or FIRST-LAST, no more than 512 in all", sizes[at]);
            return;
        }
    }
    ping_start();
}

/* A request from an address of ours to another. */
static void begin_job(char **words, int count)
{
    ip_addr_t from, to;
    int bytes = atoi(words[3]);
    if (!ipaddr_aton(words[1], &from) || !ipaddr_aton(words[2], &to)) {
        console_answer(1, "`%s %s`: expected two addresses", words[1], words[2]);
    } else if (strcmp(words[0], "ping") == 0) {
        ping(&from, &to, words + 3, count - 3);
    } else if (strcmp(words[0], "udp") == 0 && count == 4) {
        job_udp(&from, &to, bytes);
    } else if (strcmp(words[0], "tcp") == 0 && count == 4) {
        job_tcp(&from, &to, bytes);
    } else {
        console_answer(1, "`%s`: --help has the orders", words[0]);
    }
}

static void iperf(const char *address)
{
    ip_addr_t to;
    if (ipaddr_aton(address, &to)) {
        job_iperf(&to);
    } else {
        console_answer(1, "`%s`: expected an address", address);
    }
}

static void obey(struct console *console, char *line)
{
    char *words[WORDS + 1] = { NULL };
    int count;
    if (config_knows(line)) {
        add_item(console, line);
        return;
    }
    count = split(line, words);
    if (count == 2 && strcmp(words[0], "keys") == 0) {
        take_keys(console, words[1]);
    } else if (count == 1 && strcmp(words[0], "drops") == 0) {
        tell_drops(console->stack->host);
    } else if (count == 1 && strcmp(words[0], "costs") == 0) {
        tell_costs(console);
    } else if (count == 2 && strcmp(words[0], "iperf") == 0) {
        iperf(words[1]);
    } else if (count == 2 && strcmp(words[0], "get") == 0) {
        sockets_get(words[1]);
    } else if (count > 0 && ike_obey(console->stack->host, words, count)) {
        return;
    } else if (count >= 4) {
        begin_job(words, count);
    } else {
        console_answer(1, "`%s`: --help has the orders", words[0]);
    }
}

int console_poll(struct console *console)
{
    static char waiting[LINE];
    static size_t len;
    char *end;
    ssize_t count = read(STDIN_FILENO, waiting + len, sizeof(waiting) - 1 - len);
    if (count <= 0) {
        return 0;
    }
    len += (size_t)count;
    waiting[len] = 0;
    while ((end = strchr(waiting, '\n')) != NULL) {
        size_t used = (size_t)(end - waiting) + 1;
        char line[LINE];
        memcpy(line, waiting, used - 1);
        line[used - 1] = 0;
        len -= used;
        memmove(waiting, waiting + used, len + 1);
        obey(console, line);
    }
    return 1;
}
