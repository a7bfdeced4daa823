/*
 * casemate.h - IPsec (ESP and AH) as a library: packets in, packets out. IKEv2 is in casemate_ike.h.
 *
 * Threads. The functions are called by one thread at a time, the whole library over; in lwIP that is the thread of the
 * stack. None is called from an interrupt, and none from within a function that the library calls (casemate_random_fn,
 * casemate_emit_fn, casemate_source_fn, casemate_wake_fn).
 *
 * Ownership. The library keeps nothing that a pointer names beyond the call, but for the memory of casemate_memory and
 * the contexts of functions, which must live as long as the host. Keys are copied, and wiped when their SA goes.
 * Pointers may not be null unless it is said.
 *
 * Memory. Everything is allocated when hosts, SAs and policies are made, or negotiated, nothing for a packet. What does not
 * fit is refused with CASEMATE_ERR_MEMORY, before anything is done.
 *
 * Answers. int32_t answers are CASEMATE_OK or a verdict, or negative: casemate_strerror has the text. After an error
 * nothing is changed. Time is a count of microseconds on any clock that does not run backwards.
 */
#ifndef CASEMATE_H
#define CASEMATE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CASEMATE_OK 0
#define CASEMATE_ERR_NULL (-1)
#define CASEMATE_ERR_VALUE (-2)
#define CASEMATE_ERR_ADDRESS (-3)
#define CASEMATE_ERR_SUITE (-4)
#define CASEMATE_ERR_KEY (-5)
#define CASEMATE_ERR_DUPLICATE (-6)
#define CASEMATE_ERR_FULL (-7)
#define CASEMATE_ERR_MEMORY (-8)
#define CASEMATE_ERR_OPTIONS (-9)
#define CASEMATE_ERR_ABSENT (-10)
#define CASEMATE_ERR_CUT (-11)
#define CASEMATE_ERR_TWICE (-12)
#define CASEMATE_ERR_NAME (-13)
#define CASEMATE_ERR_IDENTITY (-14)
#define CASEMATE_ERR_TRAFFIC (-15)
#define CASEMATE_ERR_CERTIFICATE (-16)
#define CASEMATE_ERR_ROUTE (-17)

/* Protocols. */
#define CASEMATE_ESP 50
#define CASEMATE_AH 51
/* Modes. */
#define CASEMATE_TRANSPORT 1
#define CASEMATE_TUNNEL 2
/* What a policy does. */
#define CASEMATE_DISCARD 1
#define CASEMATE_BYPASS 2
#define CASEMATE_PROTECT 3
/* Directions. */
#define CASEMATE_OUT 1
#define CASEMATE_IN 2

/* Verdicts. The packet ends here; the counter of its reason went up. */
#define CASEMATE_DROPPED 0
/* It passes in clear. (The MSS of a TCP SYN may have been lowered in place.) */
#define CASEMATE_CLEAR 1
/* It was protected, or opened: struct casemate_packet says where it is now. */
#define CASEMATE_CHANGED 2
/* There is nothing to deliver, and rightly so: a dummy, a keepalive, a fragment that is kept, news of a path's MTU. */
#define CASEMATE_CONSUMED 3

/* Room that casemate_outbound needs before and behind a packet, in bytes. */
#define CASEMATE_HEAD_ROOM 256
#define CASEMATE_TAIL_ROOM 160
/* Room that casemate_inbound needs behind a packet, in bytes, for AH with extended sequence numbers; others need none. */
#define CASEMATE_AH_ROOM 4

/* SAs, policies, and what belongs to them. */
struct casemate_host;

/* An IP address in network order. Version is 4 or 6; 0 says "none". IPv4 has the first four bytes. */
struct casemate_address {
    uint8_t version;
    uint8_t bytes[16];
};

/* How much the tables may hold, each at most 65535. A full table refuses what comes next. */
struct casemate_tables {
    uint32_t sas;              /* both directions together */
    uint32_t policies;         /* in each direction */
    uint32_t flows;            /* remembered decisions, in each direction; a power of two */
    uint32_t replay_window;    /* the largest that an SA may have, in packets */
    uint32_t arrivals;         /* packets that arrive as fragments, at once; 0 where the stack puts them together */
    uint32_t reassemblies;     /* datagrams that came through a tunnel as fragments, at once */
    uint32_t reassembly_bytes; /* the longest of both */
    uint32_t ike_sas;          /* IKE SAs, at most half of them half-open; 0 for a host without IKE */
    uint32_t ike_children;     /* Child SAs of one IKE SA; each is two of the SAs above, and four while it is rekeyed */
};

