/* jansson, with functions that recognise a lack of memory: jansson itself reports it as a mistake in the text, or
 * leaves bytes out of its output without an error. The functions here look at errno, which malloc sets when it
 * fails. */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

/* penstock_json_begin is called before a value is made piece by piece, penstock_json_is_short after the last piece: it
 * returns true if parts of the value may be missing, because there was no memory for them. */
static inline void penstock_json_begin(void) { errno = 0; }
static inline bool penstock_json_is_short(void) { return errno == ENOMEM; }

static inline json_t *penstock_json_load(const char *text, size_t length, json_error_t *error, bool *is_short) {
  penstock_json_begin();
  json_t *root = json_loadb(text, length, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, error);
  *is_short = penstock_json_is_short();
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
