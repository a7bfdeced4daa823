/*
 * measure.h - the measurement service of `casemate lab run embedded` (TCP, port 5002). The host opens each
 * connection and sends an order of eight bytes, which is valid until the host closes the connection: `A`
 * respond to every message, `Q` send requests and wait for each response, `T` receive, or `G` send; three
 * zero bytes; the message size, up to 16,384 (32 bits, big-endian).
 */
#ifndef EXAMPLE_MEASURE_H
#define EXAMPLE_MEASURE_H

/* Opens the port. */
void measure_open(void);

#endif
