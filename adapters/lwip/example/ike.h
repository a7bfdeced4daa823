/* ike.h - IKE connections from configuration lines, and IKE commands. */
#ifndef EXAMPLE_IKE_H
#define EXAMPLE_IKE_H

#include "casemate_lwip_ike.h"
#include "words.h"

/* Checks a configuration line that begins with `ike`; an error is stored in the words. */
void ike_check(struct words *words);

/* Adds the connection that a line describes. Returns 0, or -1 with a message in error. */
int ike_add(const char *line, char *error, size_t room);

/* Starts IKE for this host and stops it for the previous one; NULL for no host. */
err_t ike_use(struct casemate_host *host);

/* Executes an IKE command and prints the response. Returns 0 for any other command. */
int ike_command(struct casemate_host *host, char **words, int count);

/* Help texts about the configuration and the commands. */
extern const char ike_config_help[];
extern const char ike_console_help[];

#endif
