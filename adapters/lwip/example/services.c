/* services.c - see services.h. */

#include "services.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lwip/apps/httpd.h"
#include "lwip/apps/lwiperf.h"
#include "lwip/ip.h"
#include "lwip/tcp.h"
#include "lwip/udp.h"
#include "measure.h"

#define ECHO_PORT 7

static void echo_udp(void *arg, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from, u16_t port)
{
    ip_addr_t own = *ip_current_dest_addr();
    LWIP_UNUSED_ARG(arg);
    udp_sendto_if_src(pcb, p, from, port, ip_current_input_netif(), &own);
    pbuf_free(p);
}

/* Received bytes that were not sent back yet: at most the window. */
struct echo {
    struct pbuf *waiting;
    int is_ending; /* the peer has closed its direction */
};

static void echo_free(struct echo *echo)
{
    if (echo->waiting != NULL) {
        pbuf_free(echo->waiting);
    }
    free(echo);
}

static err_t echo_close(struct echo *echo, struct tcp_pcb *pcb)
{
    echo_free(echo);
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_sent(pcb, NULL);
    tcp_err(pcb, NULL);
    return tcp_close(pcb);
}

static err_t echo_send_more(void *arg, struct tcp_pcb *pcb, u16_t sent)
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
    if (echo->is_ending && echo->waiting == NULL) {
        return echo_close(echo, pcb);
    }
    tcp_output(pcb);
    return ERR_OK;
}

static err_t echo_received(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
    struct echo *echo = (struct echo *)arg;
    LWIP_UNUSED_ARG(err);
    if (p == NULL) {
        echo->is_ending = 1;
    } else if (echo->waiting == NULL) {
        echo->waiting = p;
    } else {
        pbuf_cat(echo->waiting, p);
    }
    return echo_send_more(arg, pcb, 0);
}

static void echo_failed(void *arg, err_t err)
{
    LWIP_UNUSED_ARG(err);
    echo_free((struct echo *)arg);
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
    tcp_sent(pcb, echo_send_more);
    tcp_err(pcb, echo_failed);
    return ERR_OK;
}

void services_open(void)
{
    struct udp_pcb *udp = udp_new_ip_type(IPADDR_TYPE_ANY);
    struct tcp_pcb *tcp = tcp_new_ip_type(IPADDR_TYPE_ANY);
    if (udp == NULL || udp_bind(udp, IP_ANY_TYPE, ECHO_PORT) != ERR_OK || tcp == NULL
        || tcp_bind(tcp, IP_ANY_TYPE, ECHO_PORT) != ERR_OK || (tcp = tcp_listen(tcp)) == NULL) {
        abort();
    }
    udp_recv(udp, echo_udp, NULL);
    tcp_accept(tcp, echo_accepted);
    httpd_init();
    measure_open();
    if (lwiperf_start_tcp_server(IP_ANY_TYPE, LWIPERF_TCP_PORT_DEFAULT, NULL, NULL) == NULL) {
        abort();
    }
}
