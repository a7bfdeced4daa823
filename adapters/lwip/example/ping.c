/* ping.c - see ping.h. */

#include "ping.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "console.h"
#include "lwip/icmp.h"
#include "lwip/inet_chksum.h"
#include "lwip/ip.h"
#include "lwip/prot/icmp6.h"
#include "lwip/raw.h"
#include "lwip/sys.h"
#include "lwip/timeouts.h"

#define IDENT 0xca5e
#define HEADER 8
#define MOST 512
#define LONGEST 60000
/* None may be lost: what is too long is cut. */
#define LIMIT_MS 3000

static struct raw_pcb *pcb_v4, *pcb_v6;
static ip_addr_t from, to;
static int sizes[MOST];
static int count, at;
static int is_waiting;
static u32_t began;

static u8_t pattern(int byte)
{
    return (u8_t)(byte * 7 ^ at);
}

static void late(void *arg)
{
    LWIP_UNUSED_ARG(arg);
    is_waiting = 0;
    console_answer(1, "no answer to %d bytes", sizes[at]);
}

static u16_t part16(const struct pbuf *p, int offset)
{
    return (u16_t)(pbuf_get_at(p, (u16_t)offset) << 8 | pbuf_get_at(p, (u16_t)(offset + 1)));
}

static void next(void);

/* Sees a packet with its IP header, and leaves it. */
static u8_t came(void *arg, struct raw_pcb *pcb, struct pbuf *p, const ip_addr_t *source)
{
    int is_v6 = IP_IS_V6_VAL(*source);
    int header = is_v6 ? IP6_HLEN : (pbuf_get_at(p, 0) & 15) * 4;
    u8_t reply = is_v6 ? ICMP6_TYPE_EREP : ICMP_ER;
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(pcb);
    if (!is_waiting || !ip_addr_cmp(source, &to) || p->tot_len != header + HEADER + sizes[at]
        || pbuf_get_at(p, (u16_t)header) != reply || part16(p, header + 4) != IDENT || part16(p, header + 6) != at) {
        return 0;
    }
    for (int byte = 0; byte < sizes[at]; byte++) {
        if (pbuf_get_at(p, (u16_t)(header + HEADER + byte)) != pattern(byte)) {
            return 0;
        }
    }
    is_waiting = 0;
    sys_untimeout(late, NULL);
    at++;
    next();
    return 0;
}

static void open_one(struct raw_pcb **pcb, u8_t type, u8_t protocol)
{
    *pcb = raw_new_ip_type(type, protocol);
    if (*pcb == NULL) {
        abort();
    }
    raw_recv(*pcb, came, NULL);
}

void ping_open(void)
{
    open_one(&pcb_v4, IPADDR_TYPE_V4, IP_PROTO_ICMP);
    open_one(&pcb_v6, IPADDR_TYPE_V6, IP6_NEXTH_ICMP6);
    pcb_v6->chksum_reqd = 1;
    pcb_v6->chksum_offset = 2;
}

void ping_begin(const ip_addr_t *source, const ip_addr_t *target)
{
    from = *source;
    to = *target;
    count = at = 0;
}

int ping_add(const char *text)
{
    char *end;
    long first = strtol(text, &end, 10), last = first;
    if (end != text && *end == '-') {
        text = end + 1;
        last = strtol(text, &end, 10);
    }
    if (end == text || *end != 0 || first < 0 || last < first || last > LONGEST || last - first >= MOST - count) {
        return 0;
    }
    for (long size = first; size <= last; size++) {
        sizes[count++] = (int)size;
    }
    return 1;
}

/* Sends request number `at`. */
static err_t send_request(void)
{
    struct raw_pcb *pcb = IP_IS_V6(&to) ? pcb_v6 : pcb_v4;
    struct pbuf *p = pbuf_alloc(PBUF_IP, (u16_t)(HEADER + sizes[at]), PBUF_RAM);
    u8_t *bytes;
    err_t err;
    if (p == NULL) {
        return ERR_MEM;
    }
    bytes = (u8_t *)p->payload;
    memset(bytes, 0, HEADER);
    bytes[0] = IP_IS_V6(&to) ? ICMP6_TYPE_EREQ : ICMP_ECHO;
    bytes[4] = IDENT >> 8;
    bytes[5] = IDENT & 255;
    bytes[6] = (u8_t)(at >> 8);
    bytes[7] = (u8_t)at;
    for (int byte = 0; byte < sizes[at]; byte++) {
        bytes[HEADER + byte] = pattern(byte);
    }
    if (!IP_IS_V6(&to)) {
        u16_t sum = inet_chksum(bytes, p->len);
        memcpy(bytes + 2, &sum, sizeof(sum));
    }
    err = raw_sendto_if_src(pcb, p, &to, netif_default, &from);
    pbuf_free(p);
    return err;
}

static void next(void)
{
    err_t err;
    if (at == count) {
        console_answer(0, "%d answered, %u ms", count, (unsigned)(sys_now() - began));
        return;
    }
    is_waiting = 1;
    sys_timeout(LIMIT_MS, late, NULL);
    err = send_request();
    if (err != ERR_OK) {
        is_waiting = 0;
        sys_untimeout(late, NULL);
        console_answer(1, "%d bytes: lwIP's error %d", sizes[at], err);
    }
}

void ping_start(void)
{
    began = sys_now();
    next();
}
