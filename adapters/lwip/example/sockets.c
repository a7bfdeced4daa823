/* sockets.c - see sockets.h. */

#include "sockets.h"

#include "console.h"

#if NO_SYS

int sockets_start(void)
{
    return 0;
}

void sockets_get(const char *address)
{
    LWIP_UNUSED_ARG(address);
    console_respond(1, "this command needs a build with threads (NO_SYS 0)");
}

#else

#include <string.h>

#include "lwip/ip_addr.h"
#include "lwip/sockets.h"
#include "lwip/sys.h"

#define SERVER 8080
#define WEB 80
#define PAGE 3500
#define STACK 65536
#define PATIENCE_S 5

/* ---- server ---- */

/* Reads a request up to its empty line. Returns 0 if the connection ends before. */
static int read_request(int connection)
{
    char text[1024];
    size_t len = 0;
    while (len < sizeof(text) - 1) {
        ssize_t count = lwip_recv(connection, text + len, sizeof(text) - 1 - len, 0);
        if (count <= 0) {
            return 0;
        }
        len += (size_t)count;
        text[len] = 0;
        if (strstr(text, "\r\n\r\n") != NULL) {
            return 1;
        }
    }
    return 0;
}

static void serve(int connection)
{
    char page[PAGE];
    static const char head[] = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n";
    memset(page, 'x', sizeof(page));
    if (read_request(connection)) {
        lwip_send(connection, head, sizeof(head) - 1, 0);
        lwip_send(connection, page, sizeof(page), 0);
    }
    lwip_close(connection);
}

static int listener;

static void serve_all(void *arg)
{
    LWIP_UNUSED_ARG(arg);
    for (;;) {
        int connection = lwip_accept(listener, NULL, NULL);
        if (connection >= 0) {
            serve(connection);
        }
    }
}

int sockets_start(void)
{
    struct sockaddr_in6 any;
    listener = lwip_socket(AF_INET6, SOCK_STREAM, 0);
    memset(&any, 0, sizeof(any));
    any.sin6_family = AF_INET6;
    any.sin6_port = lwip_htons(SERVER);
    if (listener < 0 || lwip_bind(listener, (struct sockaddr *)&any, sizeof(any)) != 0
        || lwip_listen(listener, 4) != 0) {
        return -1;
    }
    sys_thread_new("page", serve_all, NULL, STACK, DEFAULT_THREAD_PRIO);
    return 0;
}

/* ---- client ---- */

static ip_addr_t target;

static int connect_to_target(void)
{
    struct sockaddr_storage to;
    struct timeval patience = { PATIENCE_S, 0 };
    int connection = lwip_socket(IP_IS_V6(&target) ? AF_INET6 : AF_INET, SOCK_STREAM, 0);
    memset(&to, 0, sizeof(to));
    if (IP_IS_V6(&target)) {
        struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&to;
        v6->sin6_family = AF_INET6;
        v6->sin6_port = lwip_htons(WEB);
        inet6_addr_from_ip6addr(&v6->sin6_addr, ip_2_ip6(&target));
    } else {
        struct sockaddr_in *v4 = (struct sockaddr_in *)&to;
        v4->sin_family = AF_INET;
        v4->sin_port = lwip_htons(WEB);
        inet_addr_from_ip4addr(&v4->sin_addr, ip_2_ip4(&target));
    }
    lwip_setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (lwip_connect(connection, (struct sockaddr *)&to, sizeof(to)) != 0) {
        lwip_close(connection);
        return -1;
    }
    return connection;
}

static void get(void *arg)
{
    static const char request[] = "GET / HTTP/1.0\r\n\r\n";
    char part[1024];
    int total = 0, connection = connect_to_target();
    ssize_t count;
    LWIP_UNUSED_ARG(arg);
    if (connection < 0) {
        console_respond(1, "the connection failed");
        return;
    }
    lwip_send(connection, request, sizeof(request) - 1, 0);
    while ((count = lwip_recv(connection, part, sizeof(part), 0)) > 0) {
        total += (int)count;
    }
    lwip_close(connection);
    console_respond(count < 0, "%d bytes", total);
}

void sockets_get(const char *address)
{
    if (!ipaddr_aton(address, &target)) {
        console_respond(1, "`%s`: expected an address", address);
        return;
    }
    sys_thread_new("get", get, NULL, STACK, DEFAULT_THREAD_PRIO);
}

#endif
