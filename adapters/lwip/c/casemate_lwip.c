/* casemate_lwip.c - see casemate_lwip.h. */

#include "casemate_lwip.h"

#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/ip.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/ip6.h"
#include "lwip/sys.h"
#if !NO_SYS
#include "lwip/tcpip.h"
#endif

#if !LWIP_RAW
#error "casemate: LWIP_RAW must be 1: packets are opened in raw PCBs"
#endif
#if LWIP_IPV4 && (!IP_REASSEMBLY || IP_FORWARD)
#error "casemate: IP_REASSEMBLY must be 1 and IP_FORWARD 0: what is forwarded passes no guard"
#endif
#if LWIP_IPV6 && (!LWIP_IPV6_REASS || LWIP_IPV6_FORWARD)
#error "casemate: LWIP_IPV6_REASS must be 1 and LWIP_IPV6_FORWARD 0: what is forwarded passes no guard"
#endif
#if LWIP_IPV6 && LWIP_ND6_ALLOW_RA_UPDATES
#error "casemate: LWIP_ND6_ALLOW_RA_UPDATES must be 0: a router's MTU would have packets cut before they are protected"
#endif

/* Protocols that lwIP delivers, those of IPsec, and IPv6 headers that one of them may stand behind: raw PCBs see the first. */
static const u8_t guarded[CASEMATE_LWIP_GUARDS] = {
    0 /* hop-by-hop options */, 1 /* ICMP */,  2 /* IGMP */,      6 /* TCP */,  17 /* UDP */, 43 /* routing */,
    44 /* fragment */,          50 /* ESP */, 51 /* AH */, 58 /* ICMPv6 */, 60 /* destination options */, 136 /* UDP-Lite */,
};

/* A flag of pbufs that lwIP does not use: the packet has been here. lwIP sends what waited for a neighbour by output_ip6 again. */
#define IS_READY 0x80U

/* lwIP's stack is one for the program, and so is this. */
static struct casemate_lwip *the_stack;

static struct casemate_lwip_netif *find(const struct netif *netif)
{
    struct casemate_lwip_netif *state = the_stack != NULL ? the_stack->netifs : NULL;
    while (state != NULL && state->netif != netif) {
        state = state->next;
    }
    return state;
}

u64_t casemate_lwip_now(void)
{
    u32_t ticks = sys_now();
    /* lwIP's clock begins anew after 49 days; ours does not. */
    the_stack->time += (u32_t)(ticks - the_stack->ticks);
    the_stack->ticks = ticks;
    return the_stack->time * 1000;
}

/* ---- in ---- */

/* Gives opened packets to lwIP. Not from within a raw PCB: ip_input would walk the list of PCBs that is being walked. */
static void inject(void *unused)
{
    struct casemate_lwip *stack = the_stack;
    LWIP_UNUSED_ARG(unused);
    while (stack->waiting_count > 0) {
        struct pbuf *p = stack->waiting[stack->waiting_first];
        struct netif *netif = stack->waiting_from[stack->waiting_first];
        stack->waiting_first = (u16_t)((stack->waiting_first + 1) % CASEMATE_LWIP_QUEUE);
        stack->waiting_count--;
        stack->admitted = p;
        if (ip_input(p, netif) != ERR_OK) {
            pbuf_free(p);
        }
        stack->admitted = NULL;
    }
}

/* Takes the packet over. */
static void put_in_queue(struct pbuf *p, struct netif *netif)
{
    struct casemate_lwip *stack = the_stack;
    u16_t at = (u16_t)((stack->waiting_first + stack->waiting_count) % CASEMATE_LWIP_QUEUE);
    if (stack->waiting_count == CASEMATE_LWIP_QUEUE) {
        stack->out_of_memory++;
        pbuf_free(p);
        return;
    }
#if !NO_SYS
    if (stack->waiting_count == 0 && tcpip_try_callback(inject, NULL) != ERR_OK) {
        stack->out_of_memory++;
        pbuf_free(p);
        return;
    }
#endif
    stack->waiting[at] = p;
    stack->waiting_from[at] = netif;
    stack->waiting_count++;
}

#if NO_SYS
/* In the place of netif->input: what was opened goes on when lwIP is done with what it came in. */
static err_t input(struct pbuf *p, struct netif *netif)
{
    struct casemate_lwip_netif *state = find(netif);
    const struct pbuf *admitted = the_stack->admitted;
    err_t err;
    /* A driver may call this from its output function: what it brings was not admitted. */
    the_stack->admitted = NULL;
    err = state->input(p, netif);
    the_stack->admitted = admitted;
    if (admitted == NULL) {
        inject(NULL);
    }
    return err;
}
#endif

