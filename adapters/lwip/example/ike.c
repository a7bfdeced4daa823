/* ike.c - see ike.h. */

#include "ike.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "loop.h"

#define LINE 1024
#define FILES 4
#define FILE_BYTES 8192
#define HAPPENED 2048
#define SECONDS "a number of seconds, 0 for never"

const char ike_config_help[] =
    "  ike NAME [local ADDRESS] [remote ADDRESS] [local-id ID] [remote-id ID] [proposals LIST] [psk|raw|cert] ...\n"
    "                                   a connection of IKEv2; words are those of casemate_ike.h, IDs have no blanks\n"
    "     ... [secret TEXT] [key FILE] [peer-key FILE] [certs FILE] [cas FILE] [dpd N] [rekey N] [tries N] [encap] ...\n"
    "     ... [tunnel|transport] [esp LIST | ah LIST] [local-ts LIST] [remote-ts LIST] [now] [traffic] [restart]\n"
    "     ... [window N] [child-rekey N] [child-rekey-bytes N]\n"
    "                                   its one child, which is called `all`\n";

const char ike_console_help[] =
    "  initiate|terminate|rekey NAME    NAME is a connection, or with /all its child\n"
    "  remove NAME                      forgets a connection and closes what it has\n"
    "  children NAME                    how many Child SAs there are\n"
    "  events                           what IKE told since the last time\n"
    "  counts                           IKE SAs, half-open ones, Child SAs, what was refused\n"
    "  faults                           what peers did wrong\n"
    "  clock SECONDS                    the time of day, since 1970: certificates are judged by it\n"
    "  later MS                         for tests, with NO_SYS: as if so many milliseconds had passed\n";

static struct casemate_lwip_ike ike;
static char happened[HAPPENED];

/* A connection with one child, and what their pointers name. */
struct wanted {
    struct casemate_connection connection;
    struct casemate_child child;
    uint8_t files[FILES][FILE_BYTES];
    int file_count;
};

/* ---- words ---- */

/* The contents of a file. */
static struct casemate_bytes contents(struct words *words, struct wanted *wanted)
{
    struct casemate_bytes out = { NULL, 0 };
    const char *path = words_next(words);
    FILE *file = path != NULL && wanted->file_count < FILES ? fopen(path, "rb") : NULL;
    if (file == NULL) {
        words_complain(words, "a file that can be read");
        return out;
    }
    out.data = wanted->files[wanted->file_count++];
    out.bytes = fread((void *)out.data, 1, FILE_BYTES, file);
    if (out.bytes == FILE_BYTES) {
        words_complain(words, "a file shorter than 8192 bytes");
    }
    fclose(file);
    return out;
}

static const char *text(struct words *words)
{
    const char *word = words_next(words);
    if (word == NULL) {
        words_complain(words, "a word more");
    }
    return word;
}

static uint32_t number(struct words *words, const char *expected)
{
    return (uint32_t)words_number(words, 0, UINT32_MAX, expected);
}

static void read_secret(struct words *words, struct casemate_connection *connection)
{
    const char *secret = text(words);
    connection->shared_key.data = (const uint8_t *)secret;
    connection->shared_key.bytes = secret != NULL ? strlen(secret) : 0;
}

/* How both sides prove who they are; 0 if the next word is something else. */
static int read_proof(struct words *words, struct wanted *wanted)
{
    struct casemate_connection *connection = &wanted->connection;
    uint32_t how;
    if (words_take(words, "psk")) {
        how = CASEMATE_SHARED_KEY;
    } else if (words_take(words, "raw")) {
        how = CASEMATE_RAW_KEY;
    } else if (words_take(words, "cert")) {
        how = CASEMATE_CERTIFICATE;
    } else if (words_take(words, "secret")) {
        read_secret(words, connection);
        return 1;
    } else if (words_take(words, "key")) {
        connection->private_key = contents(words, wanted);
        return 1;
    } else if (words_take(words, "peer-key")) {
        connection->peer_key = contents(words, wanted);
        return 1;
    } else if (words_take(words, "certs")) {
        connection->certificates = contents(words, wanted);
        return 1;
    } else if (words_take(words, "cas")) {
        connection->authorities = contents(words, wanted);
        return 1;
    } else {
        return 0;
    }
    connection->local_auth = connection->remote_auth = how;
    return 1;
}

