/*
 * casemate_lwip.h - Casemate inside lwIP 2.1.3 and 2.2.x, unpatched.
 *
 * It stands in one of two places, for each netif apart:
 *
 * - Inside IP: outgoing packets are protected whole in the netif's output functions and cut afterwards; incoming ones are put
 *   together by lwIP, opened in raw PCBs and given to ip_input again. Text in clear that policy forbids ends in raw PCBs too.
 * - Below IP, for Ethernet: between lwIP and the driver. Fragments are put together by Casemate before they are opened, which
 *   takes room for `arrivals` in its tables. Frames of IP and ARP pass; others, such as those with a VLAN tag, are dropped.
 *
 * lwipopts.h needs: LWIP_RAW 1, MEMP_NUM_RAW_PCB larger by CASEMATE_LWIP_GUARDS (inside IP), IP_REASSEMBLY 1, LWIP_IPV6_REASS 1,
 * LWIP_ND6_ALLOW_RA_UPDATES 0, IP_FORWARD 0, LWIP_IPV6_FORWARD 0, checksums by software (CHECKSUM_GEN and CHECKSUM_CHECK for
 * IP, UDP, TCP and ICMP), and MEM_SIZE for a copy of each packet that is sent.
 *
 * Threads: all functions are called in the thread of the stack (with LOCK_TCPIP_CORE where lwIP has it). With NO_SYS 0, netif->input
 * is tcpip_input, or it is ethernet_input or ip_input and called in that thread.
 */
#ifndef CASEMATE_LWIP_H
#define CASEMATE_LWIP_H

#include "casemate.h"
#include "lwip/netif.h"
#include "lwip/raw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Protocols whose packets are looked at inside IP: one raw PCB each. */
#define CASEMATE_LWIP_GUARDS 12

/* Opened packets that may wait for ip_input. */
#ifndef CASEMATE_LWIP_QUEUE
#define CASEMATE_LWIP_QUEUE 16
#endif

/* Where packets are protected and opened. */
enum casemate_lwip_place {
    CASEMATE_LWIP_INSIDE_IP,
    CASEMATE_LWIP_BELOW_IP,
};

/* A netif that is attached. The caller's storage; its members are casemate_lwip's. */
struct casemate_lwip_netif {
    struct casemate_lwip_netif *next;
    struct netif *netif;
    enum casemate_lwip_place place;
    netif_input_fn driver_input; /* the netif's own */
    netif_input_fn input;        /* the same in the thread of the stack */
#if LWIP_IPV4
    netif_output_fn output;
#endif
#if LWIP_IPV6
    netif_output_ip6_fn output_ip6;
#endif
    netif_linkoutput_fn linkoutput;
    u16_t mtu;
};

/* The stack's own. The caller's storage; the host and the counter may be read. */
struct casemate_lwip {
    struct casemate_host *host;
    struct casemate_lwip_netif *netifs;
    struct raw_pcb *guards[CASEMATE_LWIP_GUARDS]; /* NULL while every packet passes */
    u8_t depth;                                   /* calls of netif->input, one in another */
    struct pbuf *waiting[CASEMATE_LWIP_QUEUE];
    struct netif *waiting_from[CASEMATE_LWIP_QUEUE];
    u16_t waiting_first;
    u16_t waiting_count;
    const struct pbuf *admitted; /* the packet that is in ip_input by our doing */
    u32_t ticks;
    u64_t time;
    u32_t out_of_memory; /* packets lost for want of a pbuf, of a raw PCB or of room in the queue */
};

/* Starts; once for the stack, before the first netif is attached. ERR_USE if it was started already. */
err_t casemate_lwip_start(struct casemate_lwip *stack, struct casemate_host *host);

/* Goes on with the SAs and policies of another host. The one before is the caller's to end. */
void casemate_lwip_use(struct casemate_lwip *stack, struct casemate_host *host);

/*
 * Guards a netif that netif_add has set up, with its MTU. From now on its mtu reads 0, so that lwIP leaves cutting to us. ERR_ARG
 * if it has no MTU, or an input function that is not allowed, or is no Ethernet and the place is below IP; ERR_USE if it is
 * attached already; ERR_MEM if there are not enough raw PCBs.
 */
err_t casemate_lwip_attach(struct casemate_lwip_netif *state, struct netif *netif, enum casemate_lwip_place place);

/* Takes the guard away. Do this before netif_remove. */
void casemate_lwip_detach(struct casemate_lwip_netif *state);

/* Microseconds since the start, for casemate_add_sa. */
u64_t casemate_lwip_now(void);

#ifdef __cplusplus
}
#endif

#endif
