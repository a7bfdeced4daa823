/* setup.c - see setup.h. */

#include "setup.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "ike.h"
#include "link.h"

/* Default table sizes if there are connections. */
#define IKE_SAS 4
#define IKE_CHILDREN 2

static void fill(void *context, uint8_t *out, size_t bytes)
{
    LWIP_UNUSED_ARG(context);
    if (getrandom(out, bytes, 0) != (ssize_t)bytes) {
        abort();
    }
}

/* Returns the last item of a kind, or NULL. */
static const struct item *last(const struct config *config, enum item_kind kind)
{
    const struct item *found = NULL;
    for (int at = 0; at < config->count; at++) {
        if (config->items[at].kind == kind) {
            found = &config->items[at];
        }
    }
    return found;
}

struct casemate_tables setup_tables(const struct config *config)
{
    const struct item *item = last(config, ITEM_TABLES);
    struct casemate_tables tables = item != NULL ? item->is.tables : config_tables;
    if (tables.ike_sas == 0 && last(config, ITEM_IKE) != NULL) {
        tables.ike_sas = IKE_SAS;
        tables.ike_children = IKE_CHILDREN;
    }
    return tables;
}

int setup_host(const struct config *config, u32_t mtu, struct casemate_host **host, char *error, size_t room)
{
    const struct item *unmatched = last(config, ITEM_UNMATCHED);
    struct casemate_setup setup;
    int32_t code;
    memset(&setup, 0, sizeof(setup));
    setup.tables = setup_tables(config);
    setup.mtu = mtu;
    setup.unmatched = unmatched != NULL ? unmatched->is.unmatched : CASEMATE_DISCARD;
    setup.random = fill;
    code = casemate_create(&setup, host);
    snprintf(error, room, "the tables: %s", casemate_strerror(code));
    return code == CASEMATE_OK ? 0 : -1;
}

void setup_link(const struct config *config, struct netif *netif)
{
    const struct item *neighbour = last(config, ITEM_NEIGHBOUR);
    if (neighbour != NULL) {
        link_set_neighbour(netif, neighbour->is.neighbour);
    }
}

static int32_t add_sa(struct item *item, struct casemate_host *host)
{
    struct item_sa *parts = &item->is.sa;
    parts->sa.suite = parts->suite;
    parts->sa.encryption_key = parts->encryption;
    parts->sa.integrity_key = parts->integrity;
    return casemate_add_sa(host, item->direction, &parts->sa, casemate_lwip_now());
}

int setup_item(struct item *item, struct casemate_host *host, struct netif *netif, char *error, size_t room)
{
    int32_t code = CASEMATE_OK;
    err_t err = ERR_OK;
    switch (item->kind) {
    case ITEM_ADDRESS:
        err = link_add_address(netif, &item->is.address.address, item->is.address.length);
        break;
    case ITEM_GATEWAY:
        link_set_gateway(netif, &item->is.gateway);
        break;
    case ITEM_VLAN:
        link_set_vlan(item->is.vlan);
        break;
    case ITEM_CONTROL_PLANE:
        code = casemate_bypass_control_plane(host);
        break;
    case ITEM_SA:
        code = add_sa(item, host);
        break;
    case ITEM_POLICY:
        code = casemate_add_policy(host, item->direction, &item->is.policy);
        break;
    case ITEM_IKE:
        return ike_add(item->is.ike, error, room);
    case ITEM_NONE:
    case ITEM_NEIGHBOUR:
    case ITEM_TABLES:
    case ITEM_UNMATCHED:
        break;
    }
    if (err != ERR_OK) {
        snprintf(error, room, "lwIP has no room for another address (lwIP error %d)", err);
        return -1;
    }
    snprintf(error, room, "%s", casemate_strerror(code));
    return code == CASEMATE_OK ? 0 : -1;
}

int setup_items(struct config *config, struct casemate_host *host, struct netif *netif, char *error,
                size_t room)
{
    char what[160];
    for (int at = 0; at < config->count; at++) {
        if (setup_item(&config->items[at], host, netif, what, sizeof(what)) != 0) {
            snprintf(error, room, "line %d: %s", config->items[at].line, what);
            return -1;
        }
    }
    return 0;
}
