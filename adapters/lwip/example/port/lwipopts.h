/*
 * lwipopts.h - lwIP's settings for the example and the tests. Settings in #ifndef can be overridden by
 * compiler options, which test builds do.
 */
#ifndef EXAMPLE_LWIPOPTS_H
#define EXAMPLE_LWIPOPTS_H

#ifndef NO_SYS
#define NO_SYS 1
#endif
#if NO_SYS
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0
#else
#define SYS_LIGHTWEIGHT_PROT 1
#define LWIP_NETCONN 1
#define LWIP_SOCKET 1
#define LWIP_COMPAT_SOCKETS 0
#define LWIP_POSIX_SOCKETS_IO_NAMES 0
#define LWIP_TCPIP_CORE_LOCKING 1
#define TCPIP_MBOX_SIZE 256
#define DEFAULT_TCP_RECVMBOX_SIZE 64
#define DEFAULT_ACCEPTMBOX_SIZE 16
#define LWIP_SO_RCVTIMEO 1
#endif

/* ---- required by Casemate: casemate_lwip.h ---- */

#ifndef LWIP_RAW
#define LWIP_RAW 1
#endif
/* CASEMATE_LWIP_GUARDS, and two for pings. */
#define MEMP_NUM_RAW_PCB 16
#define IP_REASSEMBLY 1
#define LWIP_IPV6_REASS 1
#ifndef IP_FORWARD
#define IP_FORWARD 0
#endif
#define LWIP_IPV6_FORWARD 0
#ifndef LWIP_ND6_ALLOW_RA_UPDATES
#define LWIP_ND6_ALLOW_RA_UPDATES 0
#endif

/* ---- required by IKE: casemate_lwip_ike.h ---- */

#define MEMP_NUM_SYS_TIMEOUT (LWIP_NUM_SYS_TIMEOUT_INTERNAL + 1)

/* ---- memory: from malloc, so that sanitizers check every byte ---- */

#define MEM_LIBC_MALLOC 1
#define MEMP_MEM_MALLOC 1
#define MEM_ALIGNMENT 8
/* The Ethernet header has 14 bytes; two bytes of padding align the IP header. */
#define ETH_PAD_SIZE 2
/* Longer received packets are pbuf chains. */
#ifndef PBUF_POOL_BUFSIZE
#define PBUF_POOL_BUFSIZE 1536
#endif
#define PBUF_POOL_SIZE 1024

/* ---- the stack ---- */

#ifndef LWIP_IPV4
#define LWIP_IPV4 1
#endif
#ifndef LWIP_IPV6
#define LWIP_IPV6 1
#endif
#define IP_REASS_MAX_PBUFS 1024
/* For --plain. Casemate fragments the packets that it protects. */
#define IP_FRAG 1
#define LWIP_IPV6_FRAG 1
/* On 64-bit machines a pointer does not fit into the header of an IPv6 fragment. */
#define IPV6_FRAG_COPYHEADER 1

#define LWIP_ARP 1
#define ARP_QUEUEING 1
#define ARP_QUEUE_LEN 64
#define LWIP_ND6_QUEUEING 1
#define MEMP_NUM_ND6_QUEUE 64
#define LWIP_IPV6_DUP_DETECT_ATTEMPTS 0
#define LWIP_IPV6_NUM_ADDRESSES 4
#define LWIP_HOOK_FILENAME "hooks.h"
/* For tests: the command `vlan` sets a tag for sent frames. */
#ifdef EXAMPLE_VLAN
#define ETHARP_SUPPORT_VLAN 1
#define LWIP_HOOK_VLAN_SET(netif, p, src, dst, type) example_vlan()
#endif
#define LWIP_HOOK_ND6_GET_GW(netif, target) example_gateway(netif, target)

#define LWIP_TCP 1
#define TCP_MSS 1460
#define TCP_WND (44 * TCP_MSS)
#define TCP_SND_BUF (44 * TCP_MSS)
#define TCP_SND_QUEUELEN 256
#define MEMP_NUM_TCP_SEG 512
#define MEMP_NUM_TCP_PCB 32

/* ---- services ---- */

#define LWIP_HTTPD 1
#define HTTPD_USE_MEM_POOL 0

#define LWIP_STATS 0

#endif