/* The opened packet as a pbuf: what is left of q, or a copy if it was put together elsewhere. Takes q over. */
static struct pbuf *opened(struct pbuf *q, const struct casemate_packet *packet)
{
    struct pbuf *copy;
    if (packet->buffer == q->payload) {
        pbuf_remove_header(q, packet->start);
        pbuf_realloc(q, (u16_t)packet->len);
        return q;
    }
    pbuf_free(q);
    copy = pbuf_alloc(PBUF_RAW, (u16_t)packet->len, PBUF_RAM);
    if (copy != NULL) {
        pbuf_take(copy, packet->buffer + packet->start, (u16_t)packet->len);
    }
    return copy;
}

/* lwIP puts IPv6 packets together with a length in the header that is 8 too small, which it never reads again; we do. */
static void correct_length(struct pbuf *q)
{
#if LWIP_IPV6
    if (IP_HDR_GET_VERSION(q->payload) == 6) {
        IP6H_PLEN_SET((struct ip6_hdr *)q->payload, (u16_t)(q->len - IP6_HLEN));
    }
#else
    LWIP_UNUSED_ARG(q);
#endif
}

/* Sees every packet of its protocol, put together and with its IP header. 1 if it took it over. */
static u8_t guard(void *arg, struct raw_pcb *pcb, struct pbuf *p, const ip_addr_t *addr)
{
    struct casemate_lwip *stack = the_stack;
    struct netif *netif = ip_current_input_netif();
    struct casemate_packet packet;
    struct pbuf *q = p;
    s32_t verdict;
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(pcb);
    LWIP_UNUSED_ARG(addr);
    if (p == stack->admitted) {
        stack->admitted = NULL;
        return 0;
    }
    if (find(netif) == NULL) {
        return 0;
    }
    /* In place where nobody else sees it. */
    if (p->next != NULL || p->ref > 1) {
        q = pbuf_clone(PBUF_RAW, PBUF_RAM, p);
        if (q == NULL) {
            stack->out_of_memory++;
            pbuf_free(p);
            return 1;
        }
    }
    correct_length(q);
    packet.buffer = (u8_t *)q->payload;
    packet.size = packet.len = q->len;
    packet.start = 0;
    verdict = casemate_inbound(stack->host, &packet, casemate_lwip_now());
    if (verdict == CASEMATE_CLEAR) {
        if (q != p) {
            pbuf_take(p, q->payload, q->len);
            pbuf_free(q);
        }
        return 0;
    }
    if (q != p) {
        pbuf_free(p);
    }
    if (verdict != CASEMATE_CHANGED) {
        pbuf_free(q);
        return 1;
    }
    q = opened(q, &packet);
    if (q == NULL) {
        stack->out_of_memory++;
    } else {
        put_in_queue(q, netif);
    }
    return 1;
}

/* ---- out ---- */

/* Where a packet goes: what lwIP said, or the end of a tunnel. */
union target {
#if LWIP_IPV4
    ip4_addr_t v4;
#endif
#if LWIP_IPV6
    ip6_addr_t v6;
#endif
};

/* Sends a packet that is ready, to the address in its header. */
static err_t send_on(const struct casemate_lwip_netif *state, struct pbuf *q)
{
    union target target;
    q->flags |= IS_READY;
#if LWIP_IPV6
    if (IP_HDR_GET_VERSION(q->payload) == 6) {
        const struct ip6_hdr *header = (const struct ip6_hdr *)q->payload;
        ip6_addr_copy_from_packed(target.v6, header->dest);
        ip6_addr_assign_zone(&target.v6, IP6_UNKNOWN, state->netif);
        return state->output_ip6(state->netif, q, &target.v6);
    }
#endif
#if LWIP_IPV4
    ip4_addr_copy(target.v4, ((const struct ip_hdr *)q->payload)->dest);
    return state->output(state->netif, q, &target.v4);
#else
    return ERR_RTE;
#endif
}

/* Fragments of one packet, each a single pbuf, in a list by their next. */
struct pieces {
    struct pbuf *first;
    struct pbuf *last;
    u8_t is_short;
};

/* Keeps a fragment until all are there: sending could lead back into the library. */
static void keep_piece(void *context, const u8_t *fragment, size_t bytes)
{
    struct pieces *pieces = (struct pieces *)context;
    struct pbuf *piece = pbuf_alloc(PBUF_LINK, (u16_t)bytes, PBUF_RAM);
    if (piece == NULL) {
        pieces->is_short = 1;
        return;
    }
    pbuf_take(piece, fragment, (u16_t)bytes);
    if (pieces->first == NULL) {
        pieces->first = piece;
    } else {
        pieces->last->next = piece;
    }
    pieces->last = piece;
}

