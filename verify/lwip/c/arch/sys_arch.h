/* Threads as lwIP wants them declared: for builds that are compiled and not run. */
#ifndef CASEMATE_TEST_SYS_ARCH_H
#define CASEMATE_TEST_SYS_ARCH_H

typedef void *sys_sem_t;
typedef void *sys_mutex_t;
typedef void *sys_mbox_t;
typedef void *sys_thread_t;
typedef int sys_prot_t;

#endif
