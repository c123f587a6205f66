#include "testing.h"

#include <stdlib.h>
#include <string.h>

const size_t four_sizes[] = {31415, 9, 2653, 58979, SIZE_MAX};

static void put_bool(bytes *out, uint32_t field, int value) {
  bytes inner = {0};
  if (value == ABSENT) return;
  if (value) put_int(&inner, 1, 1);
  put_message(out, field, &inner);
  bytes_free(&inner);
}

static void put_payload(bytes *out, uint32_t field, size_t size) {
  bytes zeros = {0}, payload = {0};
  bytes_zeros(&zeros, size);
  if (size > 0) put_message(&payload, 2, &zeros);
  put_message(out, field, &payload);
  bytes_free(&zeros);
  bytes_free(&payload);
}

void put_status(bytes *out, int32_t code, const char *message) {
  bytes status = {0};
  put_int(&status, 1, (uint64_t)code);
  put_bytes(&status, 2, message, strlen(message));
  put_message(out, 7, &status);
  bytes_free(&status);
}

bytes simple_request(size_t response_size, size_t payload_size, int response_compressed, int expect_compressed) {
  bytes out = {0};
  if (response_size > 0) put_int(&out, 2, response_size);
  put_payload(&out, 3, payload_size);
  put_bool(&out, 6, response_compressed);
  put_bool(&out, 8, expect_compressed);
  return out;
}

bytes input_request(size_t payload_size, int expect_compressed) {
  bytes out = {0};
  put_payload(&out, 1, payload_size);
  put_bool(&out, 2, expect_compressed);
  return out;
}

bytes output_request(const size_t *sizes, const int *compressed, size_t payload_size) {
  bytes out = {0};
  for (size_t i = 0; sizes && sizes[i] != SIZE_MAX; i++) {
    bytes parameters = {0};
    put_int(&parameters, 1, sizes[i]);
    put_bool(&parameters, 3, compressed ? compressed[i] : ABSENT);
    put_message(&out, 2, &parameters);
    bytes_free(&parameters);
  }
  put_payload(&out, 3, payload_size);
  return out;
}

/* The length of the body of the Payload in field 1 of `data`; -1 if the body does not consist of zeros. */
static int64_t payload_size(const void *data, size_t length) {
  reader outer = reader_new(data, length);
  int64_t size = 0;
  while (reader_next(&outer)) {
    if (outer.field != 1 || !outer.data) continue;
    reader payload = reader_new(outer.data, outer.length);
    while (reader_next(&payload)) {
      if (payload.field != 2 || !payload.data) continue;
      size = (int64_t)payload.length;
      if (payload.length > 0 && (payload.data[0] || memcmp(payload.data, payload.data + 1, payload.length - 1))) {
        return -1;
      }
    }
    if (payload.malformed) return -1;
  }
  return outer.malformed || (!data && length > 0) ? -1 : size;
}

int64_t reply_payload(const penstock_reply *reply) {
  size_t length = 0;
  const void *data = penstock_reply_bytes(reply, &length);
  return data ? payload_size(data, length) : -1;
}

int64_t reply_total(const penstock_reply *reply) {
  size_t length = 0;
  const void *data = penstock_reply_bytes(reply, &length);
  reader fields = reader_new(data, length);
  int64_t total = data ? 0 : -1;
  while (reader_next(&fields)) {
    if (fields.field == 1) total = (int64_t)fields.value;
  }
  return total;
}

int64_t reply_stat(const penstock_reply *reply, const char *part, const char *key) {
  const char *at = strstr(penstock_reply_stats_json(reply), part);
  at = at ? strstr(at, key) : NULL;
  at = at ? strchr(at, ':') : NULL;
  return at ? strtoll(at + 1, NULL, 10) : -1;
}

penstock_reply *unary_ok(client *client, const char *method, bytes request, const char *options) {
  penstock_reply *reply = rpc_unary(client, method, request.data, request.length, options);
  bytes_free(&request);
  if (CHECK_STATUS(reply, PENSTOCK_STATUS_OK, NULL)) return reply;
  penstock_reply_release(reply);
  return NULL;
}

void send_all(rpc *call, bytes message) {
  CHECK_OK(rpc_send(call, message.data, message.length));
  bytes_free(&message);
}

bool receive_payload(rpc *call, size_t size) {
  penstock_message *message = rpc_receive(call);
  if (!message) {
    FAIL("no message, where a payload of %zu was expected: %s", size, penstock_reply_status_json(rpc_finish(call)));
    return false;
  }
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  bool right = CHECK_INT(payload_size(data, length), size);
  penstock_message_release(message);
  return right;
}

void receive_end(rpc *call) {
  penstock_message *message = rpc_receive(call);
  size_t length = 0;
  penstock_message_bytes(message, &length);
  if (message) FAIL("a message of %zu bytes after the last", length);
  penstock_message_release(message);
}

void check_value(const penstock_metadata *metadata, const char *name, const void *value, size_t length) {
  const void *found = NULL;
  size_t found_length = 0;
  if (!metadata || penstock_metadata_get(metadata, name, 0, &found, &found_length) != PENSTOCK_OK) {
    FAIL("no %s", name);
  } else if (found_length != length || memcmp(found, value, length) != 0) {
    FAIL("%s has another value, of %zu bytes", name, found_length);
  } else {
    CHECK_RESULT(penstock_metadata_get(metadata, name, 1, &found, &found_length), PENSTOCK_E_NOT_FOUND);
  }
}
