/* ping.h - echo requests of several sizes; every byte of the replies is compared. */
#ifndef EXAMPLE_PING_H
#define EXAMPLE_PING_H

#include "lwip/ip_addr.h"

/*
 * Opens the raw PCBs. Must be called before Casemate starts, because lwIP would put them in front of
 * Casemate's PCBs, where replies in clear text would be accepted. They never take a packet.
 */
void ping_open(void);

/* Resets the list of sizes. */
void ping_init(const ip_addr_t *from, const ip_addr_t *to);

/* Adds a size in bytes, or "FIRST-LAST". Returns 0 if it is invalid or if there are too many. */
int ping_add(const char *sizes);

/* Sends the first request. After the last, console_respond prints the result. */
void ping_start(void);

#endif
