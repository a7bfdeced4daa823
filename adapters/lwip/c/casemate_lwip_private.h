/*
 * casemate_lwip_private.h - declarations shared by the files of this directory: casemate_lwip.c has the
 * code for both placements, casemate_lwip_inside.c and casemate_lwip_below.c have the code of one placement
 * each.
 */
#ifndef CASEMATE_LWIP_PRIVATE_H
#define CASEMATE_LWIP_PRIVATE_H

#include "casemate_lwip.h"

/* The state. There is one lwIP stack per program. NULL before the start. */
extern struct casemate_lwip *casemate_lwip_stack;

/* Returns the state of a netif, or NULL. */
struct casemate_lwip_netif *casemate_lwip_find(const struct netif *netif);

/* Returns whether all packets pass unchanged. */
int casemate_lwip_is_idle(void);

/*
 * Sends a packet or fragment in a pbuf with room for a link-layer header. `link` is the argument of
 * protect.
 */
typedef err_t (*casemate_lwip_send_fn)(const struct casemate_lwip_netif *state, struct pbuf *q,
                                       const void *link);

/*
 * Protects the IP packet after the first `front` bytes of p and sends it, in fragments if necessary. p is
 * not changed, because TCP keeps its segments for retransmission.
 */
err_t casemate_lwip_protect(const struct casemate_lwip_netif *state, const struct pbuf *p, u16_t front,
                            casemate_lwip_send_fn send, const void *link);

/*
 * Returns the IP packet after the first `front` bytes of p as contiguous, unshared memory with the room
 * that it needs: in p, or in a copy that starts with the packet. Returns NULL if memory is missing. p still
 * belongs to the caller.
 */
struct pbuf *casemate_lwip_own(struct pbuf *p, u16_t front, struct casemate_packet *packet);

/*
 * Returns the decrypted packet as a pbuf: q, or a copy if the packet is in another buffer. Takes ownership
 * of q.
 */
struct pbuf *casemate_lwip_opened(struct pbuf *q, const struct casemate_packet *packet);

/* Attach and detach functions of the placements. */
err_t casemate_lwip_inside_attach(struct casemate_lwip_netif *state);
void casemate_lwip_inside_detach(struct casemate_lwip_netif *state);
err_t casemate_lwip_below_attach(struct casemate_lwip_netif *state);
void casemate_lwip_below_detach(struct casemate_lwip_netif *state);

/* Replacements of netif->input, called in the thread of the stack. */
err_t casemate_lwip_inside_input(struct pbuf *p, struct netif *netif);
err_t casemate_lwip_below_input(struct pbuf *p, struct netif *netif);

#endif
