/*
 * casemate_lwip_private.h - what the files of this directory share: casemate_lwip.c has what both placements need,
 * casemate_lwip_inside.c and casemate_lwip_below.c what each does by itself.
 */
#ifndef CASEMATE_LWIP_PRIVATE_H
#define CASEMATE_LWIP_PRIVATE_H

#include "casemate_lwip.h"

/* lwIP's stack is one for the program, and so is this. NULL before it is started. */
extern struct casemate_lwip *casemate_lwip_stack;

/* A netif's state, or NULL. */
struct casemate_lwip_netif *casemate_lwip_find(const struct netif *netif);

/* Whether every packet passes as it is. */
int casemate_lwip_is_idle(void);

/* Sends a packet that is ready, or a fragment of one, in a pbuf with room for a link-layer header. `link` is protect's. */
typedef err_t (*casemate_lwip_send_fn)(const struct casemate_lwip_netif *state, struct pbuf *q, const void *link);

/*
 * Protects the IP packet behind the first `front` bytes of p and sends it, cut if need be. p stays as it is: TCP keeps its
 * segments to send them again.
 */
err_t casemate_lwip_protect(const struct casemate_lwip_netif *state, const struct pbuf *p, u16_t front,
                            casemate_lwip_send_fn send, const void *link);

/*
 * The IP packet behind the first `front` bytes of p, in one piece that nobody else sees, with the room that it may need: in p, or
 * in a copy, which begins with the packet too. NULL for want of memory. p stays the caller's.
 */
struct pbuf *casemate_lwip_own(struct pbuf *p, u16_t front, struct casemate_packet *packet);

/* The opened packet as a pbuf: what is left of q, or a copy if it was put together elsewhere; or NULL. Takes q over. */
struct pbuf *casemate_lwip_opened(struct pbuf *q, const struct casemate_packet *packet);

/* The placements: attach what has been filled in, and take it away again. */
err_t casemate_lwip_inside_attach(struct casemate_lwip_netif *state);
void casemate_lwip_inside_detach(struct casemate_lwip_netif *state);
err_t casemate_lwip_below_attach(struct casemate_lwip_netif *state);
void casemate_lwip_below_detach(struct casemate_lwip_netif *state);

/* In the place of netif->input, in the thread of the stack. */
err_t casemate_lwip_inside_input(struct pbuf *p, struct netif *netif);
err_t casemate_lwip_below_input(struct pbuf *p, struct netif *netif);

#endif
