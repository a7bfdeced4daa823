/* config.c - see config.h. */

#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "ike.h"
#include "words.h"

#define LINE 1024
#define NUMBER32 "a number up to 4294967295"
#define PORT "a port up to 65535"

const char config_help[] =
    "Configuration, one item per line, `#` starts a comment:\n"
    "  address ADDRESS/LENGTH           an address of this host; may be repeated\n"
    "  gateway ADDRESS                  the default router; one per IP version\n"
    "  neighbour MAC                    send all packets to this Ethernet address, without ARP and "
    "neighbour discovery\n"
    "  tables [sas N] [policies N] [flows N] [window N] [arrivals N] [reassemblies N] [reassembly-bytes N]\n"
    "     [ike-sas N] [ike-children N]\n"
    "                                   sizes of Casemate's tables; casemate.h describes them\n"
    "  unmatched discard|bypass         action for packets that match no policy; default: discard\n"
    "  vlan N                           tag sent frames with this VLAN identifier, in builds with "
    "EXAMPLE_VLAN\n"
    "  control-plane                    let neighbour discovery, DHCP, IGMP, MLD and IKE pass in clear text\n"
    "  sa in|out esp|ah transport|tunnel src ADDRESS dst ADDRESS spi N suite NAME [encryption-key HEX]\n"
    "     [integrity-key HEX] [udp PORT] [esn] [window N] [last N] [reqid N] [align8]\n"
    "                                   suites: aes128gcm16, chacha20poly1305, aes256-sha256; for AH "
    "sha256, aescmac\n"
    "                                   a key for GCM, CCM or CTR ends with the salt; `last` is the last "
    "sequence\n"
    "                                   number used: with these suites never use a number twice with a key\n"
    "  policy in|out src RANGE dst RANGE [upper N] [src-port N] [dst-port N] [priority N] "
    "bypass|discard|protect ...\n"
    "                                   RANGE is ADDRESS, ADDRESS/LENGTH or FIRST-LAST; the lowest priority "
    "comes first\n"
    "     ... protect esp|ah transport|tunnel [from ADDRESS to ADDRESS] [reqid N] [around ah|esp "
    "transport|tunnel ...]\n";

static const char *const kinds[] = {
    "address", "gateway", "neighbour", "tables", "unmatched", "control-plane", "sa", "policy", "ike", "vlan",
        NULL,
};

static uint32_t direction(struct words *words)
{
    static const char *const names[] = { "out", "in", NULL };
    return words_one_of(words, names, "`in` or `out`") == 0 ? CASEMATE_OUT : CASEMATE_IN;
}

static uint32_t protocol(struct words *words)
{
    static const char *const names[] = { "esp", "ah", NULL };
    return words_one_of(words, names, "`esp` or `ah`") == 0 ? CASEMATE_ESP : CASEMATE_AH;
}

static uint32_t mode(struct words *words)
{
    static const char *const names[] = { "transport", "tunnel", NULL };
    return words_one_of(words, names, "`transport` or `tunnel`") == 0 ? CASEMATE_TRANSPORT : CASEMATE_TUNNEL;
}

static void named_address(struct words *words, const char *name, const char *expected,
                          struct casemate_address *out)
{
    if (!words_accept(words, name)) {
        words_next(words);
        words_expected(words, expected);
        return;
    }
    *out = words_address(words, "an address such as 192.0.2.1 or fd00::1");
}

static void read_suite(struct words *words, char *out)
{
    const char *name = words_next(words);
    if (name == NULL || strlen(name) >= CONFIG_SUITE) {
        words_expected(words, "a suite such as aes128gcm16");
        return;
    }
    strcpy(out, name);
}

