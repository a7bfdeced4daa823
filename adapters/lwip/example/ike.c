/* ike.c - see ike.h. */

#include "ike.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "loop.h"

#define LINE_BYTES 1024
#define MAX_FILES 4
#define FILE_BYTES 8192
#define EVENT_TEXT_BYTES 2048
#define SECONDS "a number of seconds, 0 for never"

const char ike_config_help[] =
    "  ike NAME [local ADDRESS] [remote ADDRESS] [local-id ID] [remote-id ID] [proposals LIST] "
    "[psk|raw|cert] ...\n"
    "                                   an IKEv2 connection; see casemate_ike.h; IDs must not contain "
    "blanks\n"
    "     ... [secret TEXT] [ppk-id ID] [ppk TEXT] [ppk-required] [key FILE] [peer-key FILE] [certs FILE] [cas FILE] [dpd N] [rekey N] [tries N] "
    "[encap] ...\n"
    "     ... [tunnel|transport] [esp LIST | ah LIST] [local-ts LIST] [remote-ts LIST] [now] [traffic] "
    "[restart]\n"
    "     ... [window N] [child-rekey N] [child-rekey-bytes N]\n"
    "                                   the connection has one child, named `all`\n";

const char ike_console_help[] =
    "  initiate|terminate|rekey NAME    NAME is a connection, or CONNECTION/all for its child\n"
    "  remove NAME                      remove a connection and close its SAs\n"
    "  children NAME                    print the number of Child SAs\n"
    "  events                           print the IKE events since the last call\n"
    "  counts                           print the numbers of IKE SAs, half-open IKE SAs, Child SAs, refused "
    "messages\n"
    "  faults                           print the counters of protocol faults of peers\n"
    "  clock SECONDS                    set the time of day in seconds since 1970, for certificates\n"
    "  later MS                         for tests, with NO_SYS: advance the clock by this many "
    "milliseconds\n";

static struct casemate_lwip_ike ike;
static char event_text[EVENT_TEXT_BYTES];

/* A connection with one child, and the file contents that their pointers refer to. */
struct connection_config {
    struct casemate_connection connection;
    struct casemate_child child;
    uint8_t files[MAX_FILES][FILE_BYTES];
    int file_count;
};

/* ---- words ---- */

/* Reads a file. */
static struct casemate_bytes read_file(struct words *words, struct connection_config *connection_config)
{
    struct casemate_bytes out = { NULL, 0 };
    const char *path = words_next(words);
    FILE *file = path != NULL && connection_config->file_count < MAX_FILES ? fopen(path, "rb") : NULL;
    if (file == NULL) {
        words_expected(words, "a readable file");
        return out;
    }
    out.data = connection_config->files[connection_config->file_count++];
    out.bytes = fread((void *)out.data, 1, FILE_BYTES, file);
    if (out.bytes == FILE_BYTES) {
        words_expected(words, "a file shorter than 8192 bytes");
    }
    fclose(file);
    return out;
}

static const char *text(struct words *words)
{
    const char *word = words_next(words);
    if (word == NULL) {
        words_expected(words, "another word");
    }
    return word;
}

static uint32_t number(struct words *words, const char *expected)
{
    return (uint32_t)words_number(words, 0, UINT32_MAX, expected);
}

static void read_secret(struct words *words, struct casemate_bytes *key)
{
    const char *secret = text(words);
    key->data = (const uint8_t *)secret;
    key->bytes = secret != NULL ? strlen(secret) : 0;
}

/* Parses an authentication method or key. Returns 0 if the next word is something else. */
static int read_auth(struct words *words, struct connection_config *connection_config)
{
    struct casemate_connection *connection = &connection_config->connection;
    uint32_t auth;
    if (words_accept(words, "psk")) {
        auth = CASEMATE_SHARED_KEY;
    } else if (words_accept(words, "raw")) {
        auth = CASEMATE_RAW_KEY;
    } else if (words_accept(words, "cert")) {
        auth = CASEMATE_CERTIFICATE;
    } else if (words_accept(words, "secret")) {
        read_secret(words, &connection->shared_key);
        return 1;
    } else if (words_accept(words, "ppk")) {
        read_secret(words, &connection->ppk);
        return 1;
    } else if (words_accept(words, "key")) {
        connection->private_key = read_file(words, connection_config);
        return 1;
    } else if (words_accept(words, "peer-key")) {
        connection->peer_key = read_file(words, connection_config);
        return 1;
    } else if (words_accept(words, "certs")) {
        connection->certificates = read_file(words, connection_config);
        return 1;
    } else if (words_accept(words, "cas")) {
        connection->authorities = read_file(words, connection_config);
        return 1;
    } else {
        return 0;
    }
    connection->local_auth = connection->remote_auth = auth;
    return 1;
}

