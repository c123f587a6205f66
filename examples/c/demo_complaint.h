/* The application's own error detail of the demo, as protobuf encodes it:
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

/* A google.rpc.Status of this code, with the complaint in an Any among its details. */
encoded complaint_status(int32_t code, const complaint *detail);

/* Whether `data` was a Complaint: it is in `out` then. */
int complaint_decode(const unsigned char *data, size_t length, complaint *out);

#endif
