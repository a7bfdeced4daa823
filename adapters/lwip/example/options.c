/* options.c - see options.h. */

#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "console.h"
#include "ike.h"
#include "words.h"

#define MEMORY_MAX 64000000

static const char usage[] =
    "lwIP on an Ethernet interface of its own, protected by Casemate. It answers pings and has an echo "
    "service (UDP and\n"
    "TCP, port 7), lwIP's web server (port 80) and lwIP's iperf server (port 5001).\n"
    "\n"
    "Usage: casemate-lwip --config FILE (--tap NAME | --fd N | --unix OWN PEER) [OPTION...]\n"
    "\n"
    "  --config FILE      addresses, SAs and policies; the syntax is below\n"
    "  --tap NAME         send frames through this TAP interface; it is created if it does not exist\n"
    "  --fd N             send frames through this inherited descriptor, such as a packet socket\n"
    "  --unix OWN PEER    send frames as datagrams between Unix sockets with these paths\n"
    "  --mac MAC          address of the interface; default 02:00:00:00:00:02\n"
    "  --mtu N            MTU of the interface, 576 to 9000; default 1500\n"
    "  --below            protect packets below IP (in front of the driver), not inside IP\n"
    "  --plain            without Casemate, for comparison\n"
    "  --memory N         memory for Casemate in bytes; default 4000000\n"
    "  --console          read commands from standard input, and exit at its end\n"
    "  --help             print this text\n"
    "\n";

static const char example[] =
    "\n"
    "A host with address 192.0.2.2 that communicates with 192.0.2.1 only through ESP:\n"
    "  address 192.0.2.2/24\n"
    "  control-plane\n"
    "  sa in esp transport src 192.0.2.1 dst 192.0.2.2 spi 0x1001 suite aes128gcm16 encryption-key 0x...40 "
    "digits window 64\n"
    "  sa out esp transport src 192.0.2.2 dst 192.0.2.1 spi 0x1002 suite aes128gcm16 encryption-key 0x...40 "
    "other digits\n"
    "  policy in src 192.0.2.1 dst 192.0.2.2 priority 10 protect esp transport\n"
    "  policy out src 192.0.2.2 dst 192.0.2.1 priority 10 protect esp transport\n"
    "docs/manual/lwip.md shows how to run it in a network namespace.\n";

/* Parses the next word as a number. */
static uint64_t number(struct words *words, uint64_t min, uint64_t max, const char *expected)
{
    return words_number(words, min, max, expected);
}

static const char *text(struct words *words, const char *expected)
{
    const char *word = words_next(words);
    if (word == NULL) {
        words_expected(words, expected);
    }
    return word;
}

static void read_option(struct options *options, struct words *words)
{
    if (words_accept(words, "--config")) {
        options->config = text(words, "a file");
    } else if (words_accept(words, "--tap")) {
        options->tap = text(words, "the name of an interface");
    } else if (words_accept(words, "--fd")) {
        options->fd = (int)number(words, 0, 65535, "the number of a descriptor");
    } else if (words_accept(words, "--unix")) {
        options->own = text(words, "the paths of two sockets");
        options->peer = text(words, "the paths of two sockets");
    } else if (words_accept(words, "--mac")) {
        words_mac(words, options->mac);
    } else if (words_accept(words, "--mtu")) {
        options->mtu = (uint16_t)number(words, 576, 9000, "a number from 576 to 9000");
    } else if (words_accept(words, "--memory")) {
        options->memory = (size_t)number(words, 0, MEMORY_MAX, "a number up to 64000000");
    } else if (words_accept(words, "--below")) {
        options->is_below = 1;
    } else if (words_accept(words, "--plain")) {
        options->is_plain = 1;
    } else if (words_accept(words, "--console")) {
        options->has_console = 1;
    } else {
        words_next(words);
        words_expected(words, "an option (--help lists them)");
    }
}

static int help(void)
{
    printf("%s%s%s\n%s%s%s", usage, config_help, ike_config_help, console_help, ike_console_help, example);
    return 1;
}

int options_read(struct options *options, int argc, char **argv)
{
    static const uint8_t mac[6] = { 2, 0, 0, 0, 0, 2 };
    struct words words;
    memset(options, 0, sizeof(*options));
    memset(&words, 0, sizeof(words));
    memcpy(options->mac, mac, sizeof(mac));
    options->fd = -1;
    options->mtu = 1500;
    options->memory = 4000000;
    for (int at = 1; at < argc && words.count < WORDS_MAX; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            return help();
        }
        words.word[words.count++] = argv[at];
    }
    while (words.error[0] == 0 && words.at < words.count) {
        read_option(options, &words);
    }
    if (words.error[0] == 0 && (options->tap != NULL) + (options->fd >= 0) + (options->own != NULL) != 1) {
        words.at = 0;
        words_expected(&words, "one of --tap, --fd and --unix (see --help)");
    }
    if (words.error[0] != 0) {
        fprintf(stderr, "casemate-lwip: %s\n", words.error);
        return 3;
    }
    return 0;
}
