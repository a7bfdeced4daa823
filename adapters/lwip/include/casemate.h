/*
 * casemate.h - IPsec (ESP and AH) as a library. IKEv2 is in casemate_ike.h.
 *
 * Threads: the library is not thread-safe; only one thread at a time may call its functions. In lwIP this
 * is the thread of the stack. No function may be called from an interrupt, or from a callback of the
 * library (casemate_random_fn, casemate_emit_fn, casemate_source_fn, casemate_wake_fn).
 *
 * Ownership: the library keeps no pointer after a call returns, except for the memory of casemate_memory
 * and the contexts of callbacks, which must exist as long as the host. Keys are copied, and zeroed when
 * their SA is removed. Pointers must not be null unless stated otherwise.
 *
 * Memory: it is allocated when hosts, SAs and policies are created or negotiated, never per packet. If an
 * allocation would not fit, the function returns CASEMATE_ERR_MEMORY before it changes anything.
 *
 * Return values: int32_t results are CASEMATE_OK, a verdict, or a negative error; casemate_strerror returns
 * the text. After an error nothing has changed. Times are microseconds of any clock that does not run
 * backwards.
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
#define CASEMATE_ERR_PPK (-18)

/* IPsec protocols. */
#define CASEMATE_ESP 50
#define CASEMATE_AH 51
/* Modes. */
#define CASEMATE_TRANSPORT 1
#define CASEMATE_TUNNEL 2
/* Actions of a policy. */
#define CASEMATE_DISCARD 1
#define CASEMATE_BYPASS 2
#define CASEMATE_PROTECT 3
/* Directions. */
#define CASEMATE_OUT 1
#define CASEMATE_IN 2

/* Verdicts. The packet was dropped, and the counter of the reason was incremented. */
#define CASEMATE_DROPPED 0
/* The packet passes in clear text. (The MSS of a TCP SYN may have been lowered in place.) */
#define CASEMATE_CLEAR 1
/* The packet was protected or decrypted: struct casemate_packet has its new position. */
#define CASEMATE_CHANGED 2
/* Nothing to deliver, not an error: dummy packet, keepalive, held fragment, or path MTU message. */
#define CASEMATE_CONSUMED 3

/* Room that casemate_outbound needs before and after a packet, in bytes. */
#define CASEMATE_HEAD_ROOM 256
#define CASEMATE_TAIL_ROOM 160
/*
 * Room that casemate_inbound needs after an AH packet with extended sequence numbers, in bytes. Others need
 * none.
 */
#define CASEMATE_AH_ROOM 4

/* A host: SAs, policies, and their state. Opaque. */
struct casemate_host;

/* An IP address in network byte order. Version: 4, 6, or 0 for none. IPv4 uses the first four bytes. */
struct casemate_address {
    uint8_t version;
    uint8_t bytes[16];
};

/* Sizes of the tables, each at most 65535. A full table refuses new entries. */
struct casemate_tables {
    uint32_t sas;              /* in both directions together */
    uint32_t policies;         /* per direction */
    uint32_t flows;            /* cached decisions, per direction; a power of two */
    uint32_t replay_window;    /* maximum window of an SA, in packets */
    uint32_t arrivals;         /* concurrent reassemblies of received fragments; 0 if the stack does it */
    uint32_t reassemblies;     /* concurrent reassemblies of fragments received through SAs */
    uint32_t reassembly_bytes; /* maximum length of a reassembled datagram */
    uint32_t ike_sas;          /* IKE SAs, at most half of them half-open; 0 for a host without IKE */
    uint32_t ike_children;     /* Child SAs per IKE SA; each uses two of `sas`, four during rekeying */
};

/* Maximum memory in bytes, without fragmentation of the allocator. */
struct casemate_costs {
    size_t host;         /* the host with its flows and reassemblies */
    size_t sa;           /* each SA */
    size_t policy;       /* each policy */
    size_t ike_sa;       /* each IKE SA */
    size_t ike_child;    /* each Child SA, without its SAs and policies */
    size_t ike_exchange; /* free memory needed for an IKE exchange, beside what the exchange keeps */
    size_t total;        /* all tables full */
};

