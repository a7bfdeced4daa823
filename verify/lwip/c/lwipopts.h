/*
 * lwIP as the tests build it: one thread, both IP versions, every allocation by malloc so that the sanitizers see it. What can be
 * told on the compiler's command line is for builds that are compiled and not run.
 */
#ifndef CASEMATE_TEST_LWIPOPTS_H
#define CASEMATE_TEST_LWIPOPTS_H

#ifndef NO_SYS
#define NO_SYS 1
#endif
#define SYS_LIGHTWEIGHT_PROT 0
#define LWIP_NETCONN 0
#define LWIP_SOCKET 0

#define MEM_LIBC_MALLOC 1
#define MEMP_MEM_MALLOC 1
#define MEM_ALIGNMENT 8
/* The header of an Ethernet frame has 14 bytes; with two more, what follows is aligned. */
#define ETH_PAD_SIZE 2

/* Received packets of more than this are chains. */
#define PBUF_POOL_BUFSIZE 256
#define PBUF_POOL_SIZE 1024
#define PBUF_LINK_ENCAPSULATION_HLEN 0

#ifndef LWIP_IPV4
#define LWIP_IPV4 1
#endif
#ifndef LWIP_IPV6
#define LWIP_IPV6 1
#endif
#ifndef LWIP_RAW
#define LWIP_RAW 1
#endif
#define MEMP_NUM_RAW_PCB 16
#define IP_REASSEMBLY 1
#define IP_REASS_MAX_PBUFS 1024
#define LWIP_IPV6_REASS 1
/* Packets are cut by Casemate. */
#define IP_FRAG 0
#define LWIP_IPV6_FRAG 0
#ifndef IP_FORWARD
#define IP_FORWARD 0
#endif
#define LWIP_IPV6_FORWARD 0
#ifndef LWIP_ND6_ALLOW_RA_UPDATES
#define LWIP_ND6_ALLOW_RA_UPDATES 0
#endif
/* A pointer does not fit into an IPv6 fragment's header on machines of 64 bits. */
#define IPV6_FRAG_COPYHEADER 1

#define LWIP_ARP 1
#define ARP_QUEUEING 1
#define ARP_QUEUE_LEN 64
#define LWIP_ND6_QUEUEING 1
#define MEMP_NUM_ND6_QUEUE 64
#define LWIP_IPV6_DUP_DETECT_ATTEMPTS 0
#define LWIP_IPV6_NUM_ADDRESSES 4

/* IKE has a timer of its own. */
#define MEMP_NUM_SYS_TIMEOUT (LWIP_NUM_SYS_TIMEOUT_INTERNAL + 1)

#define LWIP_TCP 1
#define TCP_MSS 1460
#define TCP_WND (16 * TCP_MSS)
#define TCP_SND_BUF (16 * TCP_MSS)
#define TCP_SND_QUEUELEN 128
#define MEMP_NUM_TCP_SEG 256

#define LWIP_STATS 0

#endif
