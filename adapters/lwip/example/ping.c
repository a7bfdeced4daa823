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
#define MAX_REQUESTS 512
#define MAX_BYTES 60000
/* Timeout of a reply. No packet may be lost, because long packets are fragmented. */
#define TIMEOUT_MS 3000

static struct raw_pcb *pcb_v4, *pcb_v6;
static ip_addr_t from, to;
static int sizes[MAX_REQUESTS];
static int count, current;
static int is_pending;
static u32_t start_time;

static u8_t pattern(int byte)
{
    return (u8_t)(byte * 7 ^ current);
}

static void timed_out(void *arg)
{
    LWIP_UNUSED_ARG(arg);
    is_pending = 0;
    console_respond(1, "no reply to %d bytes", sizes[current]);
}

static u16_t get_u16(const struct pbuf *p, int offset)
{
    return (u16_t)(pbuf_get_at(p, (u16_t)offset) << 8 | pbuf_get_at(p, (u16_t)(offset + 1)));
}

static void send_next(void);

/* Raw PCB callback: gets a packet with its IP header, and never takes it. */
static u8_t received(void *arg, struct raw_pcb *pcb, struct pbuf *p, const ip_addr_t *source)
{
    int is_v6 = IP_IS_V6_VAL(*source);
    int header = is_v6 ? IP6_HLEN : (pbuf_get_at(p, 0) & 15) * 4;
    u8_t reply = is_v6 ? ICMP6_TYPE_EREP : ICMP_ER;
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(pcb);
    if (!is_pending || !ip_addr_cmp(source, &to) || p->tot_len != header + HEADER + sizes[current]
        || pbuf_get_at(p, (u16_t)header) != reply || get_u16(p, header + 4) != IDENT
            || get_u16(p, header + 6) != current) {
        return 0;
    }
    for (int byte = 0; byte < sizes[current]; byte++) {
        if (pbuf_get_at(p, (u16_t)(header + HEADER + byte)) != pattern(byte)) {
            return 0;
        }
    }
    is_pending = 0;
    sys_untimeout(timed_out, NULL);
    current++;
    send_next();
    return 0;
}

static void open_pcb(struct raw_pcb **pcb, u8_t type, u8_t protocol)
{
    *pcb = raw_new_ip_type(type, protocol);
    if (*pcb == NULL) {
        abort();
    }
    raw_recv(*pcb, received, NULL);
}

void ping_open(void)
{
    open_pcb(&pcb_v4, IPADDR_TYPE_V4, IP_PROTO_ICMP);
    open_pcb(&pcb_v6, IPADDR_TYPE_V6, IP6_NEXTH_ICMP6);
    pcb_v6->chksum_reqd = 1;
    pcb_v6->chksum_offset = 2;
}

void ping_init(const ip_addr_t *source, const ip_addr_t *target)
{
    from = *source;
    to = *target;
    count = current = 0;
}

int ping_add(const char *text)
{
    char *end;
    long first = strtol(text, &end, 10), last = first;
    if (end != text && *end == '-') {
        text = end + 1;
        last = strtol(text, &end, 10);
    }
    if (end == text || *end != 0 || first < 0 || last < first || last > MAX_BYTES
        || last - first >= MAX_REQUESTS - count) {
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
    struct pbuf *p = pbuf_alloc(PBUF_IP, (u16_t)(HEADER + sizes[current]), PBUF_RAM);
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
    bytes[6] = (u8_t)(current >> 8);
    bytes[7] = (u8_t)current;
    for (int byte = 0; byte < sizes[current]; byte++) {
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

static void send_next(void)
{
    err_t err;
    if (current == count) {
        console_respond(0, "%d answered, %u ms", count, (unsigned)(sys_now() - start_time));
        return;
    }
    is_pending = 1;
    sys_timeout(TIMEOUT_MS, timed_out, NULL);
    err = send_request();
    if (err != ERR_OK) {
        is_pending = 0;
        sys_untimeout(timed_out, NULL);
        console_respond(1, "%d bytes: lwIP's error %d", sizes[current], err);
    }
}

void ping_start(void)
{
    start_time = sys_now();
    send_next();
}
