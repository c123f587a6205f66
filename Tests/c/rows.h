/* Tables of JSON texts, each with the whole message of its error, for the functions that read options and data. */
#ifndef PENSTOCK_TEST_ROWS_H
#define PENSTOCK_TEST_ROWS_H

#include "test.h"

/* `words` is the message of the error; NULL: the text is right. If it ends with ":", only the path up to there counts,
 * because the rest is the parser's. */
typedef struct row {
  const char *json, *words;
} row;

typedef penstock_result (*row_reader)(const char *json, penstock_error **error);

static inline void check_rows(const row *rows, size_t count, row_reader read) {
  for (size_t i = 0; i < count; i++) {
    penstock_error *error = NULL;
    penstock_result result = read(rows[i].json, &error),
                    expected = rows[i].words ? PENSTOCK_E_INVALID_JSON : PENSTOCK_OK;
    char message[1024];
    snprintf(message, sizeof(message), "%s", error ? penstock_error_message(error) : "");
    size_t length = rows[i].words ? strlen(rows[i].words) : 0;
    if (length > 0 && rows[i].words[length - 1] == ':') message[length] = 0;
    bool holds = CHECK_RESULT(result, expected) && CHECK((error != NULL) == (rows[i].words != NULL));
    if (rows[i].words) holds = CHECK_STR(message, rows[i].words) && holds;
    if (!holds) printf("  %s\n", rows[i].json);
    penstock_error_release(error);
  }
}
/* Defines the reader `name`, which makes an object of `type` by `make`, and releases it. */
#define OBJECT_READER(name, type, make, release)                                                                       \
  static penstock_result name(const char *json, penstock_error **error) {                                              \
    type *made = NULL;                                                                                                 \
    penstock_result result = make(json, &made, error);                                                                 \
    release(made);                                                                                                     \
    return result;                                                                                                     \
  }

#define CHECK_ROWS(rows, read) check_rows((rows), sizeof(rows) / sizeof(*(rows)), (read))

#endif
