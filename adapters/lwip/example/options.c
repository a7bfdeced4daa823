/* options.c - see options.h. */

#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "console.h"
#include "ike.h"
#include "words.h"

#define MEMORY_MOST 64000000

static const char usage[] =
    "lwIP on an Ethernet interface of its own, protected by Casemate: it answers pings, and has an echo service (UDP and TCP,\n"
    "port 7), lwIP's web server (port 80) and lwIP's iperf server (port 5001).\n"
    "\n"
    "Usage: casemate-lwip --config FILE (--tap NAME | --fd N | --unix OWN PEER) [OPTION...]\n"
    "\n"
    "  --config FILE      addresses, SAs and policies, as below\n"
    "  --tap NAME         frames through this TAP interface, which is made if it is not there\n"
    "  --fd N             frames through this descriptor of the program's, such as a packet socket\n"
    "  --unix OWN PEER    frames as datagrams between Unix sockets of these paths\n"
    "  --mac MAC          the interface's address; 02:00:00:00:00:02 unless told otherwise\n"
    "  --mtu N            its MTU, 576 to 9000; 1500 unless told otherwise\n"
    "  --below            protect below IP (in front of the driver), not inside of it\n"
    "  --plain            without Casemate, to compare\n"
    "  --memory N         bytes for Casemate; 4000000 unless told otherwise\n"
    "  --console          take orders from standard input, and end with it\n"
    "  --help             this text\n"
    "\n";

static const char example[] =
    "\n"
    "A host at 192.0.2.2 that speaks to 192.0.2.1 in ESP only:\n"
    "  address 192.0.2.2/24\n"
    "  housekeeping\n"
    "  sa in esp transport src 192.0.2.1 dst 192.0.2.2 spi 0x1001 suite aes128gcm16 encryption-key 0x...40 digits window 64\n"
    "  sa out esp transport src 192.0.2.2 dst 192.0.2.1 spi 0x1002 suite aes128gcm16 encryption-key 0x...40 other digits\n"
    "  policy in src 192.0.2.1 dst 192.0.2.2 priority 10 protect esp transport\n"
    "  policy out src 192.0.2.2 dst 192.0.2.1 priority 10 protect esp transport\n"
    "docs/manual/lwip.md tries it in a network namespace.\n";

/* The number of the next word, or a complaint. */
static uint64_t number(struct words *words, uint64_t least, uint64_t most, const char *expected)
{
    return words_number(words, least, most, expected);
}

static const char *text(struct words *words, const char *expected)
{
    const char *word = words_next(words);
    if (word == NULL) {
        words_complain(words, expected);
    }
    return word;
}

static void read_one(struct options *options, struct words *words)
{
    if (words_take(words, "--config")) {
        options->config = text(words, "a file");
    } else if (words_take(words, "--tap")) {
        options->tap = text(words, "the name of an interface");
    } else if (words_take(words, "--fd")) {
        options->fd = (int)number(words, 0, 65535, "the number of a descriptor");
    } else if (words_take(words, "--unix")) {
        options->own = text(words, "the paths of two sockets");
        options->peer = text(words, "the paths of two sockets");
    } else if (words_take(words, "--mac")) {
        words_mac(words, options->mac);
    } else if (words_take(words, "--mtu")) {
        options->mtu = (uint16_t)number(words, 576, 9000, "a number from 576 to 9000");
    } else if (words_take(words, "--memory")) {
        options->memory = (size_t)number(words, 0, MEMORY_MOST, "a number up to 64000000");
    } else if (words_take(words, "--below")) {
        options->is_below = 1;
    } else if (words_take(words, "--plain")) {
        options->is_plain = 1;
    } else if (words_take(words, "--console")) {
        options->has_console = 1;
    } else {
        words_next(words);
        words_complain(words, "an option (--help has them all)");
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
    for (int at = 1; at < argc && words.count < WORDS_MOST; at++) {
        if (strcmp(argv[at], "--help") == 0 || strcmp(argv[at], "-h") == 0) {
            return help();
        }
        words.word[words.count++] = argv[at];
    }
    while (words.error[0] == 0 && words.at < words.count) {
        read_one(options, &words);
    }
    if (words.error[0] == 0 && (options->tap != NULL) + (options->fd >= 0) + (options->own != NULL) != 1) {
        words.at = 0;
        words_complain(&words, "one of --tap, --fd and --unix (--help says more)");
    }
    if (words.error[0] != 0) {
        fprintf(stderr, "casemate-lwip: %s\n", words.error);
        return 3;
    }
    return 0;
}