static void read_sa(struct words *words, struct item *item)
{
    struct item_sa *out = &item->is.sa;
    struct casemate_sa *sa = &out->sa;
    item->direction = direction(words);
    sa->protocol = protocol(words);
    sa->mode = mode(words);
    named_address(words, "src", "`src` and an address", &sa->src);
    named_address(words, "dst", "`dst` and an address", &sa->dst);
    while (words->error[0] == 0 && words->at < words->count) {
        if (words_accept(words, "spi")) {
            sa->spi = (uint32_t)words_number(words, 1, UINT32_MAX, "a number from 1 to 4294967295");
        } else if (words_accept(words, "suite")) {
            read_suite(words, out->suite);
        } else if (words_accept(words, "encryption-key")) {
            sa->encryption_key_bytes = words_bytes(words, out->encryption, CONFIG_KEY);
        } else if (words_accept(words, "integrity-key")) {
            sa->integrity_key_bytes = words_bytes(words, out->integrity, CONFIG_KEY);
        } else if (words_accept(words, "udp")) {
            sa->encap_src_port = sa->encap_dst_port = (uint16_t)words_number(words, 1, 65535, PORT);
        } else if (words_accept(words, "esn")) {
            sa->esn = 1;
        } else if (words_accept(words, "window")) {
            sa->replay_window = (uint32_t)words_number(words, 0, 65535, "a number of packets up to 65535");
        } else if (words_accept(words, "last")) {
            sa->last_sequence = words_number(words, 0, UINT64_MAX, "a sequence number");
        } else if (words_accept(words, "reqid")) {
            sa->reqid = (uint32_t)words_number(words, 0, UINT32_MAX, NUMBER32);
        } else if (words_accept(words, "align8")) {
            sa->ah_align8 = 1;
        } else {
            words_next(words);
            words_expected(words, "spi, suite, encryption-key, integrity-key, udp, esn, window, last, reqid "
                                  "or align8");
        }
    }
    if (words->error[0] == 0 && (sa->spi == 0 || out->suite[0] == 0)) {
        words->at = 0;
        words_expected(words, "`spi N` and `suite NAME`");
    }
}

static void read_template(struct words *words, struct casemate_template *template)
{
    template->protocol = protocol(words);
    template->mode = mode(words);
    if (words_accept(words, "from")) {
        template->src = words_address(words, "an address such as 192.0.2.1");
        named_address(words, "to", "`to` and an address", &template->dst);
    }
    if (words_accept(words, "reqid")) {
        template->reqid = (uint32_t)words_number(words, 0, UINT32_MAX, NUMBER32);
    }
}

static void read_action(struct words *words, struct casemate_policy *policy)
{
    static const char *const names[] = { "discard", "bypass", "protect", NULL };
    static const uint32_t actions[] = { CASEMATE_DISCARD, CASEMATE_BYPASS, CASEMATE_PROTECT };
    policy->action = actions[words_one_of(words, names,
                                          "upper, src-port, dst-port, priority, bypass, discard or protect")];
    if (policy->action == CASEMATE_PROTECT) {
        read_template(words, &policy->sa);
        if (words_accept(words, "around")) {
            read_template(words, &policy->around);
        }
    }
}

static void read_port(struct words *words, uint16_t *first, uint16_t *last)
{
    *first = *last = (uint16_t)words_number(words, 0, 65535, PORT);
}

static void read_policy(struct words *words, struct item *item)
{
    struct casemate_policy *policy = &item->is.policy;
    item->direction = direction(words);
    policy->upper = -1;
    policy->src_port_last = policy->dst_port_last = 65535;
    if (!words_accept(words, "src")) {
        words_next(words);
        words_expected(words, "`src` and a range of addresses");
    }
    words_range(words, &policy->src_first, &policy->src_last);
    if (!words_accept(words, "dst")) {
        words_next(words);
        words_expected(words, "`dst` and a range of addresses");
    }
    words_range(words, &policy->dst_first, &policy->dst_last);
    for (int is_option = 1; is_option && words->error[0] == 0;) {
        if (words_accept(words, "upper")) {
            policy->upper = (int32_t)words_number(words, 0, 255, "a protocol's number, such as 6 for TCP");
        } else if (words_accept(words, "src-port")) {
            read_port(words, &policy->src_port_first, &policy->src_port_last);
        } else if (words_accept(words, "dst-port")) {
            read_port(words, &policy->dst_port_first, &policy->dst_port_last);
        } else if (words_accept(words, "priority")) {
            policy->priority = (uint32_t)words_number(words, 0, UINT32_MAX, NUMBER32);
        } else {
            is_option = 0;
        }
    }
    read_action(words, policy);
}

const struct casemate_tables config_tables = { 16, 48, 64, 4096, 4, 4, 65535, 0, 0 };

static void read_tables(struct words *words, struct casemate_tables *tables)
{
    static const char *const names[] = {
        "sas", "policies", "flows", "window", "arrivals", "reassemblies", "reassembly-bytes", "ike-sas",
            "ike-children", NULL,
    };
    uint32_t *const sizes[] = {
        &tables->sas,      &tables->policies,     &tables->flows,            &tables->replay_window,
        &tables->arrivals, &tables->reassemblies, &tables->reassembly_bytes, &tables->ike_sas,
        &tables->ike_children,
    };
    *tables = config_tables;
    while (words->error[0] == 0 && words->at < words->count) {
        int which = words_one_of(words, names, "sas, policies, flows, window, arrivals, reassemblies, "
                                               "reassembly-bytes, ike-sas or ike-children");
        *sizes[which] = (uint32_t)words_number(words, 0, 65535, "a number up to 65535");
    }
}

