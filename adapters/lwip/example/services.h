/*
 * services.h - what the host has for others: echo by UDP and TCP (port 7), lwIP's web server (80) and iperf server (5001), and
 * what the lab measures (5002, measure.h).
 */
#ifndef EXAMPLE_SERVICES_H
#define EXAMPLE_SERVICES_H

/* Opens all of them. Before the guard is started: it has to be asked before any raw PCB of the application's. */
void services_open(void);

#endif
