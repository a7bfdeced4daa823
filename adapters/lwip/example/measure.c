/* measure.c - see measure.h. */

#include "measure.h"

#include <stdlib.h>
#include <string.h>

#include "lwip/tcp.h"

#define PORT 5002
#define ORDER 8
#define LONGEST 16384

/* A connection. Its order is a letter, three zeros and the size of a message (big-endian). */
struct measure {
    u8_t order[ORDER];
    size_t heard;   /* bytes of the order */
    u32_t size;     /* of a message; 0 before the order is there */
    u32_t left;     /* bytes of the present message that are missing */
    int is_saying;  /* the message is ours */
};

static u8_t message[LONGEST];

static err_t end(struct measure *measure, struct tcp_pcb *pcb)
{
    free(measure);
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_sent(pcb, NULL);
    tcp_err(pcb, NULL);
    return tcp_close(pcb);
}

/* Sends as much of our message as there is room for, and goes on with what comes after it. */
static void say(struct measure *measure, struct tcp_pcb *pcb)
{
    while (measure->is_saying) {
        u32_t room = tcp_sndbuf(pcb), part = measure->left < room ? measure->left : room;
        if (part == 0 || tcp_write(pcb, message, (u16_t)part, TCP_WRITE_FLAG_COPY) != ERR_OK) {
            break;
        }
        measure->left -= part;
        if (measure->left == 0) {
            measure->left = measure->size;
            measure->is_saying = measure->order[0] == 'G';
            /* Once for each message, as an application does that calls a stack. */
            tcp_output(pcb);
        }
    }
    tcp_output(pcb);
}

/* 0, or -1 if it is no order. */
static int obey(struct measure *measure, struct tcp_pcb *pcb)
{
    const u8_t *order = measure->order;
    u32_t size = (u32_t)order[4] << 24 | (u32_t)order[5] << 16 | (u32_t)order[6] << 8 | order[7];
    if (memchr("AQTG", order[0], 4) == NULL || order[1] != 0 || order[2] != 0 || order[3] != 0 || size == 0 || size > LONGEST) {
        return -1;
    }
    measure->size = measure->left = size;
    measure->is_saying = order[0] == 'Q' || order[0] == 'G';
    if (order[0] == 'A' || order[0] == 'Q') {
        /* Questions and answers do not wait to be put together. */
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
        return end(measure, pcb);
    }
    count = p->tot_len;
    if (measure->size == 0) {
        u16_t part = pbuf_copy_partial(p, measure->order + measure->heard, (u16_t)(ORDER - measure->heard), 0);
        measure->heard += part;
        count -= part;
        if (measure->heard == ORDER && obey(measure, pcb) != 0) {
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
    if (measure->size != 0 && (measure->order[0] == 'A' || measure->order[0] == 'Q') && !measure->is_saying) {
        /* Whoever asks waits for the answer: no more than one message comes. */
        measure->left -= count < measure->left ? count : measure->left;
        if (measure->left == 0) {
            measure->left = measure->size;
            measure->is_saying = 1;
        }
    }
    say(measure, pcb);
    return ERR_OK;
}

static err_t sent(void *arg, struct tcp_pcb *pcb, u16_t len)
{
    LWIP_UNUSED_ARG(len);
    say((struct measure *)arg, pcb);
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