/* What else there is to a connection; 0 if the next word is something else. */
static int read_connection(struct words *words, struct casemate_connection *connection)
{
    if (words_take(words, "local")) {
        connection->local = words_address(words, "an address of ours");
    } else if (words_take(words, "remote")) {
        connection->remote = words_address(words, "an address of the peer's");
    } else if (words_take(words, "local-id")) {
        connection->local_id = text(words);
    } else if (words_take(words, "remote-id")) {
        connection->remote_id = text(words);
    } else if (words_take(words, "proposals")) {
        connection->proposals = text(words);
    } else if (words_take(words, "dpd")) {
        connection->dpd_seconds = number(words, SECONDS);
    } else if (words_take(words, "rekey")) {
        connection->rekey_seconds = number(words, SECONDS);
    } else if (words_take(words, "tries")) {
        connection->tries = number(words, "a number of tries, 0 for no end");
    } else if (words_take(words, "encap")) {
        connection->force_encap = 1;
    } else {
        return 0;
    }
    return 1;
}

/* What there is to a child; 0 if the next word is something else. */
static int read_child(struct words *words, struct casemate_child *child)
{
    if (words_take(words, "tunnel")) {
        child->mode = CASEMATE_TUNNEL;
    } else if (words_take(words, "transport")) {
        child->mode = CASEMATE_TRANSPORT;
    } else if (words_take(words, "esp")) {
        child->proposals = text(words);
    } else if (words_take(words, "ah")) {
        child->protocol = CASEMATE_AH;
        child->proposals = text(words);
    } else if (words_take(words, "local-ts")) {
        child->local_traffic = text(words);
    } else if (words_take(words, "remote-ts")) {
        child->remote_traffic = text(words);
    } else if (words_take(words, "now")) {
        child->start |= CASEMATE_START_AT_ONCE;
    } else if (words_take(words, "traffic")) {
        child->start |= CASEMATE_START_ON_TRAFFIC;
    } else if (words_take(words, "restart")) {
        child->restart = 1;
    } else if (words_take(words, "window")) {
        child->replay_window = number(words, "a number of packets");
    } else if (words_take(words, "child-rekey")) {
        child->rekey_seconds = number(words, SECONDS);
    } else if (words_take(words, "child-rekey-bytes")) {
        child->rekey_bytes = words_number(words, 0, UINT64_MAX, "a number of bytes, 0 for never");
    } else {
        return 0;
    }
    return 1;
}

/* Reads what follows `ike`. */
static void read_wanted(struct words *words, struct wanted *wanted)
{
    memset(wanted, 0, sizeof(*wanted));
    wanted->connection.name = text(words);
    wanted->connection.local_auth = wanted->connection.remote_auth = CASEMATE_SHARED_KEY;
    wanted->connection.tries = 1;
    wanted->connection.children = &wanted->child;
    wanted->connection.child_count = 1;
    wanted->child.name = "all";
    wanted->child.protocol = CASEMATE_ESP;
    wanted->child.mode = CASEMATE_TUNNEL;
    wanted->child.replay_window = 64;
    while (words->error[0] == 0 && words->at < words->count) {
        if (!read_proof(words, wanted) && !read_connection(words, &wanted->connection) && !read_child(words, &wanted->child)) {
            words_next(words);
            words_complain(words, "a word of a connection (--help has them)");
        }
    }
}

/* Forgets keys. */
static void forget(struct wanted *wanted)
{
    volatile uint8_t *bytes = (volatile uint8_t *)wanted;
    for (size_t at = 0; at < sizeof(*wanted); at++) {
        bytes[at] = 0;
    }
}

void ike_check(struct words *words)
{
    static struct wanted wanted;
    read_wanted(words, &wanted);
    forget(&wanted);
}

int ike_add(const char *line, char *error, size_t room)
{
    static struct wanted wanted;
    struct words words;
    char copy[LINE];
    s32_t code = CASEMATE_ERR_VALUE;
    snprintf(copy, sizeof(copy), "%s", line);
    words_split(&words, copy);
    words_next(&words);
    read_wanted(&words, &wanted);
    if (words.error[0] == 0 && ike.host == NULL) {
        snprintf(error, room, "there is no Casemate to give connections to");
    } else if (words.error[0] == 0) {
        code = casemate_lwip_add_connection(&ike, &wanted.connection);
        snprintf(error, room, "%s", casemate_strerror(code));
    } else {
        snprintf(error, room, "%s", words.error);
    }
    forget(&wanted);
    return code == CASEMATE_OK ? 0 : -1;
}

