/* setup.h - makes Casemate and the interface what the configuration says. */
#ifndef EXAMPLE_SETUP_H
#define EXAMPLE_SETUP_H

#include "casemate_lwip.h"
#include "config.h"

/* The tables that a configuration asks for. */
struct casemate_tables setup_tables(const struct config *config);

/* A host with the tables that a configuration asks for, and nothing in them. 0, or -1 with what is wrong in error. */
int setup_host(const struct config *config, u32_t mtu, struct casemate_host **host, char *error, size_t room);

/* Does what has to be done before the guard is attached: the neighbour. */
void setup_link(const struct config *config, struct netif *netif);

/* Does what an item says, but for what a host or a link starts with. 0, or -1 with what is wrong in error. */
int setup_item(struct item *item, struct casemate_host *host, struct netif *netif, char *error, size_t room);

/* Does what all items say; in error is also the line. */
int setup_items(struct config *config, struct casemate_host *host, struct netif *netif, char *error, size_t room);

#endif
