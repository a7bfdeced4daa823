/* words.h - parses a line word by word; the first error is stored with what was expected. */
#ifndef EXAMPLE_WORDS_H
#define EXAMPLE_WORDS_H

#include <stddef.h>

#include "casemate.h"

#define WORDS_MAX 48

struct words {
    char *word[WORDS_MAX];
    int count;
    int at;
    char error[200]; /* empty if there is no error */
};

/* Splits a line at blanks; '#' starts a comment. Modifies the line, which must outlive the words. */
void words_split(struct words *words, char *line);

/* Returns the next word, or NULL at the end of the line. */
const char *words_next(struct words *words);

/* Consumes the next word if it equals `word`. Returns whether it did. */
int words_accept(struct words *words, const char *word);

/* Stores an error for the last consumed word, or for the end of the line. Later errors are ignored. */
void words_expected(struct words *words, const char *expected);

/* Consumes the next word, one of a NULL-terminated list. Returns its index. */
int words_one_of(struct words *words, const char *const *names, const char *expected);

/* Consumes a number, decimal or with 0x. */
uint64_t words_number(struct words *words, uint64_t min, uint64_t max, const char *expected);

/* Consumes an address. */
struct casemate_address words_address(struct words *words, const char *expected);

/* Consumes ADDRESS/LENGTH; without a length it is the length of the address. */
struct casemate_address words_prefix(struct words *words, unsigned *length);

/* Consumes ADDRESS, ADDRESS/LENGTH or FIRST-LAST. */
void words_range(struct words *words, struct casemate_address *first, struct casemate_address *last);

/* Consumes hexadecimal digits with or without 0x. Returns the number of bytes. */
size_t words_bytes(struct words *words, uint8_t *out, size_t room);

/* Consumes an Ethernet address. */
void words_mac(struct words *words, uint8_t out[6]);

#endif
