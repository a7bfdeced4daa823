/* words.c - see words.h. */

#include "words.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS "an address such as 192.0.2.1 or fd00::1"

void words_split(struct words *words, char *line)
{
    char *rest = line;
    memset(words, 0, sizeof(*words));
    line[strcspn(line, "#\r\n")] = 0;
    for (char *word; (word = strtok_r(rest, " \t", &rest)) != NULL;) {
        if (words->count == WORDS_MAX) {
            words_expected(words, "a shorter line");
            return;
        }
        words->word[words->count++] = word;
    }
}

const char *words_next(struct words *words)
{
    return words->at < words->count ? words->word[words->at++] : NULL;
}

int words_accept(struct words *words, const char *word)
{
    int is_it = words->at < words->count && strcmp(words->word[words->at], word) == 0;
    words->at += is_it;
    return is_it;
}

static void set_error(struct words *words, const char *word, const char *expected)
{
    if (words->error[0] == 0 && word != NULL) {
        snprintf(words->error, sizeof(words->error), "`%.40s`: expected %s", word, expected);
    } else if (words->error[0] == 0) {
        snprintf(words->error, sizeof(words->error), "the line ends: expected %s", expected);
    }
}

void words_expected(struct words *words, const char *expected)
{
    set_error(words, words->at > 0 ? words->word[words->at - 1] : NULL, expected);
}

int words_one_of(struct words *words, const char *const *names, const char *expected)
{
    const char *word = words_next(words);
    for (int at = 0; word != NULL && names[at] != NULL; at++) {
        if (strcmp(word, names[at]) == 0) {
            return at;
        }
    }
    set_error(words, word, expected);
    return 0;
}

uint64_t words_number(struct words *words, uint64_t min, uint64_t max, const char *expected)
{
    const char *word = words_next(words);
    char *end = NULL;
    uint64_t number = 0;
    if (word != NULL && isdigit((unsigned char)word[0])) {
        number = strtoull(word, &end, strncmp(word, "0x", 2) == 0 ? 16 : 10);
    }
    if (end == NULL || *end != 0 || number < min || number > max) {
        set_error(words, word, expected);
        return min;
    }
    return number;
}

/* Parses an address. Returns whether it is valid. */
static int read_address(const char *text, struct casemate_address *out)
{
    memset(out, 0, sizeof(*out));
    if (inet_pton(AF_INET, text, out->bytes) == 1) {
        out->version = 4;
    } else if (inet_pton(AF_INET6, text, out->bytes) == 1) {
        out->version = 6;
    }
    return out->version != 0;
}

struct casemate_address words_address(struct words *words, const char *expected)
{
    const char *word = words_next(words);
    struct casemate_address out;
    if (word == NULL || !read_address(word, &out)) {
        memset(&out, 0, sizeof(out));
        set_error(words, word, expected);
    }
    return out;
}

static unsigned bits_of(const struct casemate_address *address)
{
    return address->version == 4 ? 32 : 128;
}

/* Parses ADDRESS/LENGTH or ADDRESS. */
static int read_prefix(const char *text, struct casemate_address *address, unsigned *length)
{
    char copy[64];
    char *slash, *end;
    unsigned long number;
    if (strlen(text) >= sizeof(copy)) {
        return 0;
    }
    strcpy(copy, text);
    slash = strchr(copy, '/');
    if (slash != NULL) {
        *slash++ = 0;
    }
    if (!read_address(copy, address)) {
        return 0;
    }
    *length = bits_of(address);
    if (slash == NULL) {
        return 1;
    }
    number = strtoul(slash, &end, 10);
    if (!isdigit((unsigned char)*slash) || *end != 0 || number > *length) {
        return 0;
    }
    *length = (unsigned)number;
    return 1;
}

struct casemate_address words_prefix(struct words *words, unsigned *length)
{
    const char *word = words_next(words);
    struct casemate_address out;
    if (word == NULL || !read_prefix(word, &out, length)) {
        memset(&out, 0, sizeof(out));
        set_error(words, word, ADDRESS ", or 192.0.2.1/24");
    }
    return out;
}

/* Sets the bits after a prefix to 0 or 1. */
static void set_host_bits(struct casemate_address *address, unsigned length, int ones)
{
    for (unsigned bit = length; bit < bits_of(address); bit++) {
        uint8_t mask = (uint8_t)(0x80 >> (bit % 8));
        address->bytes[bit / 8] = ones ? address->bytes[bit / 8] | mask
            : address->bytes[bit / 8] & (uint8_t)~mask;
    }
}

void words_range(struct words *words, struct casemate_address *first, struct casemate_address *last)
{
    const char *word = words_next(words);
    const char *dash = word != NULL ? strchr(word, '-') : NULL;
    unsigned length;
    char copy[64];
    if (dash != NULL && (size_t)(dash - word) < sizeof(copy)) {
        memcpy(copy, word, (size_t)(dash - word));
        copy[dash - word] = 0;
        if (read_address(copy, first) && read_address(dash + 1, last)) {
            return;
        }
    } else if (word != NULL && read_prefix(word, first, &length)) {
        *last = *first;
        set_host_bits(first, length, 0);
        set_host_bits(last, length, 1);
        return;
    }
    set_error(words, word, ADDRESS ", a prefix such as 10.0.0.0/8, or FIRST-LAST");
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F'
        ? c - 'A' + 10 : -1;
}

size_t words_bytes(struct words *words, uint8_t *out, size_t room)
{
    const char *word = words_next(words);
    const char *text = word != NULL && strncmp(word, "0x", 2) == 0 ? word + 2 : word;
    size_t len = 0;
    while (text != NULL && len < room && digit(text[0]) >= 0 && digit(text[1]) >= 0) {
        out[len++] = (uint8_t)(digit(text[0]) << 4 | digit(text[1]));
        text += 2;
    }
    if (len == 0 || *text != 0) {
        /* Does not repeat the word, because it is a key. */
        set_error(words, word != NULL ? "the key" : NULL, "hexadecimal digits, two for each byte");
    }
    return len;
}

void words_mac(struct words *words, uint8_t out[6])
{
    const char *word = words_next(words);
    const char *at = word;
    for (int byte = 0; at != NULL && byte < 6; byte++) {
        if (digit(at[0]) < 0 || digit(at[1]) < 0 || at[2] != (byte < 5 ? ':' : 0)) {
            at = NULL;
            break;
        }
        out[byte] = (uint8_t)(digit(at[0]) << 4 | digit(at[1]));
        at += 3;
    }
    if (at == NULL) {
        set_error(words, word, "an Ethernet address such as 02:00:00:00:00:01");
    }
}
