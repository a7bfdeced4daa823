/* measure.c - see measure.h. */

#include "measure.h"

#include <stdlib.h>
#include <string.h>

#include "lwip/tcp.h"

#define PORT 5002
#define COMMAND_BYTES 8
#define MAX_MESSAGE 16384

/* A connection. Its order consists of a letter, three zero bytes, and the message size (big-endian). */
struct measure {
    u8_t command[COMMAND_BYTES];
    size_t received_bytes;   /* received bytes of the order */
    u32_t size;     /* of a message; 0 until the order is complete */
    u32_t left;     /* missing bytes of the current message */
    int is_sending;  /* the current message is sent, not received */
};

static u8_t message[MAX_MESSAGE];

static err_t close_connection(struct measure *measure, struct tcp_pcb *pcb)
{
    free(measure);
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_sent(pcb, NULL);
    tcp_err(pcb, NULL);
    return tcp_close(pcb);
}

/* Sends as much of the message as there is room for, and starts the next one if the command requires it. */
static void send_message(struct measure *measure, struct tcp_pcb *pcb)
{
    while (measure->is_sending) {
        u32_t room = tcp_sndbuf(pcb), part = measure->left < room ? measure->left : room;
        if (part == 0 || tcp_write(pcb, message, (u16_t)part, TCP_WRITE_FLAG_COPY) != ERR_OK) {
            break;
        }
        measure->left -= part;
        if (measure->left == 0) {
            measure->left = measure->size;
            measure->is_sending = measure->command[0] == 'G';
            /* Once per message, like an application that calls the stack. */
            tcp_output(pcb);
        }
    }
    tcp_output(pcb);
}

/* Returns 0, or -1 if the order is invalid. */
static int execute(struct measure *measure, struct tcp_pcb *pcb)
{
    const u8_t *command = measure->command;
    u32_t size = (u32_t)command[4] << 24 | (u32_t)command[5] << 16 | (u32_t)command[6] << 8 | command[7];
    if (memchr("AQTG", command[0], 4) == NULL || command[1] != 0 || command[2] != 0 || command[3] != 0
        || size == 0 || size > MAX_MESSAGE) {
        return -1;
    }
    measure->size = measure->left = size;
    measure->is_sending = command[0] == 'Q' || command[0] == 'G';
    if (command[0] == 'A' || command[0] == 'Q') {
        /* Requests and responses are not delayed by Nagle's algorithm. */
        tcp_nagle_disable(pcb);
    }
    return 0;
}

static err_t received(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
    struct measure *measure = (struct measure *)arg;
    u32_t count;
    LWIP_UNUSED_ARG(err);
    if (p == NULL) {
        return close_connection(measure, pcb);
    }
    count = p->tot_len;
    if (measure->size == 0) {
        u16_t part = pbuf_copy_partial(p, measure->command + measure->received_bytes,
                                       (u16_t)(COMMAND_BYTES - measure->received_bytes), 0);
        measure->received_bytes += part;
        count -= part;
        if (measure->received_bytes == COMMAND_BYTES && execute(measure, pcb) != 0) {
            free(measure);
            tcp_arg(pcb, NULL);
            tcp_err(pcb, NULL);
            pbuf_free(p);
            tcp_abort(pcb);
            return ERR_ABRT;
        }
    }
    tcp_recved(pcb, p->tot_len);
    pbuf_free(p);
    if (measure->size != 0 && (measure->command[0] == 'A' || measure->command[0] == 'Q')
        && !measure->is_sending) {
        /* The peer waits for the response, so at most one message arrives. */
        measure->left -= count < measure->left ? count : measure->left;
        if (measure->left == 0) {
            measure->left = measure->size;
            measure->is_sending = 1;
        }
    }
    send_message(measure, pcb);
    return ERR_OK;
}

static err_t sent(void *arg, struct tcp_pcb *pcb, u16_t len)
{
    LWIP_UNUSED_ARG(len);
    send_message((struct measure *)arg, pcb);
    return ERR_OK;
}

static void failed(void *arg, err_t err)
{
    LWIP_UNUSED_ARG(err);
    free(arg);
}

static err_t accepted(void *arg, struct tcp_pcb *pcb, err_t err)
{
    struct measure *measure = calloc(1, sizeof(*measure));
    LWIP_UNUSED_ARG(arg);
    if (err != ERR_OK || measure == NULL) {
        free(measure);
        return ERR_MEM;
    }
    tcp_arg(pcb, measure);
    tcp_recv(pcb, received);
    tcp_sent(pcb, sent);
    tcp_err(pcb, failed);
    return ERR_OK;
}

void measure_open(void)
{
    struct tcp_pcb *pcb = tcp_new_ip_type(IPADDR_TYPE_ANY);
    if (pcb == NULL || tcp_bind(pcb, IP_ANY_TYPE, PORT) != ERR_OK || (pcb = tcp_listen(pcb)) == NULL) {
        abort();
    }
    memset(message, 0x5a, sizeof(message));
    tcp_accept(pcb, accepted);
}
