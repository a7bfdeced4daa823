/* casemate_lwip.c - see casemate_lwip.h: code for both placements. */

#include "casemate_lwip_private.h"

#include <string.h>

#include "lwip/ip.h"
#include "lwip/sys.h"
#include "netif/ethernet.h"
#if !NO_SYS
#include "lwip/tcpip.h"
#endif

#if LWIP_IPV4 && (!IP_REASSEMBLY || IP_FORWARD)
#error "casemate: IP_REASSEMBLY must be 1 and IP_FORWARD 0: forwarded packets would bypass IPsec"
#endif
#if LWIP_IPV6 && (!LWIP_IPV6_REASS || LWIP_IPV6_FORWARD)
#error "casemate: LWIP_IPV6_REASS must be 1 and LWIP_IPV6_FORWARD 0: forwarded packets would bypass IPsec"
#endif
#if LWIP_IPV6 && LWIP_ND6_ALLOW_RA_UPDATES
#error "casemate: LWIP_ND6_ALLOW_RA_UPDATES must be 0: with a router's MTU lwIP would fragment before IPsec"
#endif

struct casemate_lwip *casemate_lwip_stack;

struct casemate_lwip_netif *casemate_lwip_find(const struct netif *netif)
{
    struct casemate_lwip_netif *state = casemate_lwip_stack != NULL ? casemate_lwip_stack->netifs : NULL;
    while (state != NULL && state->netif != netif) {
        state = state->next;
    }
    return state;
}

int casemate_lwip_is_idle(void)
{
    return casemate_is_idle(casemate_lwip_stack->host) == 1;
}

u64_t casemate_lwip_now(void)
{
    struct casemate_lwip *stack = casemate_lwip_stack;
    u32_t ticks = sys_now();
    /* lwIP's clock wraps around after 49 days; this one does not. */
    stack->time += (u32_t)(ticks - stack->ticks);
    stack->ticks = ticks;
    return stack->time * 1000;
}

/* ---- in ---- */

/* Returns whether a packet may be an AH packet, which needs room behind it. */
static int may_be_ah(const struct pbuf *p, u16_t front)
{
    if (pbuf_get_at(p, front) >> 4 == 4) {
        return pbuf_get_at(p, (u16_t)(front + 9)) == 51;
    }
    switch (pbuf_get_at(p, (u16_t)(front + 6))) {
    case 6:  /* TCP */
    case 17: /* UDP */
    case 50: /* ESP */
    case 58: /* ICMPv6 */
        return 0;
    default:
        return 1;
    }
}

struct pbuf *casemate_lwip_own(struct pbuf *p, u16_t front, struct casemate_packet *packet)
{
    struct pbuf *q = p;
    u16_t len = p->tot_len;
    if (p->next != NULL || p->ref > 1 || may_be_ah(p, front)) {
        q = len <= 0xffff - CASEMATE_AH_ROOM ? pbuf_alloc(PBUF_RAW, (u16_t)(len + CASEMATE_AH_ROOM), PBUF_RAM)
            : NULL;
        if (q == NULL) {
            casemate_lwip_stack->out_of_memory++;
            return NULL;
        }
        pbuf_copy_partial(p, q->payload, len, 0);
    }
    pbuf_remove_header(q, front);
    packet->buffer = (u8_t *)q->payload;
    packet->size = q->len;
    packet->start = 0;
    packet->len = (size_t)len - front;
    return q;
}

struct pbuf *casemate_lwip_opened(struct pbuf *q, const struct casemate_packet *packet)
{
    struct pbuf *copy;
    if (packet->buffer == q->payload) {
        pbuf_remove_header(q, packet->start);
        pbuf_realloc(q, (u16_t)packet->len);
        return q;
    }
    pbuf_free(q);
    /* With room for a link-layer header, in case lwIP sends a reply in the same pbuf. */
    copy = pbuf_alloc(PBUF_LINK, (u16_t)packet->len, PBUF_RAM);
    if (copy == NULL) {
        casemate_lwip_stack->out_of_memory++;
        return NULL;
    }
    pbuf_take(copy, packet->buffer + packet->start, (u16_t)packet->len);
    return copy;
}

/* ---- out ---- */

/* Fragments of one packet: a list of single pbufs linked by `next`. */
struct fragment_list {
    struct pbuf *first;
    struct pbuf *last;
    u8_t is_short;
};

/* Stores a fragment until all fragments exist: sending now could call the library again. */
static void append_fragment(void *context, const u8_t *fragment, size_t bytes)
{
    struct fragment_list *list = (struct fragment_list *)context;
    struct pbuf *part = pbuf_alloc(PBUF_LINK, (u16_t)bytes, PBUF_RAM);
    if (part == NULL) {
        list->is_short = 1;
        return;
    }
    pbuf_take(part, fragment, (u16_t)bytes);
    if (list->first == NULL) {
        list->first = part;
    } else {
        list->last->next = part;
    }
    list->last = part;
}

/* Sends a packet in fragments: all, or none if a fragment could not be allocated. */
static err_t send_fragments(const struct casemate_lwip_netif *state, const struct casemate_packet *packet,
                      casemate_lwip_send_fn send, const void *link)
{
    struct fragment_list list = { NULL, NULL, 0 };
    err_t err = ERR_OK;
    if (casemate_cut(casemate_lwip_stack->host, packet, append_fragment, &list) != CASEMATE_OK) {
        err = ERR_VAL;
    } else if (list.is_short) {
        casemate_lwip_stack->out_of_memory++;
        err = ERR_MEM;
    }
    while (list.first != NULL) {
        struct pbuf *part = list.first;
        list.first = part->next;
        part->next = NULL;
        if (err == ERR_OK) {
            err = send(state, part, link);
        }
        pbuf_free(part);
    }
    return err;
}

