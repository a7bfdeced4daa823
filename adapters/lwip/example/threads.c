/*
 * threads.c - see loop.h: lwIP's own thread, a thread that reads frames, and the console's thread. NO_SYS
 * 0.
 */

#include "loop.h"

#if !NO_SYS

#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include "link.h"
#include "lwip/sys.h"
#include "lwip/tcpip.h"

/* Interval in milliseconds at which the reader checks whether it must exit. */
#define POLL_INTERVAL_MS 20

static int link_descriptor;
static int is_ending;

static void signal_started(void *arg)
{
    sys_sem_signal((sys_sem_t *)arg);
}

void loop_init(int fd)
{
    sys_sem_t started;
    link_descriptor = fd;
    sys_sem_new(&started, 0);
    tcpip_init(signal_started, &started);
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
        if (poll(&event, 1, POLL_INTERVAL_MS) > 0) {
            link_poll((struct netif *)netif);
        }
    }
    return NULL;
}

/* Executes commands until the end of the input. */
static void run_commands(struct console *console)
{
    struct pollfd event = { STDIN_FILENO, POLLIN, 0 };
    for (int is_open = 1; is_open;) {
        if (poll(&event, 1, -1) > 0) {
            LOCK_TCPIP_CORE();
            is_open = console_poll(console);
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
        run_commands(console);
        __atomic_store_n(&is_ending, 1, __ATOMIC_RELEASE);
    }
    pthread_join(reader, NULL);
}

#endif
