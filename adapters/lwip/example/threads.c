/* threads.c - see loop.h: lwIP's own thread, one that reads frames, and that of the console. NO_SYS 0. */

#include "loop.h"

#if !NO_SYS

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "link.h"
#include "lwip/sys.h"
#include "lwip/tcpip.h"

/* The reader looks as often whether it is to end. */
#define TURN_MS 20

static int link_descriptor;
static int is_ending;

static void tell(void *arg)
{
    sys_sem_signal((sys_sem_t *)arg);
}

void loop_begin(int fd)
{
    sys_sem_t started;
    link_descriptor = fd;
    sys_sem_new(&started, 0);
    tcpip_init(tell, &started);
    sys_sem_wait(&started);
    sys_sem_free(&started);
}

int loop_fd(void)
{
    return link_descriptor;
}

netif_input_fn loop_input(void)
{
    return tcpip_input;
}

void loop_lock(void)
{
    LOCK_TCPIP_CORE();
}

void loop_unlock(void)
{
    UNLOCK_TCPIP_CORE();
}

static void *read_frames(void *netif)
{
    struct pollfd event = { link_descriptor, POLLIN, 0 };
    while (!__atomic_load_n(&is_ending, __ATOMIC_ACQUIRE)) {
        if (poll(&event, 1, TURN_MS) > 0) {
            link_poll((struct netif *)netif);
        }
    }
    return NULL;
}

/* Obeys orders until there are no more. */
static void take_orders(struct console *console)
{
    struct pollfd event = { STDIN_FILENO, POLLIN, 0 };
    for (int goes_on = 1; goes_on;) {
        if (poll(&event, 1, -1) > 0) {
            LOCK_TCPIP_CORE();
            goes_on = console_poll(console);
            UNLOCK_TCPIP_CORE();
        }
    }
}

void loop_run(struct netif *netif, struct console *console)
{
    pthread_t reader;
    if (pthread_create(&reader, NULL, read_frames, netif) != 0) {
        return;
    }
    if (console != NULL) {
        take_orders(console);
        __atomic_store_n(&is_ending, 1, __ATOMIC_RELEASE);
    }
    pthread_join(reader, NULL);
}

#endif
