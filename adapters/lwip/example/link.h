/*
 * link.h - the interface: Ethernet frames through a file descriptor, one read or written at a time.
 *
 * With a neighbour, every packet goes to its Ethernet address, without ARP and neighbour discovery.
 */
#ifndef EXAMPLE_LINK_H
#define EXAMPLE_LINK_H

#include "config.h"
#include "lwip/netif.h"

/* Opens a TAP interface, which is made if there is none of this name. The descriptor, or -1 with errno. */
int link_open_tap(const char *name);

/* Opens a Unix socket bound to the path own that sends to the path peer; a datagram is a frame. */
int link_open_unix(const char *own, const char *peer);

/* Adds the interface to lwIP as the default one. Its frames come from fd. */
err_t link_add(struct netif *netif, int fd, const u8_t mac[6], u16_t mtu, netif_input_fn input);

/* Sends everything to this neighbour. Before a guard is attached. */
void link_set_neighbour(struct netif *netif, const u8_t mac[6]);

/* Adds an address. A second one of IPv4 gets an interface of its own, because lwIP's have one. */
err_t link_add_address(struct netif *netif, const struct casemate_address *address, unsigned length);

/* Where packets go that are not for the link. */
void link_set_gateway(struct netif *netif, const struct casemate_address *address);

/* Tags the frames that lwIP sends with this VLAN identifier, in builds with EXAMPLE_VLAN. */
void link_set_vlan(int vlan);

/* Gives lwIP the frames that have come, a limited number at once. */
void link_poll(struct netif *netif);

/* Bytes of all frames that were written. */
unsigned long long link_written(void);

#endif
