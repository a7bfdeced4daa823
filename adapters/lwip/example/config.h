/*
 * config.h - the configuration: addresses, SAs and policies.
 *
 * One item per line; '#' starts a comment. `casemate-lwip --help` documents the syntax. A line, and
 * likewise a file, is parsed completely before any of it is applied.
 */
#ifndef EXAMPLE_CONFIG_H
#define EXAMPLE_CONFIG_H

#include <stddef.h>

#include "casemate.h"

#define CONFIG_ITEMS 128
#define CONFIG_KEY 80
#define CONFIG_SUITE 40
#define CONFIG_IKE 700

enum item_kind {
    ITEM_NONE, /* an empty line */
    ITEM_ADDRESS,
    ITEM_GATEWAY,
    ITEM_NEIGHBOUR,
    ITEM_TABLES,
    ITEM_UNMATCHED,
    ITEM_CONTROL_PLANE,
    ITEM_VLAN,
    ITEM_SA,
    ITEM_POLICY,
    ITEM_IKE,
};

/* An SA with the values that its pointers refer to. */
struct item_sa {
    struct casemate_sa sa;
    char suite[CONFIG_SUITE];
    uint8_t encryption[CONFIG_KEY];
    uint8_t integrity[CONFIG_KEY];
};

struct item {
    enum item_kind kind;
    int line;
    uint32_t direction; /* for SAs and policies */
    union {
        struct {
            struct casemate_address address;
            unsigned length;
        } address;
        struct casemate_address gateway;
        uint8_t neighbour[6];
        struct casemate_tables tables;
        uint32_t unmatched;
        int vlan;
        struct item_sa sa;
        struct casemate_policy policy;
        char ike[CONFIG_IKE]; /* the unparsed line */
    } is;
};

/* The items of a file, in their order. */
struct config {
    struct item items[CONFIG_ITEMS];
    int count;
};

/* Parses a line and modifies it. Returns 0, or -1 with a message in error. */
int config_line(struct item *item, char *line, char *error, size_t room);

/* Parses a file. Returns 0, or -1 with a message and the line number in error. */
int config_file(struct config *config, const char *path, char *error, size_t room);

/* Default sizes of the tables. */
extern const struct casemate_tables config_tables;

/* Returns whether a line begins with a keyword of the configuration. */
int config_knows(const char *line);

/* Zeroes the configuration, which contains keys. */
void config_forget(struct config *config);

/* Help text about the configuration, for --help. */
extern const char config_help[];

#endif
