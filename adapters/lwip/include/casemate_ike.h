/*
 * casemate_ike.h - IKEv2 (RFC 7296) for a host of casemate.h: connections in, SAs and policies of their own accord.
 *
 * The application moves UDP datagrams of ports 500 and 4500 (casemate_lwip_ike.c does it in lwIP):
 *
 *   datagram came --> casemate_ike_receive --+
 *   it is due -----> casemate_ike_serve -----+--> casemate_ike_transmit, until it has none: send them
 *   command -------> casemate_initiate, ... -+--> casemate_ike_event, until it has none: look what happened
 *
 * The rules of casemate.h on threads, ownership, memory and answers hold here too. Strings end with 0, are copied, and may be
 * null where it is said. A function that could need memory looks first whether there is enough for the worst that it may have
 * to do; if not, it answers CASEMATE_ERR_MEMORY, nothing is done, and casemate_ike_counts has one more in refused. A message
 * that is refused so comes again, for peers repeat what is not answered.
 */
#ifndef CASEMATE_IKE_H
#define CASEMATE_IKE_H

#include "casemate.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Room for names and reasons, with the 0 at the end. */
#define CASEMATE_NAME_BYTES 32
#define CASEMATE_REASON_BYTES 96

/* How one side proves who it is. */
#define CASEMATE_SHARED_KEY 1
#define CASEMATE_RAW_KEY 2    /* a signature with a key that the peer was given beforehand (RFC 7427) */
#define CASEMATE_CERTIFICATE 3 /* a signature with the key of an X.509 certificate */

/* When a Child SA is set up, beside by casemate_initiate and by the peer. */
#define CASEMATE_START_AT_ONCE 1
#define CASEMATE_START_ON_TRAFFIC 2

/* What happened. */
#define CASEMATE_EVENT_IKE_UP 1
#define CASEMATE_EVENT_IKE_REKEYED 2
#define CASEMATE_EVENT_IKE_DOWN 3 /* it ended, or was not established: reason says why */
#define CASEMATE_EVENT_CHILD_UP 4
#define CASEMATE_EVENT_CHILD_REKEYED 5
#define CASEMATE_EVENT_CHILD_DOWN 6 /* it ended, or was not set up: reason says why */
#define CASEMATE_EVENT_NOT_BEGUN 7  /* what was due could not be begun: reason says why */

/* Bytes of the caller's; data may be null if there are none. */
struct casemate_bytes {
    const uint8_t *data;
    size_t bytes;
};

/*
 * A Child SA that there may be. Proposals are spelled as in swanctl.conf(5), with commas between: "aes128gcm16-x25519,
 * aes256-sha256"; for AH "sha256". Traffic is "dynamic" (the ends of the IKE SA), "10.1.0.0/16", "10.0.0.1-10.0.0.9[tcp/443]", with
 * commas between.
 */
struct casemate_child {
    const char *name;           /* 1 to 31 bytes without '/', unique in its connection */
    const char *proposals;      /* null: AES-GCM, ChaCha20-Poly1305, then AES-CBC with HMAC-SHA-2; for AH HMAC-SHA-2 */
    const char *local_traffic;  /* null: dynamic */
    const char *remote_traffic; /* null: dynamic */
    uint32_t protocol;          /* CASEMATE_ESP or CASEMATE_AH */
    uint32_t mode;              /* CASEMATE_TRANSPORT or CASEMATE_TUNNEL */
    uint32_t start;             /* CASEMATE_START_AT_ONCE, CASEMATE_START_ON_TRAFFIC, both added, or 0 */
    uint32_t restart;           /* 1: set up again when the peer closes it or dies; or 0 */
    uint32_t replay_window;     /* packets */
    uint32_t rekey_seconds;     /* it is rekeyed up to a tenth earlier, and ends a tenth later; 0 is never */
    uint64_t rekey_bytes;       /* likewise, by volume; 0 is never */
};

/*
 * A connection. Identities are spelled as in swanctl.conf(5): "a.example.org", "carol@example.org", "192.0.2.1",
 * "C=CH, CN=moon", "keyid:#0102", and for peers "*.example.org" or "%any". Keys and certificates are PEM, or DER; of
 * several certificates in DER one stands behind the other. RSA keys of peers may have up to 4096 bits.
 */
struct casemate_connection {
    const char *name;                   /* 1 to 31 bytes without '/', unique */
    struct casemate_address local;      /* version 0: any; casemate_source_fn chooses */
    struct casemate_address remote;     /* version 0: any; then the peer has to begin */
    const char *proposals;              /* null: AES-GCM, ChaCha20-Poly1305, then AES-CBC; HMAC-SHA-2; X25519, P-256, P-384 */
    const char *local_id;               /* null: the subject of the certificate, or our address */
    const char *remote_id;              /* null: any, so that the proof alone decides */
    uint32_t local_auth;                /* CASEMATE_SHARED_KEY, CASEMATE_RAW_KEY or CASEMATE_CERTIFICATE */
    uint32_t remote_auth;               /* likewise; it may be another */
    struct casemate_bytes shared_key;   /* for CASEMATE_SHARED_KEY */
    struct casemate_bytes private_key;  /* ours, for the others: PKCS #8, RFC 5915 or RFC 8017 */
    struct casemate_bytes certificates; /* ours, then CAs that are sent with it; for CASEMATE_CERTIFICATE */
    struct casemate_bytes peer_key;     /* the peer's, SubjectPublicKeyInfo; for CASEMATE_RAW_KEY */
    struct casemate_bytes authorities;  /* CAs that the peer's certificate must lead to; for CASEMATE_CERTIFICATE */
    uint32_t dpd_seconds;               /* silence after which the peer is asked whether it lives; 0 is never */
    uint32_t rekey_seconds;             /* as for a child */
    uint32_t tries;                     /* sequences of 7 requests in 2 minutes to a peer that is silent; 0 is without end */
    uint32_t force_encap;               /* 1: ESP in UDP even if no NAT was found; or 0 */
    const struct casemate_child *children;
    size_t child_count;                 /* at most 16 */
};

