/*
 * casemate_lwip_ike.h - IKEv2 of casemate_ike.h over lwIP's UDP.
 *
 * Required settings in lwipopts.h, beside those of casemate_lwip.h: LWIP_UDP 1, MEMP_NUM_UDP_PCB increased
 * by 2, MEMP_NUM_SYS_TIMEOUT increased by 1, and pbufs for messages of up to 4100 bytes.
 *
 * Threads: all functions must be called in the thread of the stack (with LOCK_TCPIP_CORE if lwIP has it).
 * Events are reported in this thread too. All other work is done there by lwIP's timers and received
 * datagrams.
 */
#ifndef CASEMATE_LWIP_IKE_H
#define CASEMATE_LWIP_IKE_H

#include "casemate_ike.h"
#include "casemate_lwip.h"
#include "lwip/udp.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Receives events. May call the functions below except casemate_lwip_ike_stop. */
typedef void (*casemate_lwip_event_fn)(void *context, const struct casemate_event *event);

/* IKE of a stack. The caller provides the storage and may read the counter. */
struct casemate_lwip_ike {
    struct casemate_host *host;
    struct udp_pcb *ports[2];
    casemate_lwip_event_fn event;
    void *context;
    u8_t is_serving;
    u32_t lost; /* datagrams lost because of a missing pbuf or route */
};

/*
 * Opens ports 500 and 4500 and starts IKE. Must be called once, after casemate_lwip_start. event may be
 * null. Returns ERR_USE if IKE is running already or a port is in use, ERR_MEM if there are no PCBs.
 */
err_t casemate_lwip_ike_start(struct casemate_lwip_ike *ike, struct casemate_host *host,
                              casemate_lwip_event_fn event, void *context);

/* Closes the ports. SAs stay installed; casemate_lwip_terminate closes them and notifies the peer. */
void casemate_lwip_ike_stop(struct casemate_lwip_ike *ike);

/* Like the functions of casemate_ike.h with these names, but send the resulting messages immediately. */
s32_t casemate_lwip_add_connection(struct casemate_lwip_ike *ike,
                                   const struct casemate_connection *connection);
s32_t casemate_lwip_remove_connection(struct casemate_lwip_ike *ike, const char *name);
s32_t casemate_lwip_initiate(struct casemate_lwip_ike *ike, const char *name);
s32_t casemate_lwip_terminate(struct casemate_lwip_ike *ike, const char *name);
s32_t casemate_lwip_rekey(struct casemate_lwip_ike *ike, const char *name);

#ifdef __cplusplus
}
#endif

#endif