/* Parses another option of a connection. Returns 0 if the next word is something else. */
static int read_connection(struct words *words, struct casemate_connection *connection)
{
    if (words_accept(words, "local")) {
        connection->local = words_address(words, "a local address");
    } else if (words_accept(words, "remote")) {
        connection->remote = words_address(words, "an address of the peer");
    } else if (words_accept(words, "local-id")) {
        connection->local_id = text(words);
    } else if (words_accept(words, "remote-id")) {
        connection->remote_id = text(words);
    } else if (words_accept(words, "proposals")) {
        connection->proposals = text(words);
    } else if (words_accept(words, "dpd")) {
        connection->dpd_seconds = number(words, SECONDS);
    } else if (words_accept(words, "rekey")) {
        connection->rekey_seconds = number(words, SECONDS);
    } else if (words_accept(words, "tries")) {
        connection->tries = number(words, "a number of tries, 0 for no end");
    } else if (words_accept(words, "encap")) {
        connection->force_encap = 1;
    } else if (words_accept(words, "ppk-id")) {
        connection->ppk_id = text(words);
    } else if (words_accept(words, "ppk-required")) {
        connection->ppk_required = 1;
    } else {
        return 0;
    }
    return 1;
}

/* Parses an option of a child. Returns 0 if the next word is something else. */
static int read_child(struct words *words, struct casemate_child *child)
{
    if (words_accept(words, "tunnel")) {
        child->mode = CASEMATE_TUNNEL;
    } else if (words_accept(words, "transport")) {
        child->mode = CASEMATE_TRANSPORT;
    } else if (words_accept(words, "esp")) {
        child->proposals = text(words);
    } else if (words_accept(words, "ah")) {
        child->protocol = CASEMATE_AH;
        child->proposals = text(words);
    } else if (words_accept(words, "local-ts")) {
        child->local_traffic = text(words);
    } else if (words_accept(words, "remote-ts")) {
        child->remote_traffic = text(words);
    } else if (words_accept(words, "now")) {
        child->start |= CASEMATE_START_AT_ONCE;
    } else if (words_accept(words, "traffic")) {
        child->start |= CASEMATE_START_ON_TRAFFIC;
    } else if (words_accept(words, "restart")) {
        child->restart = 1;
    } else if (words_accept(words, "window")) {
        child->replay_window = number(words, "a number of packets");
    } else if (words_accept(words, "child-rekey")) {
        child->rekey_seconds = number(words, SECONDS);
    } else if (words_accept(words, "child-rekey-bytes")) {
        child->rekey_bytes = words_number(words, 0, UINT64_MAX, "a number of bytes, 0 for never");
    } else {
        return 0;
    }
    return 1;
}

/* Parses the words after `ike`. */
static void read_config(struct words *words, struct connection_config *connection_config)
{
    memset(connection_config, 0, sizeof(*connection_config));
    connection_config->connection.name = text(words);
    connection_config->connection.local_auth = connection_config->connection.remote_auth =
        CASEMATE_SHARED_KEY;
    connection_config->connection.tries = 1;
    connection_config->connection.children = &connection_config->child;
    connection_config->connection.child_count = 1;
    connection_config->child.name = "all";
    connection_config->child.protocol = CASEMATE_ESP;
    connection_config->child.mode = CASEMATE_TUNNEL;
    connection_config->child.replay_window = 64;
    while (words->error[0] == 0 && words->at < words->count) {
        if (!read_auth(words, connection_config) && !read_connection(words, &connection_config->connection)
            && !read_child(words, &connection_config->child)) {
            words_next(words);
            words_expected(words, "an option of a connection (--help lists them)");
        }
    }
}

/* Zeroes the keys. */
static void clear_keys(struct connection_config *connection_config)
{
    volatile uint8_t *bytes = (volatile uint8_t *)connection_config;
    for (size_t at = 0; at < sizeof(*connection_config); at++) {
        bytes[at] = 0;
    }
}

void ike_check(struct words *words)
{
    static struct connection_config connection_config;
    read_config(words, &connection_config);
    clear_keys(&connection_config);
}