/* Parses a connection, and stores its line: the strings that it refers to do not outlive the words. */
static void read_ike(struct words *words, char *line)
{
    size_t at = 0;
    for (int word = 0; word < words->count; word++) {
        int len = snprintf(line + at, CONFIG_IKE - at, "%s%s", word == 0 ? "" : " ", words->word[word]);
        if (len < 0 || (size_t)len >= CONFIG_IKE - at) {
            words_expected(words, "a shorter line");
            return;
        }
        at += (size_t)len;
    }
    ike_check(words);
}

static void read_item(struct words *words, struct item *item)
{
    static const char *const actions[] = { "discard", "bypass", NULL };
    static const enum item_kind known[] = {
        ITEM_ADDRESS,      ITEM_GATEWAY, ITEM_NEIGHBOUR, ITEM_TABLES, ITEM_UNMATCHED,
        ITEM_CONTROL_PLANE, ITEM_SA,      ITEM_POLICY,    ITEM_IKE,    ITEM_VLAN,
    };
    item->kind = known[words_one_of(words, kinds, "an item such as `address` or `sa` (--help has them all)")];
    switch (item->kind) {
    case ITEM_ADDRESS:
        item->is.address.address = words_prefix(words, &item->is.address.length);
        break;
    case ITEM_GATEWAY:
        item->is.gateway = words_address(words, "an address such as 192.0.2.1 or fd00::1");
        break;
    case ITEM_NEIGHBOUR:
        words_mac(words, item->is.neighbour);
        break;
    case ITEM_TABLES:
        read_tables(words, &item->is.tables);
        break;
    case ITEM_UNMATCHED:
        item->is.unmatched = words_one_of(words, actions, "`discard` or `bypass`") == 0
                                 ? CASEMATE_DISCARD
                                 : CASEMATE_BYPASS;
        break;
    case ITEM_CONTROL_PLANE:
        break;
    case ITEM_SA:
        read_sa(words, item);
        break;
    case ITEM_POLICY:
        read_policy(words, item);
        break;
    case ITEM_IKE:
        read_ike(words, item->is.ike);
        break;
    case ITEM_VLAN:
        item->is.vlan = (int)words_number(words, 1, 4094, "a VLAN identifier up to 4094");
        break;
    case ITEM_NONE:
        break;
    }
    if (words->error[0] == 0 && words_next(words) != NULL) {
        words_expected(words, "the end of the line");
    }
}

int config_line(struct item *item, char *line, char *error, size_t room)
{
    struct words words;
    memset(item, 0, sizeof(*item));
    words_split(&words, line);
    if (words.error[0] == 0 && words.count > 0) {
        read_item(&words, item);
    }
    snprintf(error, room, "%s", words.error);
    return words.error[0] == 0 ? 0 : -1;
}

/* Parses the lines of an open file. */
static int read_lines(struct config *config, const char *path, FILE *file, char *error, size_t room)
{
    char line[LINE], what[200];
    for (int number = 1; fgets(line, sizeof(line), file) != NULL; number++) {
        struct item *item = &config->items[config->count];
        if (config->count == CONFIG_ITEMS) {
            snprintf(error, room, "%s:%d: expected no more than %d items", path, number, CONFIG_ITEMS);
            return -1;
        }
        if (strchr(line, '\n') == NULL && !feof(file)) {
            snprintf(error, room, "%s:%d: expected lines shorter than %d bytes", path, number, LINE);
            return -1;
        }
        if (config_line(item, line, what, sizeof(what)) != 0) {
            snprintf(error, room, "%s:%d: %s", path, number, what);
            return -1;
        }
        item->line = number;
        config->count += item->kind != ITEM_NONE;
    }
    return 0;
}

int config_file(struct config *config, const char *path, char *error, size_t room)
{
    FILE *file = fopen(path, "r");
    int outcome;
    config->count = 0;
    if (file == NULL) {
        snprintf(error, room, "%s: %s", path, strerror(errno));
        return -1;
    }
    outcome = read_lines(config, path, file, error, room);
    fclose(file);
    return outcome;
}

int config_knows(const char *line)
{
    size_t len = strcspn(line, " \t\r\n#");
    for (int at = 0; kinds[at] != NULL; at++) {
        if (strlen(kinds[at]) == len && strncmp(line, kinds[at], len) == 0) {
            return 1;
        }
    }
    return len == 0;
}

void config_forget(struct config *config)
{
    /* A plain memset could be removed by the compiler. */
    volatile unsigned char *bytes = (volatile unsigned char *)config;
    for (size_t at = 0; at < sizeof(*config); at++) {
        bytes[at] = 0;
    }
}
