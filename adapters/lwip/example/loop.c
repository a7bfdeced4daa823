/* loop.c - see loop.h: the main loop with one thread, NO_SYS 1. */

#include "loop.h"

#if NO_SYS

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "link.h"
#include "lwip/init.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"

/* Maximum time in milliseconds between checks of lwIP's timers. */
#define POLL_INTERVAL_MS 20

static int link_descriptor;
static u32_t clock_offset;

u32_t sys_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u32_t)(now.tv_sec * 1000 + now.tv_nsec / 1000000) + clock_offset;
}

void loop_advance_clock(u32_t ms)
{
    clock_offset += ms;
}

void loop_init(int fd)
{
    link_descriptor = fd;
    lwip_init();
}

int loop_fd(void)
{
    return link_descriptor;
}

netif_input_fn loop_input(void)
{
    return ethernet_input;
}

void loop_lock(void)
{
}

void loop_unlock(void)
{
}

void loop_run(struct netif *netif, struct console *console)
{
    struct pollfd events[2] = { { link_descriptor, POLLIN, 0 },
                                { console != NULL ? STDIN_FILENO : -1, POLLIN, 0 } };
    for (;;) {
        poll(events, 2, POLL_INTERVAL_MS);
        link_poll(netif);
        sys_check_timeouts();
        if (events[1].revents != 0 && !console_poll(console)) {
            return;
        }
    }
}

#endif