/* ---- work ---- */

static void note(void *context, const struct casemate_event *event)
{
    static const char *const kinds[] = {
        "", "ike-up", "ike-rekeyed", "ike-down", "child-up", "child-rekeyed", "child-down", "not-begun",
    };
    size_t at = strlen(happened);
    LWIP_UNUSED_ARG(context);
    snprintf(happened + at, sizeof(happened) - at, "%s %s%s%s%s%s; ", kinds[event->kind], event->connection,
             event->child[0] != 0 ? "/" : "", event->child, event->reason[0] != 0 ? ": " : "", event->reason);
}

err_t ike_use(struct casemate_host *host)
{
    if (ike.host != NULL) {
        casemate_lwip_ike_stop(&ike);
        ike.host = NULL;
    }
    return host != NULL ? casemate_lwip_ike_start(&ike, host, note, NULL) : ERR_OK;
}

static void tell_counts(const struct casemate_host *host)
{
    struct casemate_ike_counts counts;
    casemate_ike_count(host, &counts);
    console_answer(0, "ike %u, half-open %u, children %u, lost events %u, refused %llu, lost datagrams %u", (unsigned)counts.ike_sas,
                   (unsigned)counts.half_open, (unsigned)counts.child_sas, (unsigned)counts.lost_events,
                   (unsigned long long)counts.refused, (unsigned)ike.lost);
}

static void tell_faults(const struct casemate_host *host)
{
    char all[HAPPENED] = "";
    const char *name;
    size_t len, at = 0;
    uint64_t count;
    for (size_t index = 0; casemate_ike_faults(host, index, &name, &len, &count) == CASEMATE_OK; index++) {
        if (count > 0 && at < sizeof(all)) {
            at += (size_t)snprintf(all + at, sizeof(all) - at, "%s%.*s %llu", at == 0 ? "" : ", ", (int)len, name, (unsigned long long)count);
        }
    }
    console_answer(0, "%s", all);
}

static void tell_children(const struct casemate_host *host, const char *name)
{
    size_t count = 0;
    s32_t code = casemate_child_sas(host, name, &count);
    if (code == CASEMATE_OK) {
        console_answer(0, "%zu", count);
    } else {
        console_answer(1, "%s", casemate_strerror(code));
    }
}

/* The orders that are a function and a name; 0 if it is none. */
static int obey_command(char **words)
{
    static const struct {
        const char *name;
        s32_t (*act)(struct casemate_lwip_ike *, const char *);
    } commands[] = {
        { "remove", casemate_lwip_remove_connection }, { "initiate", casemate_lwip_initiate },
        { "terminate", casemate_lwip_terminate },      { "rekey", casemate_lwip_rekey },
    };
    for (size_t at = 0; at < LWIP_ARRAYSIZE(commands); at++) {
        if (strcmp(words[0], commands[at].name) == 0) {
            s32_t code = commands[at].act(&ike, words[1]);
            console_answer(code != CASEMATE_OK, "%s", casemate_strerror(code));
            return 1;
        }
    }
    return 0;
}

int ike_obey(struct casemate_host *host, char **words, int count)
{
    if (ike.host == NULL) {
        return 0;
    }
    if (count == 2 && obey_command(words)) {
        return 1;
    }
    if (count == 2 && strcmp(words[0], "children") == 0) {
        tell_children(host, words[1]);
    } else if (count == 2 && strcmp(words[0], "clock") == 0) {
        s32_t code = casemate_ike_clock(host, strtoull(words[1], NULL, 10), casemate_lwip_now());
        console_answer(code != CASEMATE_OK, "%s", casemate_strerror(code));
#if NO_SYS
    } else if (count == 2 && strcmp(words[0], "later") == 0) {
        loop_later((u32_t)atoi(words[1]));
        console_answer(0, "later");
#endif
    } else if (count == 1 && strcmp(words[0], "events") == 0) {
        console_answer(0, "%s", happened);
        happened[0] = 0;
    } else if (count == 1 && strcmp(words[0], "counts") == 0) {
        tell_counts(host);
    } else if (count == 1 && strcmp(words[0], "faults") == 0) {
        tell_faults(host);
    } else {
        return 0;
    }
    return 1;
}
