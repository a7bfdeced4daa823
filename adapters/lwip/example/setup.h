/* setup.h - applies the configuration to Casemate and to the interface. */
#ifndef EXAMPLE_SETUP_H
#define EXAMPLE_SETUP_H

#include "casemate_lwip.h"
#include "config.h"

/* Returns the table sizes of a configuration. */
struct casemate_tables setup_tables(const struct config *config);

/* Creates an empty host with the tables of a configuration. Returns 0, or -1 with a message in error. */
int setup_host(const struct config *config, u32_t mtu, struct casemate_host **host, char *error, size_t room);

/* Applies what must be set before Casemate is attached: the neighbour. */
void setup_link(const struct config *config, struct netif *netif);

/* Applies an item, except for start settings of host and link. Returns 0, or -1 with a message in error. */
int setup_item(struct item *item, struct casemate_host *host, struct netif *netif, char *error, size_t room);

/* Applies all items. On an error the message contains the line number. */
int setup_items(struct config *config, struct casemate_host *host, struct netif *netif, char *error,
                size_t room);

#endif
