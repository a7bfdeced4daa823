/* jobs.c - see jobs.h. */

#include "jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/ip.h"
#include "lwip/tcp.h"
#include "lwip/udp.h"
#include "orders.h"

#define ECHO 7

static u8_t pattern(int at)
{
    return (u8_t)(at % 251);
}

/* ---- services ---- */

static void echo_udp(void *arg, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from, u16_t port)
{
    ip_addr_t own = *ip_current_dest_addr();
    LWIP_UNUSED_ARG(arg);
    udp_sendto_if_src(pcb, p, from, port, ip_current_input_netif(), &own);
    pbuf_free(p);
}

/* Bytes that came and did not go back yet: no more than the window. */
struct echo {
    struct pbuf *waiting;
};

static err_t echo_more(void *arg, struct tcp_pcb *pcb, u16_t sent)
{
    struct echo *echo = (struct echo *)arg;
    LWIP_UNUSED_ARG(sent);
    while (echo->waiting != NULL && echo->waiting->len <= tcp_sndbuf(pcb)) {
        struct pbuf *p = echo->waiting;
        if (tcp_write(pcb, p->payload, p->len, TCP_WRITE_FLAG_COPY) != ERR_OK) {
            break;
        }
        tcp_recved(pcb, p->len);
        echo->waiting = p->next;
        if (p->next != NULL) {
            pbuf_ref(p->next);
        }
        pbuf_free(p);
    }
    tcp_output(pcb);
    return ERR_OK;
}

static err_t echo_received(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
    struct echo *echo = (struct echo *)arg;
    LWIP_UNUSED_ARG(err);
    if (p == NULL) {
        if (echo->waiting != NULL) {
            pbuf_free(echo->waiting);
        }
        free(echo);
        tcp_arg(pcb, NULL);
        tcp_recv(pcb, NULL);
        tcp_sent(pcb, NULL);
        tcp_err(pcb, NULL);
        return tcp_close(pcb);
    }
    if (echo->waiting == NULL) {
        echo->waiting = p;
    } else {
        pbuf_cat(echo->waiting, p);
    }
    return echo_more(arg, pcb, 0);
}

static void echo_failed(void *arg, err_t err)
{
    struct echo *echo = (struct echo *)arg;
    LWIP_UNUSED_ARG(err);
    if (echo->waiting != NULL) {
        pbuf_free(echo->waiting);
    }
    free(echo);
}

static err_t echo_accepted(void *arg, struct tcp_pcb *pcb, err_t err)
{
    struct echo *echo = calloc(1, sizeof(*echo));
    LWIP_UNUSED_ARG(arg);
    if (err != ERR_OK || echo == NULL) {
        free(echo);
        return ERR_MEM;
    }
    tcp_arg(pcb, echo);
    tcp_recv(pcb, echo_received);
    tcp_sent(pcb, echo_more);
    tcp_err(pcb, echo_failed);
    return ERR_OK;
}

void services_open(void)
{
    struct udp_pcb *udp = udp_new_ip_type(IPADDR_TYPE_ANY);
    struct tcp_pcb *tcp = tcp_new_ip_type(IPADDR_TYPE_ANY);
    if (udp == NULL || udp_bind(udp, IP_ANY_TYPE, ECHO) != ERR_OK || tcp == NULL
        || tcp_bind(tcp, IP_ANY_TYPE, ECHO) != ERR_OK || (tcp = tcp_listen(tcp)) == NULL) {
        abort();
    }
    udp_recv(udp, echo_udp, NULL);
    tcp_accept(tcp, echo_accepted);
}

/* ---- jobs: one at a time, so its state is here ---- */

static const char *err_text(err_t err)
{
    static char text[32];
    snprintf(text, sizeof(text), "lwIP's error %d", err);
    return text;
}

static int total, written, returned, is_wrong;

static void check(const struct pbuf *p)
{
    for (; p != NULL; p = p->next) {
        int at;
        for (at = 0; at < p->len; at++) {
            is_wrong |= ((const u8_t *)p->payload)[at] != pattern(returned++);
        }
    }
}

static void begin(int bytes)
{
    total = bytes;
    written = returned = is_wrong = 0;
}

static void udp_came(void *arg, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from, u16_t port)
{
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(from);
    LWIP_UNUSED_ARG(port);
    check(p);
    pbuf_free(p);
    udp_remove(pcb);
    answer(is_wrong || returned != total, "echo by UDP");
}

void job_udp(const char *from, const char *to, int port, int bytes)
{
    struct udp_pcb *pcb = udp_new_ip_type(IPADDR_TYPE_ANY);
    struct pbuf *p = pbuf_alloc(PBUF_TRANSPORT, (u16_t)bytes, PBUF_POOL);
    ip_addr_t src, dst;
    err_t err;
    if (pcb == NULL || p == NULL || !ipaddr_aton(from, &src) || !ipaddr_aton(to, &dst)
        || udp_bind(pcb, &src, 0) != ERR_OK) {
        abort();
    }
    begin(bytes);
    for (written = 0; written < bytes; written++) {
        pbuf_put_at(p, (u16_t)written, pattern(written));
    }
    udp_recv(pcb, udp_came, NULL);
    err = udp_sendto_if_src(pcb, p, &dst, (u16_t)port, netif_default, &src);
    pbuf_free(p);
    if (err != ERR_OK) {
        udp_remove(pcb);
        answer(1, err_text(err));
    }
}

static err_t tcp_more(void *arg, struct tcp_pcb *pcb, u16_t sent)
{
    u8_t part[1000];
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(sent);
    while (written < total && tcp_sndbuf(pcb) >= sizeof(part)) {
        int len = LWIP_MIN(total - written, (int)sizeof(part)), at;
        for (at = 0; at < len; at++) {
            part[at] = pattern(written + at);
        }
        if (tcp_write(pcb, part, (u16_t)len, TCP_WRITE_FLAG_COPY) != ERR_OK) {
            break;
        }
        written += len;
    }
    return tcp_output(pcb);
}

static err_t tcp_came(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(err);
    if (p != NULL) {
        check(p);
        tcp_recved(pcb, p->tot_len);
        pbuf_free(p);
        if (returned < total) {
            return ERR_OK;
        }
    }
    tcp_recv(pcb, NULL);
    tcp_sent(pcb, NULL);
    tcp_err(pcb, NULL);
    answer(is_wrong || returned != total, "echo by TCP");
    return tcp_close(pcb);
}

static void tcp_failed(void *arg, err_t err)
{
    LWIP_UNUSED_ARG(arg);
    answer(1, err_text(err));
}

static err_t tcp_connected(void *arg, struct tcp_pcb *pcb, err_t err)
{
    LWIP_UNUSED_ARG(err);
    return tcp_more(arg, pcb, 0);
}

void job_tcp(const char *from, const char *to, int port, int bytes)
{
    struct tcp_pcb *pcb = tcp_new_ip_type(IPADDR_TYPE_ANY);
    ip_addr_t src, dst;
    if (pcb == NULL || !ipaddr_aton(from, &src) || !ipaddr_aton(to, &dst) || tcp_bind(pcb, &src, 0) != ERR_OK) {
        abort();
    }
    begin(bytes);
    tcp_recv(pcb, tcp_came);
    tcp_sent(pcb, tcp_more);
    tcp_err(pcb, tcp_failed);
    if (tcp_connect(pcb, &dst, (u16_t)port, tcp_connected) != ERR_OK) {
        tcp_abort(pcb);
    }
}
