/* words.h - a line of text as words, read one by one; what is wrong is told once, with what was expected. */
#ifndef EXAMPLE_WORDS_H
#define EXAMPLE_WORDS_H

#include <stddef.h>

#include "casemate.h"

#define WORDS_MOST 48

struct words {
    char *word[WORDS_MOST];
    int count;
    int at;
    char error[200]; /* empty as long as nothing is wrong */
};

/* Cuts a line at blanks; what follows a '#' is a comment. The line is changed, and has to live as long as the words. */
void words_split(struct words *words, char *line);

/* The next word, or NULL at the end of the line. */
const char *words_next(struct words *words);

/* Whether the next word is this one; then it is taken. */
int words_take(struct words *words, const char *word);

/* Tells that something else was expected at the word taken last, or at the end. Later complaints are not kept. */
void words_complain(struct words *words, const char *expected);

/* The next word as one of several that end with NULL: its number from 0 on. */
int words_one_of(struct words *words, const char *const *names, const char *expected);

/* The next word as a number, decimal or with 0x. */
uint64_t words_number(struct words *words, uint64_t least, uint64_t most, const char *expected);

/* The next word as an address. */
struct casemate_address words_address(struct words *words, const char *expected);

/* The next word as ADDRESS/LENGTH; the length of the address itself where it has none. */
struct casemate_address words_prefix(struct words *words, unsigned *length);

/* The next word as ADDRESS, ADDRESS/LENGTH or FIRST-LAST. */
void words_range(struct words *words, struct casemate_address *first, struct casemate_address *last);

/* The next word as bytes in hexadecimal digits, with or without 0x: how many. */
size_t words_bytes(struct words *words, uint8_t *out, size_t room);

/* The next word as an Ethernet address. */
void words_mac(struct words *words, uint8_t out[6]);

#endif
