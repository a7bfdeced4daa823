/*
 * casemate_lwip_below.c - Casemate below IP: between lwIP and an Ethernet driver.
 *
 * A protected packet is sent with the Ethernet addresses of the inner packet. Therefore a route into a
 * tunnel must use the same neighbour as the tunnel's remote endpoint.
 */

#include "casemate_lwip_private.h"

#include <string.h>

#include "lwip/ip.h"
#include "lwip/prot/ethernet.h"
#include "lwip/prot/ip.h"

/* Returns the EtherType of a frame, or 0 if the frame is too short. */
static u16_t ethertype(const struct pbuf *p)
{
    return p->len >= SIZEOF_ETH_HDR ? lwip_ntohs(((const struct eth_hdr *)p->payload)->type) : 0;
}

static int is_ip(u16_t type)
{
    return type == ETHTYPE_IP || type == ETHTYPE_IPV6;
}

/* ---- in ---- */

/* Passes a frame or packet to lwIP. Takes ownership of p. */
static void deliver(netif_input_fn input, struct pbuf *p, struct netif *netif)
{
    if (input(p, netif) != ERR_OK) {
        pbuf_free(p);
    }
}

/* Decrypts or checks the packet in a frame, and passes it to lwIP if the policy admits it. */
static err_t decrypt_frame(const struct casemate_lwip_netif *state, struct pbuf *p)
{
    struct casemate_packet packet;
    struct pbuf *q = casemate_lwip_own(p, SIZEOF_ETH_HDR, &packet);
    s32_t verdict;
    if (q == NULL) {
        return ERR_MEM;
    }
    if (q != p) {
        pbuf_free(p);
    }
    verdict = casemate_inbound(casemate_lwip_stack->host, &packet, casemate_lwip_now());
    if (verdict == CASEMATE_CLEAR) {
        pbuf_realloc(q, (u16_t)packet.len);
        pbuf_add_header(q, SIZEOF_ETH_HDR);
        deliver(state->input, q, state->netif);
    } else if (verdict == CASEMATE_CHANGED) {
        q = casemate_lwip_opened(q, &packet);
        if (q != NULL) {
            deliver(ip_input, q, state->netif);
        }
    } else {
        pbuf_free(q);
    }
    return ERR_OK;
}

err_t casemate_lwip_below_input(struct pbuf *p, struct netif *netif)
{
    const struct casemate_lwip_netif *state = casemate_lwip_find(netif);
    u16_t type = ethertype(p);
    if (type == ETHTYPE_ARP || casemate_lwip_is_idle()) {
        return state->input(p, netif);
    }
    if (!is_ip(type)) {
        /* An unchecked frame: an IP packet may be behind a VLAN tag. */
        return ERR_ARG;
    }
    return decrypt_frame(state, p);
}

/* ---- out ---- */

/* Sends a packet with the Ethernet header of the original frame and the EtherType of the packet. */
static err_t send_frame(const struct casemate_lwip_netif *state, struct pbuf *q, const void *link)
{
    u16_t type = IP_HDR_GET_VERSION(q->payload) == 6 ? ETHTYPE_IPV6 : ETHTYPE_IP;
    struct eth_hdr *header;
    if (pbuf_add_header(q, SIZEOF_ETH_HDR) != 0) {
        return ERR_BUF;
    }
    header = (struct eth_hdr *)q->payload;
    memcpy(header, link, SIZEOF_ETH_HDR);
    header->type = lwip_htons(type);
    return state->linkoutput(state->netif, q);
}

static err_t linkoutput(struct netif *netif, struct pbuf *p)
{
    const struct casemate_lwip_netif *state = casemate_lwip_find(netif);
    u16_t type = ethertype(p);
    int is_short = p->tot_len <= SIZEOF_ETH_HDR + state->mtu;
    if (type == ETHTYPE_ARP || ((is_short || !is_ip(type)) && casemate_lwip_is_idle())) {
        return state->linkoutput(netif, p);
    }
    if (!is_ip(type)) {
        /* As for received frames: an IP packet behind a VLAN tag would be sent without protection. */
        return ERR_VAL;
    }
    return casemate_lwip_protect(state, p, SIZEOF_ETH_HDR, send_frame, p->payload);
}

/* ---- start ---- */

err_t casemate_lwip_below_attach(struct casemate_lwip_netif *state)
{
    struct netif *netif = state->netif;
    if ((netif->flags & (NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET)) == 0 || netif->linkoutput == NULL) {
        return ERR_ARG;
    }
    state->linkoutput = netif->linkoutput;
    netif->linkoutput = linkoutput;
    return ERR_OK;
}

void casemate_lwip_below_detach(struct casemate_lwip_netif *state)
{
    state->netif->linkoutput = state->linkoutput;
}
