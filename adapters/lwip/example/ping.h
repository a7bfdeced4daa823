/* ping.h - echo requests of several sizes, every byte of the answers compared. */
#ifndef EXAMPLE_PING_H
#define EXAMPLE_PING_H

#include "lwip/ip_addr.h"

/*
 * Opens the raw PCBs. Before the guard is started, and they never take a packet for themselves: lwIP would put them in front
 * of the guard's, where answers in clear would be believed.
 */
void ping_open(void);

/* Forgets the sizes of the job before. */
void ping_begin(const ip_addr_t *from, const ip_addr_t *to);

/* Adds a size in bytes, or "FIRST-LAST"; 0 if that is none, or too many. */
int ping_add(const char *sizes);

/* Sends the first request; console_answer has the outcome of all. */
void ping_start(void);

#endif
