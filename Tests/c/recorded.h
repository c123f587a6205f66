/* Shared by the tests of telemetry.h: objects that record, and the texts that they give. */
#ifndef PENSTOCK_TEST_RECORDED_H
#define PENSTOCK_TEST_RECORDED_H

#include "ready.h"

static inline penstock_telemetry *telemetry_new(const char *options) {
  penstock_telemetry *telemetry = NULL;
  penstock_error *error = NULL;
  OK(penstock_telemetry_new(options, &telemetry, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return telemetry;
}
static inline void telemetry_add(penstock_telemetry *telemetry, penstock_channel *channel) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_telemetry(telemetry, &table, NULL));
  ready_add(channel, &table, 0);
}

typedef penstock_result (*reader)(penstock_telemetry *, char **);
/* Not inlined: GCC 12 would take what it gives for a pointer to its variable. */
static __attribute__((noinline, unused)) char *text_of(penstock_telemetry *telemetry, reader read) {
  char *text = NULL;
  OK(read(telemetry, &text));
  return text;
}
static inline void check_text(penstock_telemetry *telemetry, reader read, const char *const *parts, size_t count) {
  char *text = text_of(telemetry, read);
  for (size_t i = 0; i < count; i++) CHECK_HAS(text, parts[i]);
  penstock_free(text);
}
#define CHECK_TEXT(telemetry, read, ...)                                                                               \
  do {                                                                                                                 \
    const char *const parts[] = {__VA_ARGS__};                                                                         \
    check_text(telemetry, read, parts, sizeof(parts) / sizeof(*parts));                                                \
  } while (0)

static inline int occurrences(const char *text, const char *part) {
  int count = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) count++;
  return count;
}

/* Whether the telemetry's text has `part`. */
static inline bool telemetry_has(penstock_telemetry *telemetry, reader read, const char *part) {
  char *text = text_of(telemetry, read);
  bool found = text && strstr(text, part);
  penstock_free(text);
  return found;
}

#endif
