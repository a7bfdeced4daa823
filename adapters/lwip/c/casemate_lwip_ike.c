/* casemate_lwip_ike.c - see casemate_lwip_ike.h. */

#include "casemate_lwip_ike.h"

#include <string.h>

#include "lwip/ip.h"
#include "lwip/pbuf.h"
#include "lwip/timeouts.h"
#if !NO_SYS
#include "lwip/tcpip.h"
#endif

#if !LWIP_UDP
#error "casemate: LWIP_UDP must be 1: IKE uses UDP"
#endif
#if !LWIP_TIMERS
#error "casemate: LWIP_TIMERS must be 1: IKE retransmits messages"
#endif
#if MEMP_NUM_SYS_TIMEOUT <= LWIP_NUM_SYS_TIMEOUT_INTERNAL
#error "casemate: MEMP_NUM_SYS_TIMEOUT must exceed LWIP_NUM_SYS_TIMEOUT_INTERNAL: IKE needs a timer"
#endif

#define IKE_PORT 500
#define NATT_PORT 4500

/* Maximum timeout in milliseconds: lwIP supports less than half of the range of its clock. */
#define LONGEST_WAIT 3600000U

static void serve(void *arg);

/* ---- addresses ---- */

static struct casemate_address from_lwip(const ip_addr_t *addr)
{
    struct casemate_address out;
    memset(&out, 0, sizeof(out));
#if LWIP_IPV6
    if (IP_IS_V6(addr)) {
        out.version = 6;
        memcpy(out.bytes, ip_2_ip6(addr)->addr, 16);
        return out;
    }
#endif
#if LWIP_IPV4
    out.version = 4;
    memcpy(out.bytes, &ip_2_ip4(addr)->addr, 4);
#endif
    return out;
}

/* Returns 0 if lwIP was built without this IP version. */
static int to_lwip(ip_addr_t *out, const struct casemate_address *addr)
{
    ip_addr_set_zero(out);
#if LWIP_IPV6
    if (addr->version == 6) {
        IP_SET_TYPE(out, IPADDR_TYPE_V6);
        memcpy(ip_2_ip6(out)->addr, addr->bytes, 16);
        return 1;
    }
#endif
#if LWIP_IPV4
    if (addr->version == 4) {
        IP_SET_TYPE(out, IPADDR_TYPE_V4);
        memcpy(&ip_2_ip4(out)->addr, addr->bytes, 4);
        return 1;
    }
#endif
    return 0;
}

/* Returns the netif that has this local address, or NULL. */
static struct netif *find_netif(const ip_addr_t *local)
{
    struct netif *netif;
    NETIF_FOREACH(netif) {
#if LWIP_IPV6
        if (IP_IS_V6(local) && netif_get_ip6_addr_match(netif, ip_2_ip6(local)) >= 0) {
            return netif;
        }
#endif
#if LWIP_IPV4
        if (IP_IS_V4(local) && ip4_addr_cmp(netif_ip4_addr(netif), ip_2_ip4(local))) {
            return netif;
        }
#endif
    }
    return NULL;
}

/* casemate_source_fn: the source address that lwIP would choose. */
static int32_t select_source(void *context, const struct casemate_address *remote,
                             struct casemate_address *local)
{
    const ip_addr_t *found;
    struct netif *netif;
    ip_addr_t any, to;
    LWIP_UNUSED_ARG(context);
    if (!to_lwip(&to, remote)) {
        return 0;
    }
    ip_addr_copy(any, to);
    ip_addr_set_any(IP_IS_V6(&to), &any);
    netif = ip_route(&any, &to);
    found = netif != NULL ? ip_netif_get_local_ip(netif, &to) : NULL;
    if (found == NULL || ip_addr_isany(found)) {
        return 0;
    }
    *local = from_lwip(found);
    return 1;
}

/* ---- out ---- */

/* Sends a datagram. On an error the datagram is lost; IKE retransmits it. */
static void send(struct casemate_lwip_ike *ike, const struct casemate_datagram *datagram)
{
    struct udp_pcb *pcb = ike->ports[datagram->local_port == NATT_PORT];
    struct netif *netif;
    struct pbuf *p;
    ip_addr_t from, to;
    err_t err = ERR_MEM;
    if (pcb == NULL || !to_lwip(&from, &datagram->local) || !to_lwip(&to, &datagram->remote)) {
        ike->lost++;
        return;
    }
    p = pbuf_alloc(PBUF_TRANSPORT, (u16_t)datagram->bytes, PBUF_RAM);
    if (p != NULL) {
        pbuf_take(p, datagram->data, (u16_t)datagram->bytes);
        /* lwIP's route; without a route, the netif that has the source address. */
        netif = ip_route(&from, &to);
        if (netif == NULL) {
            netif = find_netif(&from);
        }
#if LWIP_IPV6
        if (netif != NULL && IP_IS_V6(&to)) {
            ip6_addr_assign_zone(ip_2_ip6(&to), IP6_UNICAST, netif);
        }
#endif
        err = netif != NULL ? udp_sendto_if_src(pcb, p, &to, datagram->remote_port, netif, &from) : ERR_RTE;
        pbuf_free(p);
    }
    if (err != ERR_OK) {
        ike->lost++;
    }
}

/*
 * Sends pending datagrams, reports events, and sets the timer. Sending and reporting may call this function
 * again.
 */
