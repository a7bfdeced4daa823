/* casemate_lwip_inside.c - Casemate inside IP: before lwIP's fragmentation and after its reassembly. */

#include "casemate_lwip_private.h"

#include "lwip/ip.h"
#include "lwip/prot/ip.h"
#include "lwip/prot/ip4.h"
#include "lwip/prot/ip6.h"

#if !LWIP_RAW
#error "casemate: LWIP_RAW must be 1: raw PCBs decrypt packets"
#endif

/*
 * Protocols that lwIP delivers, those of IPsec, and IPv6 extension headers: raw PCBs match the first
 * header.
 */
static const u8_t filtered_protocols[CASEMATE_LWIP_GUARDS] = {
    0 /* hop-by-hop options */, 1 /* ICMP */,  2 /* IGMP */,      6 /* TCP */,  17 /* UDP */,
        43 /* routing */,
    44 /* fragment */,          50 /* ESP */, 51 /* AH */, 58 /* ICMPv6 */, 60 /* destination options */,
        136 /* UDP-Lite */,
};

/*
 * A pbuf flag that lwIP does not use: the packet is protected. lwIP calls output_ip6 again after neighbour
 * discovery.
 */
#define IS_READY 0x80U

/* ---- in ---- */

/*
 * Passes decrypted packets to lwIP. Not called within a raw PCB, because ip_input iterates over the list of
 * PCBs.
 */
