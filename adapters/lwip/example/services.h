/*
 * services.h - services of this host: echo over UDP and TCP (port 7), lwIP's web server (80), lwIP's iperf
 * server (5001), and the measurement service of the lab (5002, measure.h).
 */
#ifndef EXAMPLE_SERVICES_H
#define EXAMPLE_SERVICES_H

/* Opens all services. Must be called after Casemate is attached, whose raw PCBs must be the first. */
void services_open(void);

#endif