/* What they cost in bytes, at most; without the allocator's own loss by fragmentation. */
struct casemate_costs {
    size_t host;         /* the host with its flows and reassemblies */
    size_t sa;           /* each SA */
    size_t policy;       /* each policy */
    size_t ike_sa;       /* each IKE SA */
    size_t ike_child;    /* each Child SA, beside its SAs and policies */
    size_t ike_exchange; /* what must be free for an exchange of IKE, beside what it leaves behind */
    size_t total;        /* all tables full */
};

/* Fills bytes at out from a cryptographically secure generator. Must not fail. */
typedef void (*casemate_random_fn)(void *context, uint8_t *out, size_t bytes);

/* Takes a fragment, which is gone when the function returns. Must not call the library. */
typedef void (*casemate_emit_fn)(void *context, const uint8_t *fragment, size_t bytes);

struct casemate_setup {
    struct casemate_tables tables;
    uint32_t mtu;       /* of the link, 576 to 65535; where there are several, the smallest */
    uint32_t unmatched; /* CASEMATE_DISCARD or CASEMATE_BYPASS, for what no policy names */
    casemate_random_fn random;
    void *random_context; /* may be null */
};

/*
 * One SA, one direction. The suite is spelled as strongSwan does: "aes128gcm16", "aes256ccm8", "chacha20poly1305",
 * "aes256-sha256", "aes128ctr-sha384", "null-aes128gmac"; for AH "sha256", "aescmac", "aes128gmac". Keys are laid out as
 * IKEv2 and Linux do: the key, then the salt of a counter mode. "3des-md5" and AH's "md5" are refused, unless the library was
 * built with the feature `legacy`.
 *
 * A key of a counter mode (GCM, CCM, CTR, GMAC, ChaCha20) must never see a sequence number twice: with manual keys, each
 * start of a device needs new keys or the last_sequence where it left off, and a little more.
 */
struct casemate_sa {
    uint32_t spi;                  /* in host order, not 0 */
    uint32_t protocol;             /* CASEMATE_ESP or CASEMATE_AH */
    uint32_t mode;                 /* CASEMATE_TRANSPORT or CASEMATE_TUNNEL */
    struct casemate_address src;   /* of a tunnel's outer header, or of the packets */
    struct casemate_address dst;   /* likewise */
    const char *suite;             /* ends with 0 */
    const uint8_t *encryption_key; /* null where there is none: AH */
    size_t encryption_key_bytes;
    const uint8_t *integrity_key;  /* null where there is none: combined modes */
    size_t integrity_key_bytes;
    uint16_t encap_src_port;       /* UDP encapsulation of ESP: both ports, or 0 and 0 */
    uint16_t encap_dst_port;
    uint32_t esn;                  /* 1 for extended sequence numbers, or 0 */
    uint32_t replay_window;        /* packets; 0 switches the check off */
    uint64_t last_sequence;        /* already sent, or received; 0 for a new SA */
    uint32_t reqid;                /* ties policies to this SA; 0 for none */
    uint32_t ah_align8;            /* 1 pads AH to 8 bytes with IPv4 too, as Linux does unless told otherwise; or 0 */
};

/* What SA a policy takes. */
struct casemate_template {
    uint32_t protocol;           /* CASEMATE_ESP or CASEMATE_AH; 0 for no SA */
    uint32_t mode;
    struct casemate_address src; /* version 0 is any */
    struct casemate_address dst;
    uint32_t reqid;              /* 0 is any */
};

