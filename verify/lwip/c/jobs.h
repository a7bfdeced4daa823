/* jobs.h - what the host does for others, and at its own will. */
#ifndef CASEMATE_TEST_JOBS_H
#define CASEMATE_TEST_JOBS_H

/* Echo by UDP and by TCP, at port 7. */
void services_open(void);

/* Sends a datagram from an address of ours and waits for its echo. */
void job_udp(const char *from, const char *to, int port, int bytes);

/* Sends bytes over a connection and waits for all of them to come back. */
void job_tcp(const char *from, const char *to, int port, int bytes);

#endif
