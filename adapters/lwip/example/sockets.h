/* sockets.h - a page and a client by lwIP's socket interface, which takes threads: in builds with NO_SYS 0. */
#ifndef EXAMPLE_SOCKETS_H
#define EXAMPLE_SOCKETS_H

/*
 * Serves a page by HTTP at port 8080, in a thread of its own; whoever asks from now on is answered. Not between loop_lock and
 * loop_unlock. Not 0 if it cannot be served. Without threads there is no such page.
 */
int sockets_begin(void);

/* Fetches the page at port 80 of an address, in a thread of its own; console_answer has its length. */
void sockets_get(const char *address);

#endif
