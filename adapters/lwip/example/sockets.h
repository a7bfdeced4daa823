/* sockets.h - a web server and a client with lwIP's socket interface, which needs threads (NO_SYS 0). */
#ifndef EXAMPLE_SOCKETS_H
#define EXAMPLE_SOCKETS_H

/*
 * Starts an HTTP server with one page on port 8080 in its own thread; the socket listens when the function
 * returns. Must not be called between loop_lock and loop_unlock. Returns 0 on success. Without threads it
 * does nothing.
 */
int sockets_start(void);

/* Fetches the page on port 80 of an address in its own thread; console_respond prints its length. */
void sockets_get(const char *address);

#endif
