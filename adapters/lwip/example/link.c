/* link.c - see link.h. */

#include "link.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "lwip/etharp.h"
#include "lwip/ethip6.h"
#include "lwip/ip.h"
#include "netif/ethernet.h"

#if !NO_SYS
#include "lwip/tcpip.h"
#define IP_INPUT tcpip_input
#else
#define IP_INPUT ip_input
#endif

/* Maximum frame length, and maximum number of frames read at once. */
#define FRAME 9018
#define BURST 64
/* Time that a frame waits for room at the other end. */
#define PATIENCE_MS 5000
/* Maximum number of additional IPv4 addresses. */
#define MAX_INNER_NETIFS 3

static int link_fd = -1;
static unsigned long long bytes_written;
/* Peer address of a Unix socket. */
static struct sockaddr_un other_end;
static u16_t link_mtu;
static struct eth_addr neighbour;
static ip6_addr_t gateway6;

int link_open_tap(const char *name)
{
    struct ifreq request;
    int fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    memset(&request, 0, sizeof(request));
    request.ifr_flags = IFF_TAP | IFF_NO_PI;
    if (fd < 0) {
        return -1;
    }
    if (strlen(name) >= sizeof(request.ifr_name)) {
        errno = ENAMETOOLONG;
    } else {
        strcpy(request.ifr_name, name);
        if (ioctl(fd, TUNSETIFF, &request) == 0) {
            return fd;
        }
    }
    close(fd);
    return -1;
}

static int path_address(struct sockaddr_un *out, const char *path)
{
    memset(out, 0, sizeof(*out));
    out->sun_family = AF_UNIX;
    if (strlen(path) >= sizeof(out->sun_path)) {
        errno = ENAMETOOLONG;
        return -1;
    }
    strcpy(out->sun_path, path);
    return 0;
}

int link_open_unix(const char *own, const char *peer)
{
    struct sockaddr_un here;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || path_address(&here, own) != 0 || path_address(&other_end, peer) != 0
        || bind(fd, (struct sockaddr *)&here, sizeof(here)) != 0) {
        return -1;
    }
    /* The peer may not exist yet: then the first frame connects. */
    (void)connect(fd, (struct sockaddr *)&other_end, sizeof(other_end));
    return fd;
}

/* Returns whether there is room for a frame, or becomes available in time. */
static int has_room(void)
{
    struct pollfd room = { link_fd, POLLOUT, 0 };
    if (errno == ENOTCONN) {
        /* The peer of a Unix socket may start later than this program. */
        return connect(link_fd, (struct sockaddr *)&other_end, sizeof(other_end)) == 0;
    }
    /* A running peer reads all the time. */
    return (errno == EAGAIN || errno == ENOBUFS) && poll(&room, 1, PATIENCE_MS) > 0;
}

/* Sends a frame. */
static err_t transmit(struct netif *netif, struct pbuf *p)
{
    u8_t frame[ETH_PAD_SIZE + FRAME];
    LWIP_UNUSED_ARG(netif);
    if (p->tot_len > SIZEOF_ETH_HDR + link_mtu) {
        fprintf(stderr, "a frame of %d bytes is too long for the link\n", p->tot_len - ETH_PAD_SIZE);
        abort();
    }
    pbuf_copy_partial(p, frame, p->tot_len, 0);
    while (write(link_fd, frame + ETH_PAD_SIZE, p->tot_len - ETH_PAD_SIZE) < 0) {
        if (!has_room()) {
            return ERR_IF;
        }
    }
    bytes_written += p->tot_len - ETH_PAD_SIZE;
    return ERR_OK;
}

unsigned long long link_written(void)
{
    return bytes_written;
}

static err_t link_init(struct netif *netif)
{
    netif->hwaddr_len = sizeof(neighbour.addr);
    netif->name[0] = 'e';
    netif->name[1] = 'n';
    netif->mtu = link_mtu;
    netif->flags |= NETIF_FLAG_BROADCAST | NETIF_FLAG_ETHARP | NETIF_FLAG_ETHERNET | NETIF_FLAG_MLD6
        | NETIF_FLAG_LINK_UP;
    netif->output = etharp_output;
    netif->output_ip6 = ethip6_output;
    netif->linkoutput = transmit;
    return ERR_OK;
}

err_t link_add(struct netif *netif, int fd, const u8_t mac[6], u16_t mtu, netif_input_fn input)
{
    link_fd = fd;
    link_mtu = mtu;
    memcpy(netif->hwaddr, mac, sizeof(neighbour.addr));
    if (netif_add(netif, NULL, NULL, NULL, NULL, link_init, input) == NULL) {
        return ERR_MEM;
    }
    netif_set_default(netif);
    return ERR_OK;
}

/* ---- fixed neighbour ---- */

