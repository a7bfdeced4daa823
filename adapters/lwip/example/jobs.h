/*
 * jobs.h - client requests of this host to the services of others.
 *
 * Only one job runs at a time. It calls console_respond when it is finished or has timed out.
 */
#ifndef EXAMPLE_JOBS_H
#define EXAMPLE_JOBS_H

#include "lwip/ip_addr.h"

/* Sends a datagram to the echo service and waits for its reply. */
void job_udp(const ip_addr_t *from, const ip_addr_t *to, int bytes);

/* Sends bytes to the TCP echo service and waits until all have come back. */
void job_tcp(const ip_addr_t *from, const ip_addr_t *to, int bytes);

/* Sends to an iperf server for ten seconds. */
void job_iperf(const ip_addr_t *to);

#endif