/* Fills `bytes` bytes at `out` from a cryptographically secure generator. Must not fail. */
typedef void (*casemate_random_fn)(void *context, uint8_t *out, size_t bytes);

/* Receives a fragment, which is valid until the function returns. Must not call the library. */
typedef void (*casemate_emit_fn)(void *context, const uint8_t *fragment, size_t bytes);

struct casemate_setup {
    struct casemate_tables tables;
    uint32_t mtu;       /* MTU of the link, 576 to 65535; with several links the smallest */
    uint32_t unmatched; /* CASEMATE_DISCARD or CASEMATE_BYPASS, for packets that match no policy */
    casemate_random_fn random;
    void *random_context; /* may be null */
};

/*
 * One SA for one direction. Suites have the names that strongSwan uses: "aes128gcm16", "aes256ccm8",
 * "chacha20poly1305", "aes256-sha256", "aes128ctr-sha384", "null-aes128gmac"; for AH "sha256", "aescmac",
 * "aes128gmac". A key has the format of IKEv2 and Linux: the key, followed by the salt of a counter mode.
 * "3des-md5", and "md5" for AH, need a library built with the feature `legacy`.
 *
 * With a counter mode (GCM, CCM, CTR, GMAC, ChaCha20) a key must never be used twice with the same sequence
 * number. With manual keys, a device needs new keys at each start, or a last_sequence above the last number
 * it has used.
 */
struct casemate_sa {
    uint32_t spi;                  /* in host byte order, not 0 */
    uint32_t protocol;             /* CASEMATE_ESP or CASEMATE_AH */
    uint32_t mode;                 /* CASEMATE_TRANSPORT or CASEMATE_TUNNEL */
    struct casemate_address src;   /* of the outer header (tunnel), or of the packets (transport) */
    struct casemate_address dst;   /* likewise */
    const char *suite;             /* NUL-terminated */
    const uint8_t *encryption_key; /* null for AH */
    size_t encryption_key_bytes;
    const uint8_t *integrity_key;  /* null for combined modes */
    size_t integrity_key_bytes;
    uint16_t encap_src_port;       /* ports for UDP encapsulation of ESP, or 0 and 0 */
    uint16_t encap_dst_port;
    uint32_t esn;                  /* 1 for extended sequence numbers, or 0 */
    uint32_t replay_window;        /* in packets; 0 disables the check */
    uint64_t last_sequence;        /* last number sent or received; 0 for a new SA */
    uint32_t reqid;                /* connects policies with this SA; 0 for none */
    uint32_t ah_align8;            /* 1 pads AH to 8 bytes with IPv4 too, the default of Linux; or 0 */
};

/* Requirements of a policy for an SA. */
struct casemate_template {
    uint32_t protocol;           /* CASEMATE_ESP or CASEMATE_AH; 0 for no SA */
    uint32_t mode;
    struct casemate_address src; /* version 0 for any */
    struct casemate_address dst;
    uint32_t reqid;              /* 0 for any */
};

/*
 * A selector, in the direction of the packets, and an action. The policy with the lowest priority is tried
 * first.
 */
struct casemate_policy {
    struct casemate_address src_first;
    struct casemate_address src_last;
    struct casemate_address dst_first;
    struct casemate_address dst_last;
    int32_t upper;            /* upper-layer protocol; -1 for any */
    uint16_t src_port_first;  /* 0 to 65535 for any; ICMP types */
    uint16_t src_port_last;
    uint16_t dst_port_first;  /* ICMP codes */
    uint16_t dst_port_last;
    uint32_t priority;
    uint32_t action;          /* CASEMATE_DISCARD, CASEMATE_BYPASS or CASEMATE_PROTECT */
    struct casemate_template sa;    /* for CASEMATE_PROTECT */
    struct casemate_template around; /* a second SA around the first, such as AH around ESP; or protocol 0 */
};

