/* jansson, with functions that recognise a lack of memory: jansson itself reports it as a mistake in the text, or
 * leaves bytes out of its output without an error. The functions here look at errno, which malloc sets when it
 * fails. */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* penstock_json_begin is called before a value is made piece by piece, penstock_json_is_short after the last piece: it
 * returns true if parts of the value may be missing, because there was no memory for them. */
static inline void penstock_json_begin(void) { errno = 0; }
static inline bool penstock_json_is_short(void) { return errno == ENOMEM; }

/* The bytes of the longest word of a JSON text, as it stands there: of a string between its quotes, or of a number or
 * another run of letters and digits. */
static inline size_t penstock_json_longest_word(const char *text, size_t length) {
  size_t longest = 0, at = 0;
  while (at < length) {
    size_t start = at;
    if (text[at] == '"') {
      start = ++at;
      while (at < length && text[at] != '"') at += text[at] == '\\' ? 2 : 1;
      if (at - start > longest) longest = at - start;
      at++;
    } else {
      while (at < length && strchr("{}[],:\" \t\r\n", text[at]) == NULL) at++;
      if (at - start > longest) longest = at - start;
      if (at == start) at++;
    }
  }
  return longest;
}

/* Whether all brackets of the first `length` bytes of the text are closed. */
static inline bool penstock_json_is_level(const char *text, size_t length) {
  long depth = 0;
  for (size_t at = 0; at < length; at++) {
    if (text[at] == '{' || text[at] == '[') depth++;
    if (text[at] == '}' || text[at] == ']') depth--;
    if (text[at] == '"')
      for (at++; at < length && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
  }
  return depth <= 0;
}

/* jansson's scanner keeps each word of the text in a buffer of 16 bytes, which it enlarges for a longer one. If there is
 * no memory for that it goes on with what it has: it writes past the end of a string, and takes a part of a number for
 * the whole. So a text with longer words is handed to it as the second element of an array, behind a number with as many
 * digits: there the scanner's neglect does no harm. If its buffer has not become as large as it has to be, it gets
 * nothing behind the digits. */
typedef struct {
  const char *text;
  size_t length, zeros, at;
  bool is_short;
} penstock_json_source;

enum { PENSTOCK_JSON_SHORT_WORD = 13 };

/* The number of bytes before the text: "[0.", the zeros, and a comma. */
static inline size_t penstock_json_prefix(const penstock_json_source *source) { return 3 + source->zeros + 1; }

/* The comma comes apart from the digits, because the scanner sets errno to 0 when it has read the number. */
static inline size_t penstock_json_read(void *buffer, size_t room, void *data) {
  penstock_json_source *source = (penstock_json_source *)data;
  size_t prefix = penstock_json_prefix(source), end = prefix + source->length, count = 0;
  source->is_short = source->is_short || penstock_json_is_short();
  if (source->is_short || room == 0) return 0;
  if (source->at < prefix - 1) {
    for (; count < room && source->at + count < prefix - 1; count++)
      ((char *)buffer)[count] = source->at + count < 3 ? "[0."[source->at + count] : '0';
  } else if (source->at == prefix - 1 || source->at == end) {
    *(char *)buffer = source->at < prefix ? ',' : ']';
    count = 1;
  } else if (source->at < end) {
    count = end - source->at < room ? end - source->at : room;
    memcpy(buffer, source->text + (source->at - prefix), count);
  }
  source->at += count;
  return count;
}

static inline json_t *penstock_json_load_long(penstock_json_source *source, json_error_t *error) {
  json_t *both = json_load_callback(penstock_json_read, source, JSON_REJECT_DUPLICATES, error);
  json_t *root = json_array_size(both) == 2 ? json_incref(json_array_get(both, 1)) : NULL;
  if (root == NULL && both == NULL) {
    /* The place counts from the text's beginning, and the bracket behind the text is its end. */
    long at = error->position - (long)penstock_json_prefix(source), last = (long)source->length;
    size_t words = strlen(error->text), bracket = strlen(" near ']'");
    if (at > last && words > bracket && strcmp(error->text + words - bracket, " near ']'") == 0 &&
        words + 8 < sizeof(error->text))
      strcpy(error->text + words - bracket, " near end of file");
    error->position = (int)(at < 0 ? 0 : at < last ? at : last);
    /* Behind a whole text jansson expects the bracket; the place is behind what it has found. */
    if ((strncmp(error->text, "']' expected", 12) == 0 || strncmp(error->text, "end of file expected", 20) == 0 ||
         strcmp(error->text, "unexpected token near end of file") == 0) &&
        penstock_json_is_level(source->text, (size_t)(error->position > 0 ? error->position - 1 : 0)))
      strcpy(error->text, "end of file expected");
  } else if (root == NULL) {
    strcpy(error->text, "end of file expected");
    error->position = (int)source->length;
  }
  json_decref(both);
  return root;
}

static inline json_t *penstock_json_load(const char *text, size_t length, json_error_t *error, bool *is_short) {
  penstock_json_begin();
  penstock_json_source source = {text, length, penstock_json_longest_word(text, length), 0, false};
  json_t *root = source.zeros > PENSTOCK_JSON_SHORT_WORD
                     ? penstock_json_load_long(&source, error)
                     : json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, error);
  *is_short = source.is_short || penstock_json_is_short();
  if (!*is_short) return root;
  json_decref(root);
  return NULL;
}

/* Returns the value as text, to be freed with free(). NULL: no memory. */
static inline char *penstock_json_dump(const json_t *value) {
  penstock_json_begin();
  char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
  if (!penstock_json_is_short()) return text;
  free(text);
  return NULL;
}
