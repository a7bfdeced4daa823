/*
 * jobs.h - what the host does at its own will: requests to the services of others.
 *
 * One job at a time. Each answers by console_answer when it is done, or has waited too long.
 */
#ifndef EXAMPLE_JOBS_H
#define EXAMPLE_JOBS_H

#include "lwip/ip_addr.h"

/* Sends a datagram and waits for its echo. */
void job_udp(const ip_addr_t *from, const ip_addr_t *to, int bytes);

/* Sends bytes over a connection to the echo service and waits for all of them to come back. */
void job_tcp(const ip_addr_t *from, const ip_addr_t *to, int bytes);

/* Sends for ten seconds to an iperf server. */
void job_iperf(const ip_addr_t *to);

#endif
