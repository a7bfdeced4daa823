/* options.h - the command line. */
#ifndef EXAMPLE_OPTIONS_H
#define EXAMPLE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

struct options {
    const char *config; /* a file, or NULL */
    const char *tap;    /* one of three: a TAP interface, a descriptor, or a Unix socket with its peer */
    int fd;
    const char *own;
    const char *peer;
    uint8_t mac[6];
    uint16_t mtu;
    size_t memory; /* memory for Casemate in bytes */
    int is_below;  /* placement below IP */
    int is_plain;  /* without Casemate */
    int has_console;
};

/* Parses the command line. Returns 0 to continue, otherwise exit status + 1: after --help or an error. */
int options_read(struct options *options, int argc, char **argv);

#endif
