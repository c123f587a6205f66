/* The demo's own error detail, which these functions encode and decode as protobuf does:
 *
 *     message Complaint { string subject = 1; int32 count = 2; }
 */
#ifndef DEMO_COMPLAINT_H
#define DEMO_COMPLAINT_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  char subject[32];
  unsigned count;
} complaint;

typedef struct {
  unsigned char data[200];
  size_t length;
} encoded;

/* Encodes a google.rpc.Status with the code `code` and, in an Any, the one detail `detail`. */
encoded complaint_status(int32_t code, const complaint *detail);

/* Decodes `data` into `out`; returns whether it was a Complaint. */
int complaint_decode(const unsigned char *data, size_t length, complaint *out);

#endif
