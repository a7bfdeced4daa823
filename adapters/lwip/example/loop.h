/* loop.h - what keeps lwIP going: one thread that does all (loop.c), or threads of lwIP's own (threads.c, with NO_SYS 0). */
#ifndef EXAMPLE_LOOP_H
#define EXAMPLE_LOOP_H

#include "console.h"
#include "lwip/netif.h"

/* Starts lwIP; frames come from fd. */
void loop_begin(int fd);

/* That descriptor. */
int loop_fd(void);

/* For netif_add: what takes a frame. */
netif_input_fn loop_input(void);

#if NO_SYS
/* For tests: as if so many milliseconds had passed. */
void loop_later(u32_t ms);
#endif

/* Between these, functions of lwIP and of Casemate may be called. */
void loop_lock(void);
void loop_unlock(void);

/* Goes on until standard input ends; for ever without a console. */
void loop_run(struct netif *netif, struct console *console);

#endif
