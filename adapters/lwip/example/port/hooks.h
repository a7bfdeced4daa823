/* hooks.h - functions of the example that lwIP calls (LWIP_HOOK_FILENAME). */
#ifndef EXAMPLE_HOOKS_H
#define EXAMPLE_HOOKS_H

#include "lwip/netif.h"

/* Returns the IPv6 router, or NULL. */
const ip6_addr_t *example_gateway(struct netif *netif, const ip6_addr_t *target);

/* Returns the VLAN tag for sent frames, or -1. */
s32_t example_vlan(void);

#endif
