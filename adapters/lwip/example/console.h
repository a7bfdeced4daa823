/*
 * console.h - commands from standard input, one per line. The response to each is a line: "0 ..." for
 * success, "1 ..." for failure. `casemate-lwip --help` lists the commands.
 */
#ifndef EXAMPLE_CONSOLE_H
#define EXAMPLE_CONSOLE_H

#include "casemate_lwip.h"

/* Context of the commands. */
struct console {
    struct casemate_lwip *stack;
    struct netif *netif;
    u32_t mtu;
    struct casemate_tables tables; /* of the current host */
};

extern const char console_help[];

/* Reads available input and executes complete lines. Returns 0 at the end of the input. */
int console_poll(struct console *console);

/* Prints the response to a command. */
void console_respond(int failed, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
