/* wire.c - see wire.h. */

#include "wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "lwip/etharp.h"
#include "lwip/ethip6.h"
#include "lwip/pbuf.h"
#include "netif/ethernet.h"

#define FRAME 1514
#define BURST 64

static int wire = -1;

static int address(struct sockaddr_un *out, const char *path)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(out->sun_path)) {
        return -1;
    }
    strcpy(out->sun_path, path);
    return 0;
}

int wire_open(const char *own, const char *peer)
{
    struct sockaddr_un here, there;
    wire = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (wire < 0 || address(&here, own) != 0 || address(&there, peer) != 0
        || bind(wire, (struct sockaddr *)&here, sizeof(here)) != 0
        || connect(wire, (struct sockaddr *)&there, sizeof(there)) != 0) {
        return -1;
    }
    return wire;
}

static err_t transmit(struct netif *netif, struct pbuf *p)
{
    u8_t frame[ETH_PAD_SIZE + FRAME];
    struct pollfd room = { wire, POLLOUT, 0 };
    LWIP_UNUSED_ARG(netif);
    if (p->tot_len > sizeof(frame)) {
        fprintf(stderr, "a frame of %d bytes is too long for the wire\n", p->tot_len - ETH_PAD_SIZE);
        abort();
    }
    pbuf_copy_partial(p, frame, p->tot_len, 0);
    while (send(wire, frame + ETH_PAD_SIZE, p->tot_len - ETH_PAD_SIZE, 0) < 0) {
        /* The other end reads all the time, if it is there. */
        if ((errno != EAGAIN && errno != ENOBUFS) || poll(&room, 1, 5000) <= 0) {
            return ERR_IF;
        }
    }
    return ERR_OK;
}

err_t wire_netif(struct netif *netif)
{
    static const u8_t own[] = { 2, 0, 0, 0, 0, 2 };
    memcpy(netif->hwaddr, own, sizeof(own));
    netif->hwaddr_len = sizeof(own);
    netif->name[0] = 'e';
    netif->name[1] = 'n';
    netif->mtu = 1500;
    netif->flags |= NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_MLD6 | NETIF_FLAG_LINK_UP;
    netif->output = etharp_output;
    netif->output_ip6 = ethip6_output;
    netif->linkoutput = transmit;
    return ERR_OK;
}

void wire_poll(struct netif *netif)
{
    static unsigned turn;
    u8_t frame[ETH_PAD_SIZE + FRAME];
    int left;
    for (left = BURST; left > 0; left--) {
        ssize_t len = recv(wire, frame + ETH_PAD_SIZE, FRAME, 0);
        struct pbuf *p;
        if (len < 0) {
            return;
        }
        /* In one piece and in chains by turns. */
        p = pbuf_alloc(PBUF_RAW, (u16_t)(len + ETH_PAD_SIZE), turn++ % 2 == 0 ? PBUF_RAM : PBUF_POOL);
        if (p == NULL) {
            continue;
        }
        pbuf_take(p, frame, (u16_t)(len + ETH_PAD_SIZE));
        if (netif->input(p, netif) != ERR_OK) {
            pbuf_free(p);
        }
    }
}
