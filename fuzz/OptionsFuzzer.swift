import CPenstock
import Glibc
import PenstockChannel
import PenstockWire

@testable import PenstockFraming
@testable import PenstockTransport
import PenstockNames

// Fuzzes texts that a program may pass: targets, and the JSON of options, metadata and statuses. If a text
// can be parsed as a status, the JSON of that status must give the same status again.

private func text(_ input: ByteView, _ body: (UnsafePointer<CChar>) -> Void) {
  var copy = input.map { CChar(bitPattern: $0) }
  copy.append(0)
  copy.withUnsafeBufferPointer { body($0.baseAddress!) }
}

/// Checks that a failure, and only a failure, comes with an error that has a message; frees the error.
private func check(_ result: penstock_result, _ error: OpaquePointer?) {
  precondition((result == PENSTOCK_OK) == (error == nil))
  guard let error else { return }
  precondition(penstock_error_message(error).pointee != 0)
  _ = penstock_error_json(error)
  penstock_error_release(error)
}

private func status(_ json: UnsafePointer<CChar>) {
  var error: OpaquePointer?
  var status: OpaquePointer?
  check(penstock_status_from_json(json, &status, &error), error)
  guard let status else { return }
  var again: UnsafeMutablePointer<CChar>?
  precondition(penstock_status_json(status, &again) == PENSTOCK_OK)
  var second: OpaquePointer?
  var third: UnsafeMutablePointer<CChar>?
  precondition(penstock_status_from_json(again, &second, nil) == PENSTOCK_OK)
  precondition(penstock_status_json(second, &third) == PENSTOCK_OK)
  precondition(strcmp(again!, third!) == 0)
  penstock_free(again)
  penstock_free(third)
  penstock_status_release(status)
  penstock_status_release(second)
}

private func metadata(_ json: UnsafePointer<CChar>) {
  var error: OpaquePointer?
  var metadata: OpaquePointer?
  precondition(penstock_metadata_new(&metadata) == PENSTOCK_OK)
  check(penstock_metadata_set_json(metadata, json, &error), error)
  var again: UnsafeMutablePointer<CChar>?
  precondition(penstock_metadata_json(metadata, &again) == PENSTOCK_OK)
  precondition(penstock_metadata_set_json(metadata, again, nil) == PENSTOCK_OK)
  penstock_free(again)
  penstock_metadata_release(metadata)
}

private func callOptions(_ json: UnsafePointer<CChar>) {
  var error: OpaquePointer?
  var options: OpaquePointer?
  check(penstock_call_options_new(json, &options, &error), error)
  penstock_call_options_release(options)
}

private typealias Ready =
  @convention(c) (
    UnsafePointer<CChar>?, UnsafeMutablePointer<penstock_interceptor>?,
    UnsafeMutablePointer<OpaquePointer?>?
  ) -> penstock_result

private func ready(_ make: Ready, _ json: UnsafePointer<CChar>) {
  var error: OpaquePointer?
  var table = penstock_interceptor()
  table.struct_size = MemoryLayout<penstock_interceptor>.size
  check(make(json, &table, &error), error)
  table.finalizer?(table.user_data)
}

/// Fuzzes one text: the first byte of the input chooses its kind, the rest is the text.
func fuzzOptions(_ all: ByteView) {
  guard let kind = all.first else { return }
  let input = ByteView(rebasing: all[1...])
  text(input) { json in
    switch kind % 10 {
    case 0: status(json)
    case 1: metadata(json)
    case 2: callOptions(json)
    case 3: ready(penstock_ready_trace_context, json)
    case 4: ready(penstock_ready_response_cache, json)
    case 5: ready(penstock_ready_rate_limit, json)
    case 6: ready(penstock_ready_fault_injection, json)
    case 7: ready(penstock_ready_header_rules, json)
    case 8:
      var error: OpaquePointer?
      var metrics: OpaquePointer?
      check(penstock_metrics_new(json, &metrics, &error), error)
      penstock_metrics_release(metrics)
    default: _ = Target.parse(input)
    }
  }
}

/// Decompresses `input` in slices of at most 100 bytes.
private func unpacked(_ input: ByteView, by compressor: Compressor, limit: Int) -> Inflation.Step {
  guard let copy = ByteBuffer(copying: input), let inflation = Inflation.make(copy, compressor, limit: limit)
  else {
    return .noMemory
  }
  while true {
    let step = inflation.step(100)
    guard case .more = step else { return step }
  }
}

/// Fuzzes the compressions: decompressing any input gives no more bytes than the limit, and compressing it gives a message that
/// decompresses to the same bytes.
func fuzzCompressors(_ input: ByteView) {
  for compression in [Compression.gzip, .deflate, .zstd] {
    if let compressor = Compressor(compression) { fuzz(compressor, input) }
  }
}

private func fuzz(_ compressor: Compressor, _ input: ByteView) {
  if case .bytes(let bytes) = unpacked(input, by: compressor, limit: 4096) {
    precondition(bytes.count <= 4096)
  }
  guard let copy = ByteBuffer(copying: input), let deflation = Deflation.make(copy, compressor) else {
    return
  }
  var step = deflation.step()
  while case .more = step { step = deflation.step() }
  guard case .bytes(let packed) = step else { return }
  guard case .bytes(let again) = unpacked(packed.view, by: compressor, limit: input.count) else {
    preconditionFailure("does not unpack")
  }
  precondition(bytesEqual(again.view, input))
}
