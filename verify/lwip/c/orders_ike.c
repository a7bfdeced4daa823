/* orders_ike.c - see orders_ike.h. */

#include "orders_ike.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "orders.h"

#define FILE_BYTES 8192
#define EVENTS 2048

static struct casemate_lwip_ike ike;
static char happened[EVENTS];
u32_t ike_later;

static void note(void *context, const struct casemate_event *event)
{
    static const char *const kinds[] = { "", "ike-up", "ike-rekeyed", "ike-down", "child-up", "child-rekeyed", "child-down", "not-begun" };
    size_t at = strlen(happened);
    LWIP_UNUSED_ARG(context);
    snprintf(happened + at, sizeof(happened) - at, "%s %s %s %s;", kinds[event->kind], event->connection, event->child, event->reason);
}

err_t ike_open(struct casemate_host *host)
{
    return casemate_lwip_ike_start(&ike, host, note, NULL);
}

void ike_close(void)
{
    casemate_lwip_ike_stop(&ike);
}

/* ---- connection ---- */

/* A connection with one child, and what its pointers name. */
struct wanted {
    struct casemate_connection connection;
    struct casemate_child child;
    u8_t files[4][FILE_BYTES];
    int file_count;
    int is_wrong;
};

static struct casemate_address address(struct wanted *wanted, const char *text)
{
    struct casemate_address out;
    memset(&out, 0, sizeof(out));
    if (inet_pton(AF_INET, text, out.bytes) == 1) {
        out.version = 4;
    } else if (inet_pton(AF_INET6, text, out.bytes) == 1) {
        out.version = 6;
    } else {
        wanted->is_wrong = 1;
    }
    return out;
}

/* The contents of a file. */
static struct casemate_bytes contents(struct wanted *wanted, const char *path)
{
    struct casemate_bytes out = { NULL, 0 };
    FILE *file = fopen(path, "rb");
    if (file == NULL || wanted->file_count == 4) {
        wanted->is_wrong = 1;
    } else {
        out.data = wanted->files[wanted->file_count++];
        out.bytes = fread((void *)out.data, 1, FILE_BYTES, file);
    }
    if (file != NULL) {
        fclose(file);
    }
    return out;
}

static uint32_t authentication(struct wanted *wanted, const char *word)
{
    static const char *const words[] = { "psk", "raw", "cert" };
    uint32_t at;
    for (at = 0; at < 3; at++) {
        if (strcmp(word, words[at]) == 0) {
            return CASEMATE_SHARED_KEY + at;
        }
    }
    wanted->is_wrong = 1;
    return 0;
}

static uint32_t start(const char *word)
{
    return strcmp(word, "now") == 0 ? CASEMATE_START_AT_ONCE : strcmp(word, "traffic") == 0 ? CASEMATE_START_ON_TRAFFIC : 0;
}

static void take_connection_word(struct wanted *wanted, const char *name, const char *value)
{
    struct casemate_connection *connection = &wanted->connection;
    if (strcmp(name, "local") == 0) {
        connection->local = address(wanted, value);
    } else if (strcmp(name, "remote") == 0) {
        connection->remote = address(wanted, value);
    } else if (strcmp(name, "proposals") == 0) {
        connection->proposals = value;
    } else if (strcmp(name, "local-id") == 0) {
        connection->local_id = value;
    } else if (strcmp(name, "remote-id") == 0) {
        connection->remote_id = value;
    } else if (strcmp(name, "auth") == 0) {
        connection->local_auth = connection->remote_auth = authentication(wanted, value);
    } else if (strcmp(name, "secret") == 0) {
        connection->shared_key.data = (const uint8_t *)value;
        connection->shared_key.bytes = strlen(value);
    } else if (strcmp(name, "key") == 0) {
        connection->private_key = contents(wanted, value);
    } else if (strcmp(name, "certs") == 0) {
        connection->certificates = contents(wanted, value);
    } else if (strcmp(name, "peer-key") == 0) {
        connection->peer_key = contents(wanted, value);
    } else if (strcmp(name, "cas") == 0) {
        connection->authorities = contents(wanted, value);
    } else if (strcmp(name, "dpd") == 0) {
        connection->dpd_seconds = (uint32_t)atoi(value);
    } else if (strcmp(name, "rekey") == 0) {
        connection->rekey_seconds = (uint32_t)atoi(value);
    } else if (strcmp(name, "encap") == 0) {
        connection->force_encap = (uint32_t)atoi(value);
    } else {
        wanted->is_wrong = 1;
    }
}

