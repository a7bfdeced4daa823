/* orders.c - see orders.h. */

#include "orders.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "jobs.h"
#include "lwip/ip6_addr.h"
#include "lwip/netif.h"
#include "orders_ike.h"

#define KEY 128
#define WORDS 32

void answer(int failed, const char *text)
{
    printf("%d %s\n", failed, text);
    fflush(stdout);
}

static void answer_code(int32_t code)
{
    answer(code != CASEMATE_OK, casemate_strerror(code));
}

static struct casemate_address address(const char *text)
{
    struct casemate_address out;
    memset(&out, 0, sizeof(out));
    if (inet_pton(AF_INET, text, out.bytes) == 1) {
        out.version = 4;
    } else if (inet_pton(AF_INET6, text, out.bytes) == 1) {
        out.version = 6;
    }
    return out;
}

/* Bytes of a key in hexadecimal digits; "-" is none. */
static size_t key(const char *text, u8_t *out)
{
    size_t len = 0;
    unsigned byte;
    while (len < KEY && sscanf(text + 2 * len, "%2x", &byte) == 1) {
        out[len++] = (u8_t)byte;
    }
    return len;
}

static uint32_t direction(const char *word)
{
    return strcmp(word, "out") == 0 ? CASEMATE_OUT : CASEMATE_IN;
}

static uint32_t protocol(const char *word)
{
    return strcmp(word, "ah") == 0 ? CASEMATE_AH : CASEMATE_ESP;
}

static uint32_t mode(const char *word)
{
    return strcmp(word, "tunnel") == 0 ? CASEMATE_TUNNEL : CASEMATE_TRANSPORT;
}

/* sa DIRECTION PROTOCOL MODE SRC DST SPI SUITE KEY KEY PORT ESN WINDOW ALIGN8 */
static void add_sa(struct casemate_host *host, char **words)
{
    u8_t encryption[KEY], integrity[KEY];
    struct casemate_sa sa;
    memset(&sa, 0, sizeof(sa));
    sa.protocol = protocol(words[2]);
    sa.mode = mode(words[3]);
    sa.src = address(words[4]);
    sa.dst = address(words[5]);
    sa.spi = (uint32_t)strtoul(words[6], NULL, 0);
    sa.suite = words[7];
    sa.encryption_key = encryption;
    sa.encryption_key_bytes = key(words[8], encryption);
    sa.integrity_key = integrity;
    sa.integrity_key_bytes = key(words[9], integrity);
    sa.encap_src_port = sa.encap_dst_port = (uint16_t)atoi(words[10]);
    sa.esn = (uint32_t)atoi(words[11]);
    sa.replay_window = (uint32_t)atoi(words[12]);
    sa.ah_align8 = (uint32_t)atoi(words[13]);
    answer_code(casemate_add_sa(host, direction(words[1]), &sa, casemate_lwip_now()));
}

/* policy DIRECTION SRC-FIRST SRC-LAST DST-FIRST DST-LAST PRIORITY ACTION PROTOCOL MODE SA-SRC SA-DST */
static void add_policy(struct casemate_host *host, char **words)
{
    struct casemate_policy policy;
    memset(&policy, 0, sizeof(policy));
    policy.src_first = address(words[2]);
    policy.src_last = address(words[3]);
    policy.dst_first = address(words[4]);
    policy.dst_last = address(words[5]);
    policy.upper = -1;
    policy.src_port_last = policy.dst_port_last = 65535;
    policy.priority = (uint32_t)atoi(words[6]);
    policy.action = strcmp(words[7], "protect") == 0 ? CASEMATE_PROTECT
                  : strcmp(words[7], "bypass") == 0  ? CASEMATE_BYPASS
                                                     : CASEMATE_DISCARD;
    policy.protocol = protocol(words[8]);
    policy.mode = mode(words[9]);
    policy.sa_src = address(words[10]);
    policy.sa_dst = address(words[11]);
    answer_code(casemate_add_policy(host, direction(words[1]), &policy));
}

/* address ADDRESS: an IPv4 address on a link of 24 bits, or an IPv6 address. A second IPv4 address is on an interface of its own. */
static void add_address(struct netif *netif, char **words)
{
    static struct netif inside;
    static unsigned count_v4;
    ip_addr_t addr;
    ip4_addr_t mask;
    s8_t index = -1;
    if (!ipaddr_aton(words[1], &addr)) {
        answer(1, "that is no address");
    } else if (IP_IS_V6(&addr)) {
        err_t err = netif_add_ip6_address(netif, ip_2_ip6(&addr), &index);
        if (err == ERR_OK) {
            netif_ip6_addr_set_state(netif, index, IP6_ADDR_PREFERRED);
        }
        answer(err != ERR_OK, "address of IPv6");
    } else if (count_v4++ == 0) {
        IP4_ADDR(&mask, 255, 255, 255, 0);
        netif_set_addr(netif, ip_2_ip4(&addr), &mask, IP4_ADDR_ANY4);
        answer(0, "address of IPv4");
    } else {
        inside.next = netif_list;
        IP4_ADDR(&mask, 255, 255, 255, 255);
        ip_addr_set_ip4_u32_val(inside.ip_addr, ip4_addr_get_u32(ip_2_ip4(&addr)));
        ip_addr_set_ip4_u32_val(inside.netmask, ip4_addr_get_u32(&mask));
        inside.flags = NETIF_FLAG_UP | NETIF_FLAG_LINK_UP;
        inside.num = 77;
        netif_list = &inside;
        answer(0, "address of IPv4 inside");
    }
}

static void tell_drops(const struct casemate_host *host)
{
    const char *name;
    size_t index, len;
    uint64_t count;
    printf("0");
    for (index = 0; casemate_drops(host, index, &name, &len, &count) == CASEMATE_OK; index++) {
        if (count > 0) {
            printf(" %.*s=%llu", (int)len, name, (unsigned long long)count);
        }
    }
    printf("\n");
    fflush(stdout);
}

void obey(struct casemate_host *host, struct netif *netif, char *line)
{
    char *words[WORDS] = { NULL };
    char *next = strtok(line, " \n");
    int count = 0;
    while (next != NULL && count < WORDS) {
        words[count++] = next;
        next = strtok(NULL, " \n");
    }
    if (count == 14 && strcmp(words[0], "sa") == 0) {
        add_sa(host, words);
    } else if (count == 12 && strcmp(words[0], "policy") == 0) {
        add_policy(host, words);
    } else if (count == 2 && strcmp(words[0], "address") == 0) {
        add_address(netif, words);
    } else if (count == 1 && strcmp(words[0], "housekeeping") == 0) {
        answer_code(casemate_housekeeping(host));
    } else if (count == 1 && strcmp(words[0], "drops") == 0) {
        tell_drops(host);
    } else if (count == 1 && strcmp(words[0], "memory") == 0) {
        printf("0 %zu\n", casemate_memory_free());
        fflush(stdout);
    } else if (count == 5 && strcmp(words[0], "udp") == 0) {
        job_udp(words[1], words[2], atoi(words[3]), atoi(words[4]));
    } else if (count == 5 && strcmp(words[0], "tcp") == 0) {
        job_tcp(words[1], words[2], atoi(words[3]), atoi(words[4]));
    } else if (!obey_ike(host, words, count)) {
        answer(1, "that is no order");
    }
}
