#include "demo_complaint.h"
#include <string.h>

/* Appends a protobuf field of bytes. All field numbers and lengths here are so small that each takes one byte. */
static void put_bytes(encoded *out, int field, const void *data, size_t length) {
  out->data[out->length++] = (unsigned char)(field << 3 | 2);
  out->data[out->length++] = (unsigned char)length;
  memcpy(out->data + out->length, data, length);
  out->length += length;
}

static void put_number(encoded *out, int field, unsigned number) {
  out->data[out->length++] = (unsigned char)(field << 3);
  out->data[out->length++] = (unsigned char)number;
}

encoded complaint_status(int32_t code, const complaint *detail) {
  static const char url[] = "type.googleapis.com/penstock.Complaint";
  encoded body = {.length = 0}, any = {.length = 0}, status = {.length = 0};
  put_bytes(&body, 1, detail->subject, strlen(detail->subject));
  put_number(&body, 2, detail->count);
  put_bytes(&any, 1, url, strlen(url));
  put_bytes(&any, 2, body.data, body.length);
  put_number(&status, 1, (unsigned)code);
  put_bytes(&status, 3, any.data, any.length);
  return status;
}

int complaint_decode(const unsigned char *data, size_t length, complaint *out) {
  for (size_t at = 0; at + 1 < length;) {
    unsigned char key = data[at], value = data[at + 1];
    at += 2;
    if (key == (1 << 3 | 2)) {
      if (value >= sizeof out->subject || value > length - at) return 0;
      memcpy(out->subject, data + at, value);
      out->subject[value] = 0;
      at += value;
    } else if (key == 2 << 3) {
      out->count = value;
    } else {
      return 0;
    }
  }
  return 1;
}
