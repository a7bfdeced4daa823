/*
 * casemate_lwip_ike.h - IKEv2 of casemate_ike.h over lwIP's UDP.
 *
 * lwipopts.h needs, beside what casemate_lwip.h says: LWIP_UDP 1, MEMP_NUM_UDP_PCB larger by 2, MEMP_NUM_SYS_TIMEOUT larger by 1, and
 * pbufs for messages of up to 4100 bytes.
 *
 * Threads: all functions are called in the thread of the stack (with LOCK_TCPIP_CORE where lwIP has it), and so is the
 * function for events. All else happens there by itself, in lwIP's timers and as datagrams come.
 */
#ifndef CASEMATE_LWIP_IKE_H
#define CASEMATE_LWIP_IKE_H

#include "casemate_ike.h"
#include "casemate_lwip.h"
#include "lwip/udp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Is told what happened. It may call the functions below, and not casemate_lwip_ike_stop. */
typedef void (*casemate_lwip_event_fn)(void *context, const struct casemate_event *event);

/* IKE of a stack. The caller's storage; the counter may be read. */
struct casemate_lwip_ike {
    struct casemate_host *host;
    struct udp_pcb *ports[2];
    casemate_lwip_event_fn event;
    void *context;
    u8_t is_serving;
    u32_t lost; /* datagrams lost for want of a pbuf, or of a way to the peer */
};

/*
 * Opens ports 500 and 4500, and lets IKE work from now on; once for the stack, after casemate_lwip_start. event may be null. ERR_USE if it
 * was started or somebody has the ports, ERR_MEM if there are no PCBs.
 */
err_t casemate_lwip_ike_start(struct casemate_lwip_ike *ike, struct casemate_host *host, casemate_lwip_event_fn event, void *context);

/* Closes the ports. SAs stay as they are; casemate_lwip_terminate closes them, and tells the peer. */
void casemate_lwip_ike_stop(struct casemate_lwip_ike *ike);

/* As casemate_add_connection, casemate_remove_connection, casemate_initiate, casemate_terminate and casemate_rekey; what comes of it is sent at once. */
s32_t casemate_lwip_add_connection(struct casemate_lwip_ike *ike, const struct casemate_connection *connection);
s32_t casemate_lwip_remove_connection(struct casemate_lwip_ike *ike, const char *name);
s32_t casemate_lwip_initiate(struct casemate_lwip_ike *ike, const char *name);
s32_t casemate_lwip_terminate(struct casemate_lwip_ike *ike, const char *name);
s32_t casemate_lwip_rekey(struct casemate_lwip_ike *ike, const char *name);

#ifdef __cplusplus
}
#endif

#endif