static void send_pending(struct casemate_lwip_ike *ike)
{
    struct casemate_datagram datagram;
    struct casemate_event event;
    uint64_t due, now;
    if (ike->is_serving) {
        return;
    }
    ike->is_serving = 1;
    do {
        while (casemate_ike_transmit(ike->host, &datagram) == CASEMATE_OK) {
            send(ike, &datagram);
        }
        if (casemate_ike_event(ike->host, &event) != CASEMATE_OK) {
            break;
        }
        if (ike->event != NULL) {
            ike->event(ike->context, &event);
        }
    } while (1);
    ike->is_serving = 0;
    sys_untimeout(serve, ike);
    if (casemate_ike_due(ike->host, &due) == CASEMATE_OK) {
        now = casemate_lwip_now();
        due = due > now ? (due - now + 999) / 1000 : 0;
        sys_timeout((u32_t)LWIP_MIN(due, LONGEST_WAIT), serve, ike);
    }
}

static void serve(void *arg)
{
    struct casemate_lwip_ike *ike = (struct casemate_lwip_ike *)arg;
    /* IKE may have been stopped since. */
    if (ike->ports[0] != NULL) {
        casemate_ike_serve(ike->host, casemate_lwip_now());
        send_pending(ike);
    }
}

/* casemate_wake_fn: called while a packet is processed, so the work is deferred. */
static void wake(void *context)
{
#if !NO_SYS
    /* The packet may belong to another thread, while the thread of the stack sleeps until its next timer. */
    if (tcpip_try_callback(serve, context) == ERR_OK) {
        return;
    }
#endif
    sys_untimeout(serve, context);
    sys_timeout(0, serve, context);
}

/* ---- in ---- */

/* Receives a datagram that the policy has let pass. ESP in UDP does not arrive here: raw PCBs take it. */
static void received(void *arg, struct udp_pcb *pcb, struct pbuf *p, const ip_addr_t *from, u16_t port)
{
    struct casemate_lwip_ike *ike = (struct casemate_lwip_ike *)arg;
    struct casemate_datagram datagram;
    struct pbuf *q = p;
    /* IKE does not use multicast and broadcast. */
    if (find_netif(ip_current_dest_addr()) == NULL) {
        pbuf_free(p);
        return;
    }
    if (p->next != NULL) {
        q = pbuf_clone(PBUF_RAW, PBUF_RAM, p);
        pbuf_free(p);
        if (q == NULL) {
            ike->lost++;
            return;
        }
    }
    datagram.local = from_lwip(ip_current_dest_addr());
    datagram.remote = from_lwip(from);
    datagram.local_port = pcb->local_port;
    datagram.remote_port = port;
    datagram.data = (uint8_t *)q->payload;
    datagram.bytes = q->len;
    /* Messages refused because of low memory are counted by the library. */
    casemate_ike_receive(ike->host, &datagram, casemate_lwip_now());
    pbuf_free(q);
    send_pending(ike);
}

/* ---- start ---- */

static err_t open_port(struct casemate_lwip_ike *ike, int which, u16_t port)
{
    struct udp_pcb *pcb = udp_new_ip_type(IPADDR_TYPE_ANY);
    if (pcb == NULL) {
        return ERR_MEM;
    }
    ike->ports[which] = pcb;
    udp_recv(pcb, received, ike);
    return udp_bind(pcb, IP_ANY_TYPE, port);
}

err_t casemate_lwip_ike_start(struct casemate_lwip_ike *ike, struct casemate_host *host,
                              casemate_lwip_event_fn event, void *context)
{
    struct casemate_ike_callbacks callbacks;
    err_t err;
    memset(ike, 0, sizeof(*ike));
    ike->host = host;
    ike->event = event;
    ike->context = context;
    err = open_port(ike, 0, IKE_PORT);
    if (err == ERR_OK) {
        err = open_port(ike, 1, NATT_PORT);
    }
    if (err != ERR_OK) {
        casemate_lwip_ike_stop(ike);
        return err;
    }
    callbacks.source = select_source;
    callbacks.wake = wake;
    callbacks.context = ike;
    casemate_ike_set_callbacks(host, &callbacks);
    send_pending(ike);
    return ERR_OK;
}

void casemate_lwip_ike_stop(struct casemate_lwip_ike *ike)
{
    static const struct casemate_ike_callbacks no_callbacks = { NULL, NULL, NULL };
    int which;
    casemate_ike_set_callbacks(ike->host, &no_callbacks);
    sys_untimeout(serve, ike);
    for (which = 0; which < 2; which++) {
        if (ike->ports[which] != NULL) {
            udp_remove(ike->ports[which]);
            ike->ports[which] = NULL;
        }
    }
}

/* ---- commands ---- */

static s32_t finish_call(struct casemate_lwip_ike *ike, s32_t code)
{
    send_pending(ike);
    return code;
}

s32_t casemate_lwip_add_connection(struct casemate_lwip_ike *ike,
                                   const struct casemate_connection *connection)
{
    return finish_call(ike, casemate_add_connection(ike->host, connection, casemate_lwip_now()));
}

s32_t casemate_lwip_remove_connection(struct casemate_lwip_ike *ike, const char *name)
{
    return finish_call(ike, casemate_remove_connection(ike->host, name, casemate_lwip_now()));
}

s32_t casemate_lwip_initiate(struct casemate_lwip_ike *ike, const char *name)
{
    return finish_call(ike, casemate_initiate(ike->host, name, casemate_lwip_now()));
}

s32_t casemate_lwip_terminate(struct casemate_lwip_ike *ike, const char *name)
{
    return finish_call(ike, casemate_terminate(ike->host, name, casemate_lwip_now()));
}

s32_t casemate_lwip_rekey(struct casemate_lwip_ike *ike, const char *name)
{
    return finish_call(ike, casemate_rekey(ike->host, name, casemate_lwip_now()));
}
