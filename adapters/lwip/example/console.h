/*
 * console.h - orders by standard input, a line each, answered by a line each: "0 ..." if it went well, else "1 ...".
 *
 * `casemate-lwip --help` has the orders.
 */
#ifndef EXAMPLE_CONSOLE_H
#define EXAMPLE_CONSOLE_H

#include "casemate_lwip.h"

/* What the orders are about. */
struct console {
    struct casemate_lwip *stack;
    struct netif *netif;
    u32_t mtu;
    struct casemate_tables tables; /* of the present host */
};

extern const char console_help[];

/* Reads what is there of standard input and obeys whole lines; 0 at its end. */
int console_poll(struct console *console);

/* Says how an order went. */
void console_answer(int failed, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