static void deliver_queued(void)
{
    struct casemate_lwip *stack = casemate_lwip_stack;
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

/* Queues a packet for ip_input. Takes ownership of p. */
static void enqueue(struct pbuf *p, struct netif *netif)
{
    struct casemate_lwip *stack = casemate_lwip_stack;
    u16_t at = (u16_t)((stack->waiting_first + stack->waiting_count) % CASEMATE_LWIP_QUEUE);
    if (stack->waiting_count == CASEMATE_LWIP_QUEUE) {
        stack->out_of_memory++;
        pbuf_free(p);
        return;
    }
    stack->waiting[at] = p;
    stack->waiting_from[at] = netif;
    stack->waiting_count++;
}

/* lwIP's IPv6 reassembly leaves a payload length that is 8 too small. lwIP ignores it; Casemate needs it. */
static void correct_length(const struct casemate_packet *packet)
{
#if LWIP_IPV6
    if (IP_HDR_GET_VERSION(packet->buffer) == 6) {
        IP6H_PLEN_SET((struct ip6_hdr *)packet->buffer, (u16_t)(packet->len - IP6_HLEN));
    }
#else
    LWIP_UNUSED_ARG(packet);
#endif
}

/* Lets lwIP continue with p, a packet that the policy admits in clear text. */
static u8_t pass_packet(struct pbuf *p, struct pbuf *q)
{
    if (q != p) {
        /* Copy the packet back: its MSS may have been changed. */
        pbuf_take(p, q->payload, p->tot_len);
        pbuf_free(q);
    }
    return 0;
}

/*
 * Raw PCB callback: gets each packet of its protocol, reassembled, with its IP header. Returns 1 if it took
 * p.
 */
static u8_t filter_packet(void *arg, struct raw_pcb *pcb, struct pbuf *p, const ip_addr_t *addr)
{
    struct casemate_lwip *stack = casemate_lwip_stack;
    struct netif *netif = ip_current_input_netif();
    const struct casemate_lwip_netif *state = casemate_lwip_find(netif);
    struct casemate_packet packet;
    struct pbuf *q;
    s32_t verdict;
    LWIP_UNUSED_ARG(arg);
    LWIP_UNUSED_ARG(pcb);
    LWIP_UNUSED_ARG(addr);
    if (p == stack->admitted) {
        stack->admitted = NULL;
        return 0;
    }
    if (state == NULL || state->place != CASEMATE_LWIP_INSIDE_IP) {
        return 0;
    }
    q = casemate_lwip_own(p, 0, &packet);
    if (q == NULL) {
        pbuf_free(p);
        return 1;
    }
    correct_length(&packet);
    verdict = casemate_inbound(stack->host, &packet, casemate_lwip_now());
    if (verdict == CASEMATE_CLEAR) {
        return pass_packet(p, q);
    }
    if (q != p) {
        pbuf_free(p);
    }
    if (verdict != CASEMATE_CHANGED) {
        pbuf_free(q);
        return 1;
    }
    q = casemate_lwip_opened(q, &packet);
    if (q != NULL) {
        enqueue(q, netif);
    }
    return 1;
}

static void remove_filters(void)
{
    int at;
    for (at = 0; at < CASEMATE_LWIP_GUARDS; at++) {
        if (casemate_lwip_stack->guards[at] != NULL) {
            raw_remove(casemate_lwip_stack->guards[at]);
            casemate_lwip_stack->guards[at] = NULL;
        }
    }
}

/* Creates all raw PCBs, or none. */
static err_t add_filters(void)
{
    int at;
    for (at = 0; at < CASEMATE_LWIP_GUARDS; at++) {
        struct raw_pcb *pcb = raw_new_ip_type(IPADDR_TYPE_ANY, filtered_protocols[at]);
        if (pcb == NULL) {
            remove_filters();
            return ERR_MEM;
        }
        ip_set_option(pcb, SOF_BROADCAST);
        raw_recv(pcb, filter_packet, NULL);
        casemate_lwip_stack->guards[at] = pcb;
    }
    return ERR_OK;
}

/*
 * Creates or removes the raw PCBs. While all packets pass, none exist, because lwIP checks each PCB per
 * packet.
 */
static err_t restore_filters(void)
{
    int is_idle = casemate_lwip_is_idle(), are_installed = casemate_lwip_stack->guards[0] != NULL;
    if (is_idle != are_installed) {
        return ERR_OK;
    }
    if (casemate_lwip_stack->depth > 0) {
        /* lwIP iterates over the list of PCBs. Unneeded PCBs do no harm. */
        return are_installed ? ERR_OK : ERR_MEM;
    }
    if (is_idle) {
        remove_filters();
        return ERR_OK;
    }
    return add_filters();
}

err_t casemate_lwip_inside_input(struct pbuf *p, struct netif *netif)
{
    struct casemate_lwip *stack = casemate_lwip_stack;
    const struct casemate_lwip_netif *state = casemate_lwip_find(netif);
    const struct pbuf *admitted = stack->admitted;
    err_t err;
    if (restore_filters() != ERR_OK) {
        stack->out_of_memory++;
        return ERR_MEM;
    }
    /* A driver may call this function from its output function; that packet was not decrypted here. */
    stack->admitted = NULL;
    stack->depth++;
    err = state->input(p, netif);
    stack->depth--;
    stack->admitted = admitted;
    if (stack->depth == 0 && stack->waiting_count > 0) {
        stack->depth++;
        deliver_queued();
        stack->depth--;
    }
    return err;
}

/* ---- out ---- */

/* Destination of a packet: lwIP's next hop, or the remote endpoint of a tunnel. */
union target {
#if LWIP_IPV4
    ip4_addr_t v4;
#endif
#if LWIP_IPV6
    ip6_addr_t v6;
#endif
};

/* Sends a protected packet to the destination in its header. */
static err_t send_to_netif(const struct casemate_lwip_netif *state, struct pbuf *q, const void *link)
{
    union target target;
    LWIP_UNUSED_ARG(link);
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

/*
 * Whether lwIP's own function may send the packet: it is protected, or short while all packets pass
 * unchanged.
 */
static int is_ready(const struct casemate_lwip_netif *state, const struct pbuf *p)
{
    return (p->flags & IS_READY) != 0 || (p->tot_len <= state->mtu && casemate_lwip_is_idle());
}

#if LWIP_IPV4
static err_t output(struct netif *netif, struct pbuf *p, const ip4_addr_t *target)
{
    const struct casemate_lwip_netif *state = casemate_lwip_find(netif);
    return is_ready(state, p) ? state->output(netif, p, target)
        : casemate_lwip_protect(state, p, 0, send_to_netif, NULL);
}
#endif

#if LWIP_IPV6
static err_t output_ip6(struct netif *netif, struct pbuf *p, const ip6_addr_t *target)
{
    const struct casemate_lwip_netif *state = casemate_lwip_find(netif);
    return is_ready(state, p) ? state->output_ip6(netif, p, target)
        : casemate_lwip_protect(state, p, 0, send_to_netif, NULL);
}
#endif

/* ---- start ---- */

err_t casemate_lwip_inside_attach(struct casemate_lwip_netif *state)
{
    struct netif *netif = state->netif;
    if (casemate_lwip_stack->guards[0] == NULL && add_filters() != ERR_OK) {
        return ERR_MEM;
    }
#if LWIP_IPV4
    state->output = netif->output;
    netif->output = output;
#endif
#if LWIP_IPV6
    state->output_ip6 = netif->output_ip6;
    netif->output_ip6 = output_ip6;
#endif
    return ERR_OK;
}

void casemate_lwip_inside_detach(struct casemate_lwip_netif *state)
{
#if LWIP_IPV4
    state->netif->output = state->output;
#endif
#if LWIP_IPV6
    state->netif->output_ip6 = state->output_ip6;
#endif
}