err_t casemate_lwip_protect(const struct casemate_lwip_netif *state, const struct pbuf *p, u16_t front,
                            casemate_lwip_send_fn send, const void *link)
{
    struct casemate_packet packet;
    struct pbuf *q;
    s32_t verdict;
    err_t err;
    u32_t len = (u32_t)p->tot_len - front, size = len + CASEMATE_HEAD_ROOM + CASEMATE_TAIL_ROOM;
    if (size > 0xffff - PBUF_LINK_HLEN - PBUF_LINK_ENCAPSULATION_HLEN) {
        return ERR_VAL;
    }
    q = pbuf_alloc(PBUF_LINK, (u16_t)size, PBUF_RAM);
    if (q == NULL) {
        casemate_lwip_stack->out_of_memory++;
        return ERR_MEM;
    }
    packet.buffer = (u8_t *)q->payload;
    packet.size = size;
    packet.start = CASEMATE_HEAD_ROOM;
    packet.len = len;
    pbuf_copy_partial(p, packet.buffer + packet.start, (u16_t)len, front);
    verdict = casemate_outbound(casemate_lwip_stack->host, &packet, casemate_lwip_now());
    if (verdict != CASEMATE_CHANGED && verdict != CASEMATE_CLEAR) {
        /* The application gets the error sooner than an ICMP message. */
        err = ERR_RTE;
    } else if (packet.cut_to != 0) {
        err = send_fragments(state, &packet, send, link);
    } else {
        pbuf_remove_header(q, packet.start);
        pbuf_realloc(q, (u16_t)packet.len);
        err = send(state, q, link);
    }
    pbuf_free(q);
    return err;
}

/* ---- start ---- */

err_t casemate_lwip_start(struct casemate_lwip *stack, struct casemate_host *host)
{
    if (casemate_lwip_stack != NULL) {
        return ERR_USE;
    }
    memset(stack, 0, sizeof(*stack));
    stack->host = host;
    stack->ticks = sys_now();
    casemate_lwip_stack = stack;
    return ERR_OK;
}

void casemate_lwip_use(struct casemate_lwip *stack, struct casemate_host *host)
{
    stack->host = host;
}

#if !NO_SYS
/* Replaces tcpip_input; called by the driver's thread. */
static err_t to_stack_inside(struct pbuf *p, struct netif *netif)
{
    return tcpip_inpkt(p, netif, casemate_lwip_inside_input);
}

static err_t to_stack_below(struct pbuf *p, struct netif *netif)
{
    return tcpip_inpkt(p, netif, casemate_lwip_below_input);
}
#endif

/* Returns the netif's input function for calls in the thread of the stack; NULL if it is unknown. */
static netif_input_fn stack_input(const struct netif *netif)
{
#if NO_SYS
    return netif->input;
#else
    if (netif->input != tcpip_input) {
        /* Any other function might pass the packet to another thread. */
        return netif->input == ethernet_input || netif->input == ip_input ? netif->input : NULL;
    }
    return netif->flags & (NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET) ? ethernet_input : ip_input;
#endif
}

/* Hooks the input function of the netif. */
static void replace_input(const struct casemate_lwip_netif *state)
{
    int is_inside = state->place == CASEMATE_LWIP_INSIDE_IP;
#if !NO_SYS
    if (state->driver_input == tcpip_input) {
        state->netif->input = is_inside ? to_stack_inside : to_stack_below;
        return;
    }
#endif
    state->netif->input = is_inside ? casemate_lwip_inside_input : casemate_lwip_below_input;
}

err_t casemate_lwip_attach(struct casemate_lwip_netif *state, struct netif *netif,
                           enum casemate_lwip_place place)
{
    err_t err;
    if (casemate_lwip_find(netif) != NULL) {
        return ERR_USE;
    }
    if (casemate_lwip_stack == NULL || netif->mtu == 0 || stack_input(netif) == NULL) {
        return ERR_ARG;
    }
    state->netif = netif;
    state->driver_input = netif->input;
    state->input = stack_input(netif);
    state->place = place;
    state->mtu = netif->mtu;
    err = place == CASEMATE_LWIP_INSIDE_IP ? casemate_lwip_inside_attach(state)
        : casemate_lwip_below_attach(state);
    if (err != ERR_OK) {
        return err;
    }
    replace_input(state);
    /* lwIP does not fragment packets of a netif with MTU 0. */
    netif->mtu = 0;
    state->next = casemate_lwip_stack->netifs;
    casemate_lwip_stack->netifs = state;
    return ERR_OK;
}

void casemate_lwip_detach(struct casemate_lwip_netif *state)
{
    struct casemate_lwip_netif **place = &casemate_lwip_stack->netifs;
    while (*place != NULL && *place != state) {
        place = &(*place)->next;
    }
    if (*place == NULL) {
        return;
    }
    *place = state->next;
    state->netif->mtu = state->mtu;
    state->netif->input = state->driver_input;
    if (state->place == CASEMATE_LWIP_INSIDE_IP) {
        casemate_lwip_inside_detach(state);
    } else {
        casemate_lwip_below_detach(state);
    }
}
