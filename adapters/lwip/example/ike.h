/* ike.h - connections of IKE from words, and what is done with them. */
#ifndef EXAMPLE_IKE_H
#define EXAMPLE_IKE_H

#include "casemate_lwip_ike.h"
#include "words.h"

/* Words of a configuration that begin with `ike`: reads them, and says in them what is wrong. */
void ike_check(struct words *words);

/* Adds the connection that a line describes. 0, or -1 with what is wrong in error. */
int ike_add(const char *line, char *error, size_t room);

/* Lets IKE work for this host from now on, and for no other; NULL is none. */
err_t ike_use(struct casemate_host *host);

/* Obeys an order and answers it; 0 if it is none of IKE's. */
int ike_obey(struct casemate_host *host, char **words, int count);

/* What --help says of the configuration and of the orders. */
extern const char ike_config_help[];
extern const char ike_console_help[];

#endif