/* Words of the child; 0 if it is none. */
static int take_child_word(struct wanted *wanted, const char *name, const char *value)
{
    struct casemate_child *child = &wanted->child;
    if (strcmp(name, "mode") == 0) {
        child->mode = strcmp(value, "tunnel") == 0 ? CASEMATE_TUNNEL : CASEMATE_TRANSPORT;
    } else if (strcmp(name, "esp") == 0) {
        child->proposals = value;
    } else if (strcmp(name, "ah") == 0) {
        child->proposals = value;
        child->protocol = CASEMATE_AH;
    } else if (strcmp(name, "local-ts") == 0) {
        child->local_traffic = value;
    } else if (strcmp(name, "remote-ts") == 0) {
        child->remote_traffic = value;
    } else if (strcmp(name, "start") == 0) {
        child->start = start(value);
    } else if (strcmp(name, "restart") == 0) {
        child->restart = (uint32_t)atoi(value);
    } else if (strcmp(name, "child-rekey") == 0) {
        child->rekey_seconds = (uint32_t)atoi(value);
    } else {
        return 0;
    }
    return 1;
}

/* Adds a connection with a child called "all". */
static void add_connection(char **words, int count)
{
    static struct wanted wanted;
    int32_t code;
    int at;
    memset(&wanted, 0, sizeof(wanted));
    wanted.connection.name = words[1];
    wanted.connection.local_auth = wanted.connection.remote_auth = CASEMATE_SHARED_KEY;
    wanted.connection.tries = 1;
    wanted.connection.children = &wanted.child;
    wanted.connection.child_count = 1;
    wanted.child.name = "all";
    wanted.child.protocol = CASEMATE_ESP;
    wanted.child.mode = CASEMATE_TUNNEL;
    wanted.child.replay_window = 64;
    for (at = 2; at < count; at++) {
        char *value = strchr(words[at], '=');
        if (value == NULL) {
            wanted.is_wrong = 1;
            break;
        }
        *value++ = 0;
        if (!take_child_word(&wanted, words[at], value)) {
            take_connection_word(&wanted, words[at], value);
        }
    }
    if (wanted.is_wrong) {
        answer(1, "that is no connection");
        return;
    }
    code = casemate_lwip_add_connection(&ike, &wanted.connection);
    answer(code != CASEMATE_OK, casemate_strerror(code));
}

/* ---- looking ---- */

static void tell_counts(const struct casemate_host *host)
{
    struct casemate_ike_counts counts;
    char text[200];
    casemate_ike_count(host, &counts);
    snprintf(text, sizeof(text), "ike=%u half-open=%u children=%u lost-events=%u refused=%llu lost=%u", (unsigned)counts.ike_sas,
             (unsigned)counts.half_open, (unsigned)counts.child_sas, (unsigned)counts.lost_events,
             (unsigned long long)counts.refused, (unsigned)ike.lost);
    answer(0, text);
}

static void tell_faults(const struct casemate_host *host)
{
    char text[EVENTS] = "";
    const char *name;
    size_t index, len;
    uint64_t count;
    for (index = 0; casemate_ike_faults(host, index, &name, &len, &count) == CASEMATE_OK; index++) {
        size_t at = strlen(text);
        if (count > 0) {
            snprintf(text + at, sizeof(text) - at, " %.*s=%llu", (int)len, name, (unsigned long long)count);
        }
    }
    answer(0, text);
}

static void tell_children(const struct casemate_host *host, const char *name)
{
    char text[32];
    size_t count = 0;
    int32_t code = casemate_child_sas(host, name, &count);
    snprintf(text, sizeof(text), "%zu", count);
    answer(code != CASEMATE_OK, code != CASEMATE_OK ? casemate_strerror(code) : text);
}

int obey_ike(struct casemate_host *host, char **words, int count)
{
    static const struct {
        const char *name;
        s32_t (*act)(struct casemate_lwip_ike *, const char *);
    } commands[] = {
        { "remove", casemate_lwip_remove_connection }, { "initiate", casemate_lwip_initiate },
        { "terminate", casemate_lwip_terminate },      { "rekey", casemate_lwip_rekey },
    };
    size_t at;
    for (at = 0; count == 2 && at < LWIP_ARRAYSIZE(commands); at++) {
        if (strcmp(words[0], commands[at].name) == 0) {
            int32_t code = commands[at].act(&ike, words[1]);
            answer(code != CASEMATE_OK, casemate_strerror(code));
            return 1;
        }
    }
    if (count >= 2 && strcmp(words[0], "connection") == 0) {
        add_connection(words, count);
    } else if (count == 2 && strcmp(words[0], "children") == 0) {
        tell_children(host, words[1]);
    } else if (count == 2 && strcmp(words[0], "clock") == 0) {
        int32_t code = casemate_ike_clock(host, strtoull(words[1], NULL, 10), casemate_lwip_now());
        answer(code != CASEMATE_OK, casemate_strerror(code));
    } else if (count == 2 && strcmp(words[0], "later") == 0) {
        ike_later += (u32_t)atoi(words[1]);
        answer(0, "later");
    } else if (count == 1 && strcmp(words[0], "events") == 0) {
        answer(0, happened);
        happened[0] = 0;
    } else if (count == 1 && strcmp(words[0], "ike") == 0) {
        tell_counts(host);
    } else if (count == 1 && strcmp(words[0], "faults") == 0) {
        tell_faults(host);
    } else {
        return 0;
    }
    return 1;
}