/* An IP packet in a buffer of the caller. */
struct casemate_packet {
    uint8_t *buffer;
    size_t size;   /* of the buffer */
    size_t start;  /* offset of the packet */
    size_t len;    /* of the packet */
    size_t cut_to; /* set by the library: maximum length of the fragments to send; 0 for no fragmentation */
};

/* Returns the text of a result: a constant English string. */
const char *casemate_strerror(int32_t code);

/* Provides the library's memory. Must be called once, before all other functions. */
int32_t casemate_memory(void *memory, size_t bytes);

/* Returns the number of free bytes. */
size_t casemate_memory_free(void);

/* Computes the memory for tables of these sizes. */
int32_t casemate_limits(const struct casemate_tables *tables, struct casemate_costs *costs);

/* Creates a host without SAs and policies. */
int32_t casemate_create(const struct casemate_setup *setup, struct casemate_host **host);

/* Destroys a host; null is ignored. */
void casemate_destroy(struct casemate_host *host);

/* Adds an SA. The direction is CASEMATE_OUT or CASEMATE_IN. */
int32_t casemate_add_sa(struct casemate_host *host, uint32_t direction, const struct casemate_sa *sa,
                        uint64_t now);

/* Removes the SA with this spi, protocol and dst; the other members are ignored. */
int32_t casemate_remove_sa(struct casemate_host *host, uint32_t direction, const struct casemate_sa *sa);

/* Adds a policy. The direction is CASEMATE_OUT or CASEMATE_IN. */
int32_t casemate_add_policy(struct casemate_host *host, uint32_t direction,
                            const struct casemate_policy *policy);

/* Removes the policy that is equal to this one. */
int32_t casemate_remove_policy(struct casemate_host *host, uint32_t direction,
                               const struct casemate_policy *policy);

/*
 * Adds ten policies of priority 0 in each direction that let IKE, DHCP, IGMP, MLD and neighbour discovery
 * pass in clear text. ARP is not IP and never reaches the library.
 */
int32_t casemate_bypass_control_plane(struct casemate_host *host);

/* Returns 1 if every packet passes unchanged: no SA, no policy, and unmatched packets pass. Otherwise 0. */
int32_t casemate_is_idle(const struct casemate_host *host);

/*
 * Protects an outgoing packet in place and returns a verdict. The packet must be whole, with
 * CASEMATE_HEAD_ROOM and CASEMATE_TAIL_ROOM around it. casemate_cut fragments it afterwards.
 */
int32_t casemate_outbound(struct casemate_host *host, struct casemate_packet *packet, uint64_t now);

/*
 * Decrypts an incoming packet in place, or checks that it may be in clear text, and returns a verdict.
 * Fragments are held until the packet is complete if the tables have room for arrivals; otherwise they are
 * dropped. If `buffer` has changed after CASEMATE_CHANGED, it belongs to the library and is valid until the
 * next call.
 */
int32_t casemate_inbound(struct casemate_host *host, struct casemate_packet *packet, uint64_t now);

/* Splits a packet into fragments of at most cut_to bytes. Clears the DF bit of an IPv4 packet. */
int32_t casemate_cut(struct casemate_host *host, const struct casemate_packet *packet, casemate_emit_fn emit,
                     void *context);

/*
 * Returns name and counter of drop reason number `index`. Indices start at 0; CASEMATE_ERR_ABSENT follows
 * the last. The name is a constant of name_bytes bytes without a terminating NUL.
 */
int32_t casemate_drops(const struct casemate_host *host, size_t index, const char **name, size_t *name_bytes,
                       uint64_t *count);

/*
 * Defined by the application. Called on an internal error of the library, which no input can cause, with
 * the source position (`file` is not NUL-terminated). Must not return.
 */
void casemate_panic(const char *file, size_t file_bytes, uint32_t line);

#ifdef __cplusplus
}
#endif

#endif