/* Tells our address on the way to remote: 1 if there is one, or 0. Must not call the library. */
typedef int32_t (*casemate_source_fn)(void *context, const struct casemate_address *remote, struct casemate_address *local);

/*
 * A packet showed that an SA is missing or worn out: casemate_ike_serve is to be called soon. It comes from within
 * casemate_outbound and casemate_inbound, and must not call the library; setting a timer is meant.
 */
typedef void (*casemate_wake_fn)(void *context);

/* What IKE asks of its surroundings. */
struct casemate_home {
    casemate_source_fn source; /* may be null: connections name their local address then */
    casemate_wake_fn wake;     /* may be null: then casemate_ike_due is to be asked after each packet */
    void *context;             /* may be null */
};

/* What is behind a UDP header. On port 4500 the four zeros that tell IKE from ESP are part of it. */
struct casemate_datagram {
    struct casemate_address local;
    struct casemate_address remote;
    uint16_t local_port;
    uint16_t remote_port;
    uint8_t *data; /* of a datagram that came: its contents are changed */
    size_t bytes;
};

struct casemate_event {
    uint32_t kind; /* CASEMATE_EVENT_IKE_UP, ... */
    char connection[CASEMATE_NAME_BYTES];
    char child[CASEMATE_NAME_BYTES];    /* empty where it is about the IKE SA */
    char reason[CASEMATE_REASON_BYTES]; /* in English; empty where nothing is wrong */
};

struct casemate_ike_counts {
    uint32_t ike_sas;     /* half-open ones included */
    uint32_t half_open;   /* of these, those that peers began and have not proved themselves in */
    uint32_t child_sas;
    uint32_t lost_events; /* 8 are kept until they are read; then the oldest goes */
    uint64_t refused;     /* messages, and work that was due, for which there was not memory enough */
};

/* Tells a host of its surroundings. Without it, IKE works as far as neither is needed. */
int32_t casemate_ike_home(struct casemate_host *host, const struct casemate_home *home);

/*
 * Tells the time of day, in seconds since 1970, at the time now; again whenever it is known better. Only certificates are judged
 * by it: until it is told, none is valid, and peers with certificates are refused. Shared and raw keys need no clock.
 */
int32_t casemate_ike_clock(struct casemate_host *host, uint64_t unix_seconds, uint64_t now);

/*
 * Adds a connection, sets traps for CASEMATE_START_ON_TRAFFIC, and begins what is to start at once. CASEMATE_ERR_FULL if the
 * tables have no room for IKE SAs, or none for the policies of the traps.
 */
int32_t casemate_add_connection(struct casemate_host *host, const struct casemate_connection *connection, uint64_t now);

/* Removes the connection of this name, and closes its SAs. */
int32_t casemate_remove_connection(struct casemate_host *host, const char *name, uint64_t now);

/* Sets up an IKE SA ("connection"), or a Child SA with the IKE SA that it needs ("connection/child"). Events tell how it went. */
int32_t casemate_initiate(struct casemate_host *host, const char *name, uint64_t now);

/* Closes the IKE SAs of a connection with all in them, or the Child SAs of "connection/child". */
int32_t casemate_terminate(struct casemate_host *host, const char *name, uint64_t now);

/* Rekeys them before it is due. */
int32_t casemate_rekey(struct casemate_host *host, const char *name, uint64_t now);

/* Tells how many Child SAs "connection" or "connection/child" has. */
int32_t casemate_child_sas(const struct casemate_host *host, const char *name, size_t *count);

/* Takes a datagram that came to port 500 or 4500. What is no IKE is ignored. */
int32_t casemate_ike_receive(struct casemate_host *host, const struct casemate_datagram *datagram, uint64_t now);

/* Does what is due: repeats requests, rekeys, asks the dead. */
int32_t casemate_ike_serve(struct casemate_host *host, uint64_t now);

/* Tells when casemate_ike_serve is to be called, which may be over already; CASEMATE_ERR_ABSENT if never, as things are. */
int32_t casemate_ike_due(const struct casemate_host *host, uint64_t *due);

/*
 * Gives the next datagram to be sent; CASEMATE_ERR_ABSENT if there is none. Its data is the library's, and good until the next
 * call of this function. Datagrams that cannot be sent may be lost.
 */
int32_t casemate_ike_transmit(struct casemate_host *host, struct casemate_datagram *datagram);

/* Gives the oldest event that was not read; CASEMATE_ERR_ABSENT if there is none. */
int32_t casemate_ike_event(struct casemate_host *host, struct casemate_event *event);

/* Counts. */
int32_t casemate_ike_count(const struct casemate_host *host, struct casemate_ike_counts *counts);

/* Tells how often peers broke rule number index, from 0 on until CASEMATE_ERR_ABSENT; as casemate_drops does. */
int32_t casemate_ike_faults(const struct casemate_host *host, size_t index, const char **name, size_t *name_bytes, uint64_t *count);

#ifdef __cplusplus
}
#endif

#endif
