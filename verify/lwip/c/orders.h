/* orders.h - SAs, policies and jobs, a line each. */
#ifndef CASEMATE_TEST_ORDERS_H
#define CASEMATE_TEST_ORDERS_H

#include "casemate_lwip.h"

/* Obeys a line and answers it on standard output: "0 ..." if it went well, else "1 ...". Jobs answer when they are done. */
void obey(struct casemate_host *host, struct netif *netif, char *line);

/* Says how an order went. */
void answer(int failed, const char *text);

#endif
