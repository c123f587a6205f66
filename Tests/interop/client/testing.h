/* The messages of grpc.testing, and functions for them. */
#ifndef INTEROP_TESTING_H
#define INTEROP_TESTING_H

#include "rpc.h"

#define SERVICE "/grpc.testing.TestService/"
enum {
  UNARY = PENSTOCK_KIND_UNARY,
  CLIENT_STREAM = PENSTOCK_KIND_CLIENT_STREAM,
  SERVER_STREAM = PENSTOCK_KIND_SERVER_STREAM,
  BIDI = PENSTOCK_KIND_BIDI
};
/* The value of a parameter whose field is left out. */
enum { ABSENT = -1 };

#define MIB ((size_t)1 << 20)

/* The sizes of the payloads in the test descriptions; ends with SIZE_MAX. */
extern const size_t four_sizes[];

void put_status(bytes *out, int32_t code, const char *message);
/* Encodes a SimpleRequest. */
bytes simple_request(size_t response_size, size_t payload_size, int response_compressed, int expect_compressed);
/* Encodes a StreamingInputCallRequest. */
bytes input_request(size_t payload_size, int expect_compressed);
/* Encodes a StreamingOutputCallRequest, which asks for one response for each size before SIZE_MAX. */
bytes output_request(const size_t *sizes, const int *compressed, size_t payload_size);
int64_t reply_payload(const penstock_reply *reply);
/* The aggregated_payload_size of a StreamingInputCallResponse. */
int64_t reply_total(const penstock_reply *reply);
/* A number out of `"part": {... "key": N` in the reply's stats; -1 if it is not there. */
int64_t reply_stat(const penstock_reply *reply, const char *part, const char *key);
/* Makes a unary call, which has to end with OK. If it does not, a failure is noted and the result is NULL. */
penstock_reply *unary_ok(client *client, const char *method, bytes request, const char *options);
void send_all(rpc *call, bytes message);
/* Receives the next message, and checks that it is a payload of `size` zeros. */
bool receive_payload(rpc *call, size_t size);
void receive_end(rpc *call);
void check_value(const penstock_metadata *metadata, const char *name, const void *value, size_t length);
#define received_on_wire(reply) reply_stat((reply), "\"received\"", "\"wire_bytes\"")

#endif
