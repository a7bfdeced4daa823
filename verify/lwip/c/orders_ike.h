/* orders_ike.h - connections and what is done with them, a line each. */
#ifndef CASEMATE_TEST_ORDERS_IKE_H
#define CASEMATE_TEST_ORDERS_IKE_H

#include "casemate_lwip_ike.h"

/* Milliseconds by which the clock goes before the computer's: the order `later` lets time pass. */
extern u32_t ike_later;

/* Lets IKE work. */
err_t ike_open(struct casemate_host *host);

/* Closes it. */
void ike_close(void);

/*
 * Obeys an order and answers it; 0 if it is none of these:
 *   connection NAME WORD=VALUE...   adds one; the words are in orders_ike.c
 *   remove | initiate | terminate | rekey NAME
 *   children NAME                   how many Child SAs
 *   events                          what happened since the last time
 *   ike                             counts
 *   faults                          what peers did wrong
 *   clock SECONDS                   the time of day, since 1970
 *   later MILLISECONDS              time passes
 */
int obey_ike(struct casemate_host *host, char **words, int count);

#endif
