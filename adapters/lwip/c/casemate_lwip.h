/*
 * casemate_lwip.h - Casemate for lwIP 2.1.3 and 2.2.x, without patches.
 *
 * There are two placements, selected per netif:
 *
 * - Inside IP: outgoing packets are protected whole in the netif's output functions, and fragmented
 *   afterwards. lwIP reassembles incoming packets; raw PCBs decrypt them and pass them to ip_input again. The
 *   raw PCBs also drop packets in clear text that the policy forbids.
 * - Below IP, for Ethernet: between lwIP and the driver. Casemate reassembles fragments before it decrypts
 *   the packet, which needs room for `arrivals` in its tables. Frames of IP and ARP pass; others, such as
 *   those with a VLAN tag, are dropped.
 *
 * Required settings in lwipopts.h: LWIP_RAW 1, MEMP_NUM_RAW_PCB increased by CASEMATE_LWIP_GUARDS (inside
 * IP), IP_REASSEMBLY 1, LWIP_IPV6_REASS 1, LWIP_ND6_ALLOW_RA_UPDATES 0, IP_FORWARD 0, LWIP_IPV6_FORWARD 0,
 * checksums in software (CHECKSUM_GEN and CHECKSUM_CHECK for IP, UDP, TCP and ICMP), and MEM_SIZE for a
 * copy of each sent packet.
 *
 * Threads: all functions must be called in the thread of the stack (with LOCK_TCPIP_CORE if lwIP has it).
 * With NO_SYS 0, netif->input must be tcpip_input; or ethernet_input or ip_input, called in that thread.
 */
#ifndef CASEMATE_LWIP_H
#define CASEMATE_LWIP_H

#include "casemate.h"
#include "lwip/netif.h"
#include "lwip/raw.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Number of protocols checked inside IP: one raw PCB each. */
#define CASEMATE_LWIP_GUARDS 12

/* Maximum number of decrypted packets that wait for ip_input. */
#ifndef CASEMATE_LWIP_QUEUE
#define CASEMATE_LWIP_QUEUE 16
#endif

/* The placement: where packets are protected and decrypted. */
enum casemate_lwip_place {
    CASEMATE_LWIP_INSIDE_IP,
    CASEMATE_LWIP_BELOW_IP,
};

/* An attached netif. The caller provides the storage; the members are private. */
struct casemate_lwip_netif {
    struct casemate_lwip_netif *next;
    struct netif *netif;
    enum casemate_lwip_place place;
    netif_input_fn driver_input; /* the netif's original input function */
    netif_input_fn input;        /* the same for calls in the thread of the stack */
#if LWIP_IPV4
    netif_output_fn output;
#endif
#if LWIP_IPV6
    netif_output_ip6_fn output_ip6;
#endif
    netif_linkoutput_fn linkoutput;
    u16_t mtu;
};

/* State for the stack. The caller provides the storage, and may read the host and the counter. */
struct casemate_lwip {
    struct casemate_host *host;
    struct casemate_lwip_netif *netifs;
    struct raw_pcb *guards[CASEMATE_LWIP_GUARDS]; /* NULL while all packets pass unchanged */
    u8_t depth;                                   /* nesting depth of netif->input calls */
    struct pbuf *waiting[CASEMATE_LWIP_QUEUE];
    struct netif *waiting_from[CASEMATE_LWIP_QUEUE];
    u16_t waiting_first;
    u16_t waiting_count;
    const struct pbuf *admitted; /* the decrypted packet that is currently in ip_input */
    u32_t ticks;
    u64_t time;
    u32_t out_of_memory; /* packets dropped because of a missing pbuf, raw PCB, or queue entry */
};

/*
 * Initialises the state. Must be called once, before the first netif is attached; later calls return
 * ERR_USE.
 */
err_t casemate_lwip_start(struct casemate_lwip *stack, struct casemate_host *host);

/* Switches to another host. The previous host is not destroyed. */
void casemate_lwip_use(struct casemate_lwip *stack, struct casemate_host *host);

/*
 * Attaches a netif that netif_add has set up with its MTU. Afterwards its mtu is 0, so that lwIP leaves
 * fragmentation to Casemate. Returns ERR_ARG if the netif has no MTU, has an unsupported input function, or
 * is not Ethernet with the placement below IP; ERR_USE if it is attached already; ERR_MEM if there are not
 * enough raw PCBs.
 */
err_t casemate_lwip_attach(struct casemate_lwip_netif *state, struct netif *netif,
                           enum casemate_lwip_place place);

/* Detaches a netif. Must be called before netif_remove. */
void casemate_lwip_detach(struct casemate_lwip_netif *state);

/* Returns the microseconds since the start, for casemate_add_sa. */
u64_t casemate_lwip_now(void);

#ifdef __cplusplus
}
#endif

#endif
