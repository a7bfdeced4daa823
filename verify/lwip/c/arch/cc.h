/* What lwIP wants to know of the machine: a host with a C library. */
#ifndef CASEMATE_TEST_CC_H
#define CASEMATE_TEST_CC_H

#include <stdio.h>
#include <stdlib.h>

/* A failed assertion of lwIP's fails the test. */
#define LWIP_PLATFORM_ASSERT(text) do { fprintf(stderr, "lwIP: %s (%s:%d)\n", text, __FILE__, __LINE__); abort(); } while (0)
#define LWIP_PLATFORM_DIAG(text) do { printf text; } while (0)
#define LWIP_RAND() ((u32_t)rand())

#endif
