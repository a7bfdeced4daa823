/*
 * measure.h - what `casemate lab run embedded` measures (TCP, port 5002). The host opens every connection and says in eight bytes
 * what is to be done until it closes it: `A` answer every message, `Q` ask and wait for the answer, again and again, `T` take, or `G`
 * give; three zeros; the size of a message, up to 16,384 (32 bits, big-endian).
 */
#ifndef EXAMPLE_MEASURE_H
#define EXAMPLE_MEASURE_H

/* Opens the port. */
void measure_open(void);

#endif