static err_t output_to_neighbour(struct netif *netif, struct pbuf *p, const ip4_addr_t *target)
{
    LWIP_UNUSED_ARG(target);
    return ethernet_output(netif, p, (const struct eth_addr *)netif->hwaddr, &neighbour, ETHTYPE_IP);
}

static err_t output_to_neighbour_ip6(struct netif *netif, struct pbuf *p, const ip6_addr_t *target)
{
    LWIP_UNUSED_ARG(target);
    return ethernet_output(netif, p, (const struct eth_addr *)netif->hwaddr, &neighbour, ETHTYPE_IPV6);
}

void link_set_neighbour(struct netif *netif, const u8_t mac[6])
{
    memcpy(neighbour.addr, mac, sizeof(neighbour.addr));
    netif->output = output_to_neighbour;
    netif->output_ip6 = output_to_neighbour_ip6;
}

/* ---- addresses ---- */

static err_t reject_output(struct netif *netif, struct pbuf *p, const ip4_addr_t *target)
{
    LWIP_UNUSED_ARG(netif);
    LWIP_UNUSED_ARG(p);
    LWIP_UNUSED_ARG(target);
    return ERR_RTE;
}

static err_t inner_netif_init(struct netif *netif)
{
    netif->name[0] = 'i';
    netif->name[1] = 'n';
    netif->flags |= NETIF_FLAG_LINK_UP;
    netif->output = reject_output;
    return ERR_OK;
}

/* Adds another IPv4 address, on an interface that sends nothing. */
static err_t add_inner_netif(const ip4_addr_t *address)
{
    static struct netif inner_netifs[MAX_INNER_NETIFS];
    static int count;
    ip4_addr_t mask, none;
    IP4_ADDR(&mask, 255, 255, 255, 255);
    ip4_addr_set_any(&none);
    if (count == MAX_INNER_NETIFS
        || netif_add(&inner_netifs[count], address, &mask, &none, NULL, inner_netif_init, IP_INPUT) == NULL) {
        return ERR_MEM;
    }
    netif_set_up(&inner_netifs[count++]);
    return ERR_OK;
}

static ip4_addr_t netmask(unsigned length)
{
    ip4_addr_t mask;
    ip4_addr_set_u32(&mask, lwip_htonl(length == 0 ? 0 : 0xffffffffU << (32 - length)));
    return mask;
}

err_t link_add_address(struct netif *netif, const struct casemate_address *address, unsigned length)
{
    if (address->version == 6) {
        ip6_addr_t addr;
        s8_t index = -1;
        err_t err;
        memset(&addr, 0, sizeof(addr));
        memcpy(addr.addr, address->bytes, 16);
        err = netif_add_ip6_address(netif, &addr, &index);
        if (err == ERR_OK) {
            netif_ip6_addr_set_state(netif, index, IP6_ADDR_PREFERRED);
        }
        return err;
    } else {
        ip4_addr_t addr, mask = netmask(length);
        memcpy(&addr.addr, address->bytes, 4);
        if (!ip4_addr_isany(netif_ip4_addr(netif))) {
            return add_inner_netif(&addr);
        }
        netif_set_addr(netif, &addr, &mask, netif_ip4_gw(netif));
        return ERR_OK;
    }
}

void link_set_gateway(struct netif *netif, const struct casemate_address *address)
{
    if (address->version == 6) {
        memcpy(gateway6.addr, address->bytes, 16);
        ip6_addr_assign_zone(&gateway6, IP6_UNKNOWN, netif);
    } else {
        ip4_addr_t addr;
        memcpy(&addr.addr, address->bytes, 4);
        netif_set_gw(netif, &addr);
    }
}

/* lwIP learns IPv6 routers from router advertisements only; the hook adds a static one. */
const ip6_addr_t *example_gateway(struct netif *netif, const ip6_addr_t *target)
{
    LWIP_UNUSED_ARG(netif);
    LWIP_UNUSED_ARG(target);
    return ip6_addr_isany(&gateway6) ? NULL : &gateway6;
}

static s32_t tag = -1;

void link_set_vlan(int vlan)
{
    tag = vlan;
}

s32_t example_vlan(void)
{
    return tag;
}

/* ---- input ---- */

void link_poll(struct netif *netif)
{
    u8_t frame[ETH_PAD_SIZE + FRAME];
    int left;
    for (left = BURST; left > 0; left--) {
        ssize_t len = read(link_fd, frame + ETH_PAD_SIZE, FRAME);
        struct pbuf *p;
        if (len <= 0) {
            return;
        }
        p = pbuf_alloc(PBUF_RAW, (u16_t)(len + ETH_PAD_SIZE), PBUF_POOL);
        if (p == NULL) {
            continue;
        }
        pbuf_take(p, frame, (u16_t)(len + ETH_PAD_SIZE));
        if (netif->input(p, netif) != ERR_OK) {
            pbuf_free(p);
        }
    }
}
