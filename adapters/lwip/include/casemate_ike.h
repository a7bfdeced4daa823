/*
 * casemate_ike.h - IKEv2 (RFC 7296) for a host of casemate.h: negotiates SAs and policies from connections.
 *
 * The application sends and receives the UDP datagrams of ports 500 and 4500 (casemate_lwip_ike.c does so
 * in lwIP):
 *
 *   datagram received -> casemate_ike_receive --+
 *   timer expired -----> casemate_ike_serve ----+--> casemate_ike_transmit until there is none: send them
 *   command -----------> casemate_initiate, ... +--> casemate_ike_event until there is none: handle them
 *
 * The rules of casemate.h for threads, ownership, memory and return values apply. Strings are
 * NUL-terminated, are copied, and may be null where stated. A function that may need memory first checks
 * that the worst case fits. If it does not, the function returns CASEMATE_ERR_MEMORY, changes nothing, and
 * increments `refused` of casemate_ike_counts. The peer retransmits a message that was refused.
 */
#ifndef CASEMATE_IKE_H
#define CASEMATE_IKE_H

#include "casemate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sizes of names and reasons, including the NUL. */
#define CASEMATE_NAME_BYTES 32
#define CASEMATE_REASON_BYTES 96

/* Authentication methods. */
#define CASEMATE_SHARED_KEY 1
#define CASEMATE_RAW_KEY 2    /* a signature with a key whose public part the peer has (RFC 7427) */
#define CASEMATE_CERTIFICATE 3 /* a signature with the key of an X.509 certificate */

/* When a Child SA is set up, beside casemate_initiate and requests of the peer. */
#define CASEMATE_START_AT_ONCE 1
#define CASEMATE_START_ON_TRAFFIC 2

/* Types of events. */
#define CASEMATE_EVENT_IKE_UP 1
#define CASEMATE_EVENT_IKE_REKEYED 2
#define CASEMATE_EVENT_IKE_DOWN 3 /* ended or not established; see reason */
#define CASEMATE_EVENT_CHILD_UP 4
#define CASEMATE_EVENT_CHILD_REKEYED 5
#define CASEMATE_EVENT_CHILD_DOWN 6 /* ended or not set up; see reason */
#define CASEMATE_EVENT_NOT_BEGUN 7  /* a due exchange could not be started; see reason */

/* Bytes of the caller; data may be null if bytes is 0. */
struct casemate_bytes {
    const uint8_t *data;
    size_t bytes;
};

/*
 * Configuration of a Child SA. Proposals have the format of swanctl.conf(5), separated by commas:
 * "aes128gcm16-x25519,aes256-sha256"; for AH "sha256". Traffic selectors are "dynamic" (the addresses of
 * the IKE SA), "10.1.0.0/16", "10.0.0.1-10.0.0.9[tcp/443]", separated by commas.
 */
struct casemate_child {
    const char *name;           /* 1 to 31 bytes without '/', unique in its connection */
    const char *proposals;      /* null: AES-GCM, ChaCha20-Poly1305, AES-CBC with HMAC-SHA-2; AH: SHA-2 */
    const char *local_traffic;  /* null: dynamic */
    const char *remote_traffic; /* null: dynamic */
    uint32_t protocol;          /* CASEMATE_ESP or CASEMATE_AH */
    uint32_t mode;              /* CASEMATE_TRANSPORT or CASEMATE_TUNNEL */
    uint32_t start;             /* CASEMATE_START_AT_ONCE, CASEMATE_START_ON_TRAFFIC, the sum of both, or 0 */
    uint32_t restart;           /* 1: set up again when the peer closes it or is dead; or 0 */
    uint32_t replay_window;     /* in packets */
    uint32_t rekey_seconds;     /* rekeyed up to a tenth earlier, expires a tenth later; 0 for never */
    uint64_t rekey_bytes;       /* likewise, by volume; 0 for never */
};