/* Which packets, oriented as they travel, and what happens to them. The lowest priority is asked first. */
struct casemate_policy {
    struct casemate_address src_first;
    struct casemate_address src_last;
    struct casemate_address dst_first;
    struct casemate_address dst_last;
    int32_t upper;            /* protocol inside IP; -1 is any */
    uint16_t src_port_first;  /* 0 to 65535 is any; for ICMP types */
    uint16_t src_port_last;
    uint16_t dst_port_first;  /* for ICMP codes */
    uint16_t dst_port_last;
    uint32_t priority;
    uint32_t action;          /* CASEMATE_DISCARD, CASEMATE_BYPASS or CASEMATE_PROTECT */
    struct casemate_template sa;    /* for CASEMATE_PROTECT */
    struct casemate_template around; /* a second SA around the first, as AH around ESP; or protocol 0 */
};

/* An IP packet in a buffer of the caller's. */
struct casemate_packet {
    uint8_t *buffer;
    size_t size;   /* of the buffer */
    size_t start;  /* where the packet begins in it */
    size_t len;    /* of the packet */
    size_t cut_to; /* set by the library: the packet goes out in fragments of at most so many bytes; 0 as it is */
};

/* The text of an answer: a constant, in English. */
const char *casemate_strerror(int32_t code);

/* Gives the library its memory, once and for ever; before everything else. */
int32_t casemate_memory(void *memory, size_t bytes);

/* Bytes of it that are free. */
size_t casemate_memory_free(void);

/* What tables of these sizes cost. */
int32_t casemate_limits(const struct casemate_tables *tables, struct casemate_costs *costs);

/* Makes a host without SAs and policies. */
int32_t casemate_create(const struct casemate_setup *setup, struct casemate_host **host);

/* Ends a host; null is none. */
void casemate_destroy(struct casemate_host *host);

/* Adds an SA, of direction CASEMATE_OUT or CASEMATE_IN. */
int32_t casemate_add_sa(struct casemate_host *host, uint32_t direction, const struct casemate_sa *sa, uint64_t now);

/* Removes the SA that has this spi, protocol and dst; the other members are not looked at. */
int32_t casemate_remove_sa(struct casemate_host *host, uint32_t direction, const struct casemate_sa *sa);

/* Adds a policy for packets of direction CASEMATE_OUT or CASEMATE_IN. */
int32_t casemate_add_policy(struct casemate_host *host, uint32_t direction, const struct casemate_policy *policy);

/* Removes the policy that equals this one. */
int32_t casemate_remove_policy(struct casemate_host *host, uint32_t direction, const struct casemate_policy *policy);

/*
 * Adds ten policies of priority 0 in each direction: IKE, DHCP, IGMP, MLD and neighbour discovery pass in clear. ARP is no IP
 * and never comes here.
 */
int32_t casemate_housekeeping(struct casemate_host *host);

/* 1 if every packet passes as it is: there is no SA and no policy, and what no policy names passes. Else 0. */
int32_t casemate_is_idle(const struct casemate_host *host);

/*
 * Protects an outgoing packet in place; a verdict. The packet has CASEMATE_HEAD_ROOM and CASEMATE_TAIL_ROOM around it
 * and is whole: fragments are made afterwards, by casemate_cut.
 */
int32_t casemate_outbound(struct casemate_host *host, struct casemate_packet *packet, uint64_t now);

/*
 * Opens an incoming packet in place, or checks that it may come in clear; a verdict. Fragments are kept until their packet is
 * whole, if the tables have room for arrivals, and dropped if not. If buffer is another one after CASEMATE_CHANGED, it is the
 * library's, and good until the next call.
 */
int32_t casemate_inbound(struct casemate_host *host, struct casemate_packet *packet, uint64_t now);

/* Cuts a packet into fragments of at most cut_to bytes. The DF bit of an IPv4 packet is cleared. */
int32_t casemate_cut(struct casemate_host *host, const struct casemate_packet *packet, casemate_emit_fn emit, void *context);

/*
 * Tells how many packets were dropped for reason number index, from 0 on until CASEMATE_ERR_ABSENT. The name is a constant of
 * name_bytes bytes, without a 0.
 */
int32_t casemate_drops(const struct casemate_host *host, size_t index, const char **name, size_t *name_bytes, uint64_t *count);

/*
 * The application's, called where the library finds a mistake of its own: reports the place in the library's source (file is
 * not ended by 0) and does not return. No input leads here; a function is asked for so that nobody has to guess.
 */
void casemate_panic(const char *file, size_t file_bytes, uint32_t line);

#ifdef __cplusplus
}
#endif

#endif
