/* loop.c - see loop.h: one thread, NO_SYS 1. */

#include "loop.h"

#if NO_SYS

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "link.h"
#include "lwip/init.h"
#include "lwip/timeouts.h"
#include "netif/ethernet.h"

/* lwIP's timers are looked at as often. */
#define TURN_MS 20

static int link_descriptor;
static u32_t later;

u32_t sys_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (u32_t)(now.tv_sec * 1000 + now.tv_nsec / 1000000) + later;
}

void loop_later(u32_t ms)
{
    later += ms;
}

void loop_begin(int fd)
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
    struct pollfd events[2] = { { link_descriptor, POLLIN, 0 }, { console != NULL ? STDIN_FILENO : -1, POLLIN, 0 } };
    for (;;) {
        poll(events, 2, TURN_MS);
        link_poll(netif);
        sys_check_timeouts();
        if (events[1].revents != 0 && !console_poll(console)) {
            return;
        }
    }
}

#endif
