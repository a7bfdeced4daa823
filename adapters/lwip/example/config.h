/*
 * config.h - what the program is told of its addresses, SAs and policies.
 *
 * One item a line; '#' begins a comment. `casemate-lwip --help` has the words. A line is read as a whole before anything is
 * done about it, and a file likewise.
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
    ITEM_HOUSEKEEPING,
    ITEM_VLAN,
    ITEM_SA,
    ITEM_POLICY,
    ITEM_IKE,
};

/* An SA, with what its pointers name. */
struct item_sa {
    struct casemate_sa sa;
    char suite[CONFIG_SUITE];
    uint8_t encryption[CONFIG_KEY];
    uint8_t integrity[CONFIG_KEY];
};

struct item {
    enum item_kind kind;
    int line;
    uint32_t direction; /* of SAs and policies */
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
        char ike[CONFIG_IKE]; /* the line itself */
    } is;
};

/* The items of a file, in its order. */
struct config {
    struct item items[CONFIG_ITEMS];
    int count;
};

/* Reads a line, which is changed. 0, or -1 with what is wrong in error. */
int config_line(struct item *item, char *line, char *error, size_t room);

/* Reads a file. 0, or -1 with what is wrong, and where, in error. */
int config_file(struct config *config, const char *path, char *error, size_t room);

/* The tables of a file that says nothing of them. */
extern const struct casemate_tables config_tables;

/* Whether a line begins with a word of the configuration. */
int config_knows(const char *line);

/* Wipes keys. */
void config_forget(struct config *config);

/* The words that lines are made of, as --help prints them. */
extern const char config_help[];

#endif
