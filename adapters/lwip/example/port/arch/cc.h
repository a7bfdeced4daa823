/* lwIP's platform definitions: a host with a C library. */
#ifndef EXAMPLE_CC_H
#define EXAMPLE_CC_H

#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>

#define LWIP_TIMEVAL_PRIVATE 0
#define LWIP_ERRNO_STDINCLUDE 1

/* Aborts the program, so that a failed assertion of lwIP fails a test. */
#define LWIP_PLATFORM_ASSERT(text) \
    do { fprintf(stderr, "lwIP: %s (%s:%d)\n", text, __FILE__, __LINE__); abort(); } while (0)
#define LWIP_PLATFORM_DIAG(text) do { printf text; } while (0)
#define LWIP_RAND() ((u32_t)rand())

/* State of SYS_ARCH_PROTECT, for builds with threads. */
typedef unsigned int sys_prot_t;

#endif