/*
 * Configuration of a connection. Identities have the format of swanctl.conf(5): "a.example.org",
 * "carol@example.org", "192.0.2.1", "C=CH, CN=moon", "keyid:#0102", and for peers "*.example.org" or
 * "%any". Keys and certificates are in PEM or DER; several DER certificates are concatenated. RSA keys of
 * peers may have up to 4096 bits.
 *
 * The default proposals are AES-GCM, ChaCha20-Poly1305 and AES-CBC, with HMAC-SHA-2 and the key exchanges
 * X25519, P-256 and P-384.
 *
 * ML-KEM, in a library that was built with the feature `multiple-kex` (otherwise CASEMATE_ERR_SUITE):
 * "aes128gcm16-prfsha256-x25519-ke1_mlkem768" requires ML-KEM-768 after X25519 (RFC 9370). A second proposal
 * without it, after a comma, is the fallback for peers without ML-KEM. A child has its own proposals. On a
 * Cortex-M4, the functions of IKE then need a stack of 52 KB with ML-KEM-768, 40 KB with ML-KEM-512 and 66 KB
 * with ML-KEM-1024, instead of 21 KB. Smaller stacks overflow: casemate_ike_receive, casemate_ike_serve,
 * casemate_initiate and casemate_rekey must be called with as much.
 *
 * A post-quantum pre-shared key (PPK, RFC 8784), in a library that was built with the feature `ppk`: ppk_id
 * is the name of the key as in swanctl.conf(5), such as "carol@example.org", without an asterisk and of up
 * to 64 bytes, the same on both sides; ppk is the key, 1 to 256 bytes, of which 32 random ones protect the
 * traffic from quantum computers. Without a PPK, ppk_id is null, and ppk has 0 bytes. Connections with the
 * same ppk_id must have the same key. If the peer does not have the key, ppk_required decides: 0 goes on
 * without it, 1 refuses the peer. The library copies the key, and wipes its copy when the connection is
 * removed or the host is destroyed; the caller wipes its own. Everything else is CASEMATE_ERR_PPK, and so is
 * a ppk_id in a library without the feature.
 */
struct casemate_connection {
    const char *name;                   /* 1 to 31 bytes without '/', unique */
    struct casemate_address local;      /* version 0: any; casemate_source_fn selects the address */
    struct casemate_address remote;     /* version 0: any; then only the peer can initiate */
    const char *proposals;              /* null: the default proposals, see above */
    const char *local_id;               /* null: the subject of the certificate, or the local address */
    const char *remote_id;              /* null: any; only the authentication is checked */
    uint32_t local_auth;                /* CASEMATE_SHARED_KEY, CASEMATE_RAW_KEY or CASEMATE_CERTIFICATE */
    uint32_t remote_auth;               /* likewise; may differ from local_auth */
    struct casemate_bytes shared_key;   /* for CASEMATE_SHARED_KEY */
    struct casemate_bytes private_key;  /* local key for the other methods: PKCS #8, RFC 5915 or RFC 8017 */
    struct casemate_bytes certificates; /* for CASEMATE_CERTIFICATE: own certificate, then CAs to send */
    struct casemate_bytes peer_key;     /* for CASEMATE_RAW_KEY: SubjectPublicKeyInfo of the peer */
    struct casemate_bytes authorities;  /* trusted CAs for the peer's certificate; for CASEMATE_CERTIFICATE */
    const char *ppk_id;                 /* null: no post-quantum pre-shared key */
    struct casemate_bytes ppk;          /* the post-quantum pre-shared key of ppk_id */
    uint32_t dpd_seconds;               /* idle time before dead peer detection; 0 for never */
    uint32_t rekey_seconds;             /* as for a child */
    uint32_t tries;                     /* retransmission sequences (7 requests in 2 minutes); 0: no limit */
    uint32_t force_encap;               /* 1: use UDP encapsulation even without a NAT; or 0 */
    uint32_t ppk_required;              /* 1: refuse an IKE SA without the PPK; or 0 */
    const struct casemate_child *children;
    size_t child_count;                 /* at most 16 */
};

/*
 * Stores the local address for packets to remote: returns 1, or 0 if there is none. Must not call the
 * library.
 */
typedef int32_t (*casemate_source_fn)(void *context, const struct casemate_address *remote,
                                      struct casemate_address *local);

/*
 * A packet has shown that an SA is missing or needs rekeying: casemate_ike_serve must be called soon. The
 * function is called within casemate_outbound and casemate_inbound and must not call the library; it should
 * set a timer.
 */
typedef void (*casemate_wake_fn)(void *context);

/* Callbacks of IKE. */
struct casemate_ike_callbacks {
    casemate_source_fn source; /* may be null: then connections must have a local address */
    casemate_wake_fn wake;     /* may be null: then casemate_ike_due must be called after each packet */
    void *context;             /* may be null */
};