/* Sends a packet in fragments, all or none. */
static err_t send_cut(const struct casemate_lwip_netif *state, const struct casemate_packet *packet)
{
    struct pieces pieces = { NULL, NULL, 0 };
    err_t err = ERR_OK;
    if (casemate_cut(the_stack->host, packet, keep_piece, &pieces) != CASEMATE_OK) {
        err = ERR_VAL;
    } else if (pieces.is_short) {
        the_stack->out_of_memory++;
        err = ERR_MEM;
    }
    while (pieces.first != NULL) {
        struct pbuf *piece = pieces.first;
        pieces.first = piece->next;
        piece->next = NULL;
        if (err == ERR_OK) {
            err = send_on(state, piece);
        }
        pbuf_free(piece);
    }
    return err;
}

/* Protects and sends. p stays as it is: TCP keeps its segments to send them again. */
static err_t protect(struct netif *netif, struct pbuf *p)
{
    const struct casemate_lwip_netif *state = find(netif);
    struct casemate_packet packet;
    struct pbuf *q;
    s32_t verdict;
    err_t err;
    u32_t size = (u32_t)p->tot_len + CASEMATE_HEAD_ROOM + CASEMATE_TAIL_ROOM;
    if (size > 0xffff - PBUF_LINK_HLEN - PBUF_LINK_ENCAPSULATION_HLEN) {
        return ERR_VAL;
    }
    q = pbuf_alloc(PBUF_LINK, (u16_t)size, PBUF_RAM);
    if (q == NULL) {
        the_stack->out_of_memory++;
        return ERR_MEM;
    }
    packet.buffer = (u8_t *)q->payload;
    packet.size = size;
    packet.start = CASEMATE_HEAD_ROOM;
    packet.len = p->tot_len;
    pbuf_copy_partial(p, packet.buffer + packet.start, p->tot_len, 0);
    verdict = casemate_outbound(the_stack->host, &packet, casemate_lwip_now());
    if (verdict != CASEMATE_CHANGED && verdict != CASEMATE_CLEAR) {
        /* An application learns of it sooner than by ICMP. */
        err = ERR_RTE;
    } else if (packet.cut_to != 0) {
        err = send_cut(state, &packet);
    } else {
        pbuf_remove_header(q, packet.start);
        pbuf_realloc(q, (u16_t)packet.len);
        err = send_on(state, q);
    }
    pbuf_free(q);
    return err;
}

#if LWIP_IPV4
static err_t output(struct netif *netif, struct pbuf *p, const ip4_addr_t *target)
{
    return (p->flags & IS_READY) ? find(netif)->output(netif, p, target) : protect(netif, p);
}
#endif

#if LWIP_IPV6
static err_t output_ip6(struct netif *netif, struct pbuf *p, const ip6_addr_t *target)
{
    return (p->flags & IS_READY) ? find(netif)->output_ip6(netif, p, target) : protect(netif, p);
}
#endif

/* ---- start ---- */

err_t casemate_lwip_start(struct casemate_lwip *stack, struct casemate_host *host)
{
    int at;
    if (the_stack != NULL) {
        return ERR_USE;
    }
    memset(stack, 0, sizeof(*stack));
    stack->host = host;
    stack->ticks = sys_now();
    for (at = 0; at < CASEMATE_LWIP_GUARDS; at++) {
        struct raw_pcb *pcb = raw_new_ip_type(IPADDR_TYPE_ANY, guarded[at]);
        if (pcb == NULL) {
            while (at-- > 0) {
                raw_remove(stack->guards[at]);
            }
            return ERR_MEM;
        }
        ip_set_option(pcb, SOF_BROADCAST);
        raw_recv(pcb, guard, NULL);
        stack->guards[at] = pcb;
    }
    the_stack = stack;
    return ERR_OK;
}

err_t casemate_lwip_attach(struct casemate_lwip_netif *state, struct netif *netif)
{
    if (find(netif) != NULL) {
        return ERR_USE;
    }
    if (the_stack == NULL || netif->mtu == 0) {
        return ERR_ARG;
    }
    state->netif = netif;
    state->mtu = netif->mtu;
    /* lwIP's word for "do not fragment". */
    netif->mtu = 0;
    state->input = netif->input;
#if NO_SYS
    netif->input = input;
#endif
#if LWIP_IPV4
    state->output = netif->output;
    netif->output = output;
#endif
#if LWIP_IPV6
    state->output_ip6 = netif->output_ip6;
    netif->output_ip6 = output_ip6;
#endif
    state->next = the_stack->netifs;
    the_stack->netifs = state;
    return ERR_OK;
}

void casemate_lwip_detach(struct casemate_lwip_netif *state)
{
    struct casemate_lwip_netif **place = &the_stack->netifs;
    while (*place != NULL && *place != state) {
        place = &(*place)->next;
    }
    if (*place == NULL) {
        return;
    }
    *place = state->next;
    state->netif->mtu = state->mtu;
    state->netif->input = state->input;
#if LWIP_IPV4
    state->netif->output = state->output;
#endif
#if LWIP_IPV6
    state->netif->output_ip6 = state->output_ip6;
#endif
}