int ike_add(const char *line, char *error, size_t room)
{
    static struct connection_config connection_config;
    struct words words;
    char copy[LINE_BYTES];
    s32_t code = CASEMATE_ERR_VALUE;
    snprintf(copy, sizeof(copy), "%s", line);
    words_split(&words, copy);
    words_next(&words);
    read_config(&words, &connection_config);
    if (words.error[0] == 0 && ike.host == NULL) {
        snprintf(error, room, "Casemate is not used (--plain), so connections cannot be added");
    } else if (words.error[0] == 0) {
        code = casemate_lwip_add_connection(&ike, &connection_config.connection);
        snprintf(error, room, "%s", casemate_strerror(code));
    } else {
        snprintf(error, room, "%s", words.error);
    }
    clear_keys(&connection_config);
    return code == CASEMATE_OK ? 0 : -1;
}

/* ---- work ---- */

static void record_event(void *context, const struct casemate_event *event)
{
    static const char *const kinds[] = {
        "", "ike-up", "ike-rekeyed", "ike-down", "child-up", "child-rekeyed", "child-down", "not-begun",
    };
    size_t at = strlen(event_text);
    LWIP_UNUSED_ARG(context);
    snprintf(event_text + at, sizeof(event_text) - at, "%s %s%s%s%s%s; ", kinds[event->kind],
             event->connection,
             event->child[0] != 0 ? "/" : "", event->child, event->reason[0] != 0 ? ": " : "", event->reason);
}

err_t ike_use(struct casemate_host *host)
{
    if (ike.host != NULL) {
        casemate_lwip_ike_stop(&ike);
        ike.host = NULL;
    }
    return host != NULL ? casemate_lwip_ike_start(&ike, host, record_event, NULL) : ERR_OK;
}

static void print_counts(const struct casemate_host *host)
{
    struct casemate_ike_counts counts;
    casemate_ike_count(host, &counts);
    console_respond(0, "ike %u, half-open %u, children %u, lost events %u, refused %llu, lost datagrams %u",
                    (unsigned)counts.ike_sas,
                   (unsigned)counts.half_open, (unsigned)counts.child_sas, (unsigned)counts.lost_events,
                   (unsigned long long)counts.refused, (unsigned)ike.lost);
}

static void print_faults(const struct casemate_host *host)
{
    char all[EVENT_TEXT_BYTES] = "";
    const char *name;
    size_t len, at = 0;
    uint64_t count;
    for (size_t index = 0; casemate_ike_faults(host, index, &name, &len, &count) == CASEMATE_OK; index++) {
        if (count > 0 && at < sizeof(all)) {
            at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%.*s %llu", at == 0 ? "" : ", ", (int)len,
                                   name, (unsigned long long)count);
        }
    }
    console_respond(0, "%s", all);
}

static void print_children(const struct casemate_host *host, const char *name)
{
    size_t count = 0;
    s32_t code = casemate_child_sas(host, name, &count);
    if (code == CASEMATE_OK) {
        console_respond(0, "%zu", count);
    } else {
        console_respond(1, "%s", casemate_strerror(code));
    }
}

/* Executes a command that consists of a function and a name. Returns 0 for any other command. */
static int execute_named(char **words)
{
    static const struct {
        const char *name;
        s32_t (*function)(struct casemate_lwip_ike *, const char *);
    } commands[] = {
        { "remove", casemate_lwip_remove_connection }, { "initiate", casemate_lwip_initiate },
        { "terminate", casemate_lwip_terminate },      { "rekey", casemate_lwip_rekey },
    };
    for (size_t at = 0; at < LWIP_ARRAYSIZE(commands); at++) {
        if (strcmp(words[0], commands[at].name) == 0) {
            s32_t code = commands[at].function(&ike, words[1]);
            console_respond(code != CASEMATE_OK, "%s", casemate_strerror(code));
            return 1;
        }
    }
    return 0;
}

int ike_command(struct casemate_host *host, char **words, int count)
{
    if (ike.host == NULL) {
        return 0;
    }
    if (count == 2 && execute_named(words)) {
        return 1;
    }
    if (count == 2 && strcmp(words[0], "children") == 0) {
        print_children(host, words[1]);
    } else if (count == 2 && strcmp(words[0], "clock") == 0) {
        s32_t code = casemate_ike_clock(host, strtoull(words[1], NULL, 10), casemate_lwip_now());
        console_respond(code != CASEMATE_OK, "%s", casemate_strerror(code));
#if NO_SYS
    } else if (count == 2 && strcmp(words[0], "later") == 0) {
        loop_advance_clock((u32_t)atoi(words[1]));
        console_respond(0, "later");
#endif
    } else if (count == 1 && strcmp(words[0], "events") == 0) {
        console_respond(0, "%s", event_text);
        event_text[0] = 0;
    } else if (count == 1 && strcmp(words[0], "counts") == 0) {
        print_counts(host);
    } else if (count == 1 && strcmp(words[0], "faults") == 0) {
        print_faults(host);
    } else {
        return 0;
    }
    return 1;
}
