/* loop.h - the main loop: with one thread (loop.c), or with lwIP's own threads (threads.c, NO_SYS 0). */
#ifndef EXAMPLE_LOOP_H
#define EXAMPLE_LOOP_H

#include "console.h"
#include "lwip/netif.h"

/* Initialises lwIP; frames come from fd. */
void loop_init(int fd);

/* Returns this descriptor. */
int loop_fd(void);

/* Returns the input function for netif_add. */
netif_input_fn loop_input(void);

#if NO_SYS
/* For tests: advances the clock by this many milliseconds. */
void loop_advance_clock(u32_t ms);
#endif

/* Functions of lwIP and Casemate may be called between these. */
void loop_lock(void);
void loop_unlock(void);

/* Runs until the end of standard input; forever without a console. */
void loop_run(struct netif *netif, struct console *console);

#endif
