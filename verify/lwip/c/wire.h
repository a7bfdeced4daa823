/* wire.h - an Ethernet whose frames are datagrams of a Unix socket. */
#ifndef CASEMATE_TEST_WIRE_H
#define CASEMATE_TEST_WIRE_H

#include "lwip/netif.h"

/* Opens the wire: a socket bound to the path own that sends to the path peer. Its descriptor, or -1. */
int wire_open(const char *own, const char *peer);

/* For netif_add: an Ethernet interface on the wire. */
err_t wire_netif(struct netif *netif);

/* Gives lwIP the frames that have come. */
void wire_poll(struct netif *netif);

#endif
