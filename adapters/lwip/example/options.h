/* options.h - the command line. */
#ifndef EXAMPLE_OPTIONS_H
#define EXAMPLE_OPTIONS_H

#include <stddef.h>
#include <stdint.h>

struct options {
    const char *config; /* a file, or NULL */
    const char *tap;    /* one of these three: a TAP interface, a descriptor, or a Unix socket and its peer's */
    int fd;
    const char *own;
    const char *peer;
    uint8_t mac[6];
    uint16_t mtu;
    size_t memory; /* bytes for Casemate */
    int is_below;  /* the placement */
    int is_plain;  /* without Casemate */
    int has_console;
};

/* Reads the command line. 0, or the exit status + 1 if that was all: --help was asked for, or something is wrong. */
int options_read(struct options *options, int argc, char **argv);

#endif
