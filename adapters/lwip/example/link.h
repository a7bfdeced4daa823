/*
 * link.h - the network interface: Ethernet frames through a file descriptor, one frame per read or write.
 *
 * With a fixed neighbour, every packet is sent to its Ethernet address, without ARP and neighbour discovery.
 */
#ifndef EXAMPLE_LINK_H
#define EXAMPLE_LINK_H

#include "config.h"
#include "lwip/netif.h"

/* Opens a TAP interface, and creates it if it does not exist. Returns the descriptor, or -1 with errno. */
int link_open_tap(const char *name);

/* Opens a Unix socket bound to the path own that sends to the path peer; one frame per datagram. */
int link_open_unix(const char *own, const char *peer);

/* Adds the interface to lwIP as the default interface. Its frames come from fd. */
err_t link_add(struct netif *netif, int fd, const u8_t mac[6], u16_t mtu, netif_input_fn input);

/* Sends all packets to this neighbour. Must be called before Casemate is attached. */
void link_set_neighbour(struct netif *netif, const u8_t mac[6]);

/*
 * Adds an address. Additional IPv4 addresses need interfaces of their own, because lwIP has one per
 * interface.
 */
err_t link_add_address(struct netif *netif, const struct casemate_address *address, unsigned length);

/* Sets the default router. */
void link_set_gateway(struct netif *netif, const struct casemate_address *address);

/* Tags the frames that lwIP sends with this VLAN identifier, in builds with EXAMPLE_VLAN. */
void link_set_vlan(int vlan);

/* Passes received frames to lwIP, a limited number per call. */
void link_poll(struct netif *netif);

/* Returns the number of bytes of all frames sent. */
unsigned long long link_written(void);

#endif
