/* A small protobuf encoder and decoder for the messages of grpc.testing. */
#ifndef INTEROP_WIRE_H
#define INTEROP_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct bytes {
  uint8_t *data;
  size_t length, room;
} bytes;

void bytes_free(bytes *self);
void bytes_add(bytes *self, const void *data, size_t length);
/* Adds `length` zeros. */
void bytes_zeros(bytes *self, size_t length);

void put_int(bytes *self, uint32_t field, uint64_t value);
void put_bytes(bytes *self, uint32_t field, const void *data, size_t length);
void put_message(bytes *self, uint32_t field, const bytes *message);

typedef struct reader {
  const uint8_t *at, *end;
  /* The field that was read: `value` of a varint, or `data` and `length`. */
  uint32_t field;
  uint64_t value;
  const uint8_t *data;
  size_t length;
  bool malformed;
} reader;

reader reader_new(const void *data, size_t length);
/* False at the end, and for malformed input. */
bool reader_next(reader *self);

#endif
