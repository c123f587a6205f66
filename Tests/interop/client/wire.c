#include "wire.h"

#include <stdlib.h>
#include <string.h>

void bytes_free(bytes *self) {
  free(self->data);
  memset(self, 0, sizeof(*self));
}

static uint8_t *spare(bytes *self, size_t length) {
  if (self->room - self->length < length) {
    size_t room = self->length + length < 2 * self->room ? 2 * self->room : self->length + length;
    uint8_t *data = realloc(self->data, room);
    if (!data) abort();
    self->data = data;
    self->room = room;
  }
  uint8_t *place = self->data + self->length;
  self->length += length;
  return place;
}

void bytes_add(bytes *self, const void *data, size_t length) {
  if (length > 0) memcpy(spare(self, length), data, length);
}

void bytes_zeros(bytes *self, size_t length) {
  if (length > 0) memset(spare(self, length), 0, length);
}

static void put_varint(bytes *self, uint64_t value) {
  while (value > 0x7F) {
    *spare(self, 1) = (uint8_t)(value | 0x80);
    value >>= 7;
  }
  *spare(self, 1) = (uint8_t)value;
}

void put_int(bytes *self, uint32_t field, uint64_t value) {
  put_varint(self, (uint64_t)field << 3);
  put_varint(self, value);
}

void put_bytes(bytes *self, uint32_t field, const void *data, size_t length) {
  put_varint(self, (uint64_t)field << 3 | 2);
  put_varint(self, length);
  bytes_add(self, data, length);
}

void put_message(bytes *self, uint32_t field, const bytes *message) {
  put_bytes(self, field, message->data, message->length);
}

reader reader_new(const void *data, size_t length) {
  reader self = {.at = data, .end = data ? (const uint8_t *)data + length : NULL};
  return self;
}

static bool varint(reader *self, uint64_t *value) {
  *value = 0;
  for (int shift = 0; self->at < self->end && shift < 64; shift += 7) {
    uint8_t byte = *self->at++;
    *value |= (uint64_t)(byte & 0x7F) << shift;
    if (byte < 0x80) return true;
  }
  self->malformed = true;
  return false;
}

bool reader_next(reader *self) {
  uint64_t key, length;
  if (self->malformed || self->at == self->end || !varint(self, &key)) return false;
  self->field = (uint32_t)(key >> 3);
  self->data = NULL;
  self->length = 0;
  self->value = 0;
  if ((key & 7) == 0) return varint(self, &self->value);
  if ((key & 7) != 2 || !varint(self, &length) || length > (uint64_t)(self->end - self->at)) {
    self->malformed = true;
    return false;
  }
  self->data = self->at;
  self->length = (size_t)length;
  self->at += length;
  return true;
}
