/* jobs.c - see jobs.h. */

#include "jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "link.h"
#include "lwip/apps/lwiperf.h"
#include "lwip/ip.h"
#include "lwip/tcp.h"
#include "lwip/timeouts.h"
#include "lwip/udp.h"

#define ECHO_PORT 7
#define PART_BYTES 1000
/* Timeout of a reply, and maximum number of tcp_poll calls (every half second) without progress. */
#define TIMEOUT_MS 5000
#define MAX_POLLS 12

/* State of the current job: bytes in total, sent, and received. */
static int total, written, returned, polls, is_wrong;

static u8_t pattern(int at)
{
    return (u8_t)(at % 251);
}

static void begin(int bytes)
{
    total = bytes;
    written = returned = polls = is_wrong = 0;
}

static void check(const struct pbuf *p)
{
    for (; p != NULL; p = p->next) {
        for (int at = 0; at < p->len; at++) {
            is_wrong |= ((const u8_t *)p->payload)[at] != pattern(returned++);
        }
    }
}

static void respond(void)
{
    if (is_wrong || returned != total) {
        console_respond(1, "%d of %d bytes came back, or they differ", returned, total);
    } else {
        console_respond(0, "%d bytes there and back", total);
    }
}

/* ---- UDP ---- */

static void udp_timeout(void *arg)
{
    udp_remove((struct udp_pcb *)arg);
    console_respond(1, "no reply to %d bytes", total);
}

static void udp_received(void *arg, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from, u16_t port)
{
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(from);
    LWIP_UNUSED_ARG(port);
    sys_untimeout(udp_timeout, pcb);
    check(p);
    pbuf_free(p);
    udp_remove(pcb);
    respond();
}

void job_udp(const ip_addr_t *from, const ip_addr_t *to, int bytes)
{
    struct udp_pcb *pcb = udp_new_ip_type(IPADDR_TYPE_ANY);
    struct pbuf *p = pbuf_alloc(PBUF_TRANSPORT, (u16_t)bytes, PBUF_POOL);
    err_t err;
    if (pcb == NULL || p == NULL || udp_bind(pcb, from, 0) != ERR_OK) {
        abort();
    }
    begin(bytes);
    for (written = 0; written < bytes; written++) {
        pbuf_put_at(p, (u16_t)written, pattern(written));
    }
    udp_recv(pcb, udp_received, NULL);
    sys_timeout(TIMEOUT_MS, udp_timeout, pcb);
    err = udp_sendto_if_src(pcb, p, to, ECHO_PORT, netif_default, from);
    pbuf_free(p);
    if (err != ERR_OK) {
        sys_untimeout(udp_timeout, pcb);
        udp_remove(pcb);
        console_respond(1, "lwIP's error %d", err);
    }
}

/* ---- TCP ---- */

static err_t tcp_send_more(void *arg, struct tcp_pcb *pcb, u16_t sent)
{
    u8_t part[PART_BYTES];
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(sent);
    polls = 0;
    while (written < total && tcp_sndbuf(pcb) >= sizeof(part)) {
        int len = LWIP_MIN(total - written, (int)sizeof(part));
        for (int at = 0; at < len; at++) {
            part[at] = pattern(written + at);
        }
        if (tcp_write(pcb, part, (u16_t)len, TCP_WRITE_FLAG_COPY) != ERR_OK) {
            break;
        }
        written += len;
    }
    return tcp_output(pcb);
}

/* Removes the callbacks from the connection. */
static void clear_callbacks(struct tcp_pcb *pcb)
{
    tcp_recv(pcb, NULL);
    tcp_sent(pcb, NULL);
    tcp_err(pcb, NULL);
    tcp_poll(pcb, NULL, 0);
}

static err_t tcp_received(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t err)
{
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(err);
    polls = 0;
    if (p != NULL) {
        check(p);
        tcp_recved(pcb, p->tot_len);
        pbuf_free(p);
        if (returned < total) {
            return ERR_OK;
        }
    }
    clear_callbacks(pcb);
    respond();
    return tcp_close(pcb);
}

static void tcp_failed(void *arg, err_t err)
{
    LWIP_UNUSED_ARG(arg);
    console_respond(1, "lwIP's error %d after %d of %d bytes", err, returned, total);
}

static err_t tcp_polled(void *arg, struct tcp_pcb *pcb)
{
    LWIP_UNUSED_ARG(arg);
    if (++polls < MAX_POLLS) {
        return ERR_OK;
    }
    clear_callbacks(pcb);
    console_respond(1, "no progress after %d of %d bytes", returned, total);
    tcp_abort(pcb);
    return ERR_ABRT;
}

static err_t tcp_connected(void *arg, struct tcp_pcb *pcb, err_t err)
{
    LWIP_UNUSED_ARG(err);
    return tcp_send_more(arg, pcb, 0);
}

void job_tcp(const ip_addr_t *from, const ip_addr_t *to, int bytes)
{
    struct tcp_pcb *pcb = tcp_new_ip_type(IPADDR_TYPE_ANY);
    err_t err;
    if (pcb == NULL || tcp_bind(pcb, from, 0) != ERR_OK) {
        abort();
    }
    begin(bytes);
    tcp_recv(pcb, tcp_received);
    tcp_sent(pcb, tcp_send_more);
    tcp_err(pcb, tcp_failed);
    tcp_poll(pcb, tcp_polled, 1);
    err = tcp_connect(pcb, to, ECHO_PORT, tcp_connected);
    if (err != ERR_OK) {
        clear_callbacks(pcb);
        tcp_abort(pcb);
        console_respond(1, "lwIP's error %d", err);
    }
}

/* ---- throughput ---- */

/* Bytes written by the link before the measurement. */
static unsigned long long iperf_before;

static void iperf_done(void *arg, enum lwiperf_report_type type, const ip_addr_t *own, u16_t own_port,
                       const ip_addr_t *to,
                       u16_t to_port, u32_t bytes, u32_t ms, u32_t kbit)
{
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(own);
    LWIP_UNUSED_ARG(own_port);
    LWIP_UNUSED_ARG(to);
    LWIP_UNUSED_ARG(to_port);
    LWIP_UNUSED_ARG(kbit);
    /* lwIP's counter wraps at 2^32; the link's counter, which includes headers, shows how often. */
    unsigned long long wraps = (link_written() - iperf_before - bytes) >> 32;
    console_respond(type != LWIPERF_TCP_DONE_CLIENT, "%llu bytes in %u ms", (wraps << 32) + bytes,
                    (unsigned)ms);
}

void job_iperf(const ip_addr_t *to)
{
    iperf_before = link_written();
    if (lwiperf_start_tcp_client_default(to, iperf_done, NULL) == NULL) {
        console_respond(1, "the iperf client does not start");
    }
}
