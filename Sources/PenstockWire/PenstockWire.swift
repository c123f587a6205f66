// PenstockWire: the bytes of gRPC, and nothing else.
//
// This module decodes and encodes: length-prefixed messages, `grpc-timeout`,
// percent-coded status messages, `-bin` values, header rules, status codes and `google.rpc.Status`. Its
// references are the gRPC document "gRPC over HTTP2" (PROTOCOL-HTTP2), "HTTP to gRPC Status Code Mapping",
// RFC 9113 and RFC 4648.
//
// It performs no I/O, reads no clock, takes no lock, keeps no global state, and does not know its callers. It
// never traps on the input of a peer or a caller. Numbers are range-checked before they are converted. A
// buffer whose size a peer or a caller chooses comes from `malloc`, after its size was compared with the
// limit; a failed allocation is reported. Names and values are bytes; nothing here is a `String`.

/// Bytes that another object owns. A view that is passed to a function is valid during that call. A view that
/// this module returns is valid until the object that owns the bytes is next changed.
public typealias ByteView = UnsafeRawBufferPointer