/*
 * A UDP payload with its addresses. On port 4500 it includes the four zero bytes that distinguish IKE from
 * ESP.
 */
struct casemate_datagram {
    struct casemate_address local;
    struct casemate_address remote;
    uint16_t local_port;
    uint16_t remote_port;
    uint8_t *data; /* of a received datagram: the contents are changed */
    size_t bytes;
};

struct casemate_event {
    uint32_t kind; /* CASEMATE_EVENT_IKE_UP, ... */
    char connection[CASEMATE_NAME_BYTES];
    char child[CASEMATE_NAME_BYTES];    /* empty for an event of the IKE SA */
    char reason[CASEMATE_REASON_BYTES]; /* in English; empty if there is no error */
};

struct casemate_ike_counts {
    uint32_t ike_sas;     /* including half-open ones */
    uint32_t half_open;   /* initiated by peers that are not authenticated yet */
    uint32_t child_sas;
    uint32_t lost_events; /* the queue holds 8 events; a new event overwrites the oldest */
    uint64_t refused;     /* messages and timers refused because of low memory */
};

/* Sets the callbacks. Without them IKE works as far as neither is needed. */
int32_t casemate_ike_set_callbacks(struct casemate_host *host, const struct casemate_ike_callbacks *callbacks);

/*
 * Sets the time of day in seconds since 1970, valid at the time now. May be called again with a more
 * accurate time. Only certificates need it: before the first call none is valid, and peers with
 * certificates are refused.
 */
int32_t casemate_ike_clock(struct casemate_host *host, uint64_t unix_seconds, uint64_t now);

/*
 * Adds a connection, installs traps for CASEMATE_START_ON_TRAFFIC, and starts what is to start at once.
 * Returns CASEMATE_ERR_FULL if the tables have no room for IKE SAs or for the policies of the traps.
 */
int32_t casemate_add_connection(struct casemate_host *host, const struct casemate_connection *connection,
                                uint64_t now);

/* Removes the connection with this name, and closes its SAs. */
int32_t casemate_remove_connection(struct casemate_host *host, const char *name, uint64_t now);

/*
 * Initiates an IKE SA ("connection"), or a Child SA with its IKE SA ("connection/child"). Events report the
 * result.
 */
int32_t casemate_initiate(struct casemate_host *host, const char *name, uint64_t now);

/* Closes the IKE SAs of a connection with their Child SAs, or the Child SAs of "connection/child". */
int32_t casemate_terminate(struct casemate_host *host, const char *name, uint64_t now);

/* Rekeys these SAs before their time. */
int32_t casemate_rekey(struct casemate_host *host, const char *name, uint64_t now);

/* Stores the number of Child SAs of "connection" or "connection/child". */
int32_t casemate_child_sas(const struct casemate_host *host, const char *name, size_t *count);

/* Processes a datagram received on port 500 or 4500. Datagrams that are not IKE are ignored. */
int32_t casemate_ike_receive(struct casemate_host *host, const struct casemate_datagram *datagram,
                             uint64_t now);

/* Runs timers: retransmission, rekeying, dead peer detection. */
int32_t casemate_ike_serve(struct casemate_host *host, uint64_t now);

/*
 * Stores the time of the next casemate_ike_serve call, which may be in the past. CASEMATE_ERR_ABSENT: no
 * timer.
 */
int32_t casemate_ike_due(const struct casemate_host *host, uint64_t *due);

/*
 * Stores the next datagram to send, or returns CASEMATE_ERR_ABSENT. The data belongs to the library and is
 * valid until the next call of this function. A datagram that cannot be sent may be lost.
 */
int32_t casemate_ike_transmit(struct casemate_host *host, struct casemate_datagram *datagram);

/* Stores the oldest unread event, or returns CASEMATE_ERR_ABSENT. */
int32_t casemate_ike_event(struct casemate_host *host, struct casemate_event *event);

/* Stores the counters. */
int32_t casemate_ike_count(const struct casemate_host *host, struct casemate_ike_counts *counts);

/* Returns name and counter of the peers' protocol fault number `index`, like casemate_drops. */
int32_t casemate_ike_faults(const struct casemate_host *host, size_t index, const char **name,
                            size_t *name_bytes, uint64_t *count);

#ifdef __cplusplus
}
#endif

#endif
