import PenstockCall
import PenstockChannel
import PenstockTestSupport
import PenstockTransport
import PenstockWire
import Testing

@testable import PenstockClient
@testable import PenstockLoop
@testable import PenstockReady

private let second = SimulationTests.second

/// Tests of whole texts about calls in a simulated world, where each time is known.
@Suite(.timeLimit(.minutes(15))) struct SimulatedTextTests {
  typealias Setting = SimulatedReadyTests.Setting

  /// Answers each message so many seconds later, with an equal message or with a status.
  private func serve(_ setting: Setting, _ replies: [(after: UInt64, status: String)]) {
    var number = 0
    let world = setting.world
    world.servers[80] = { [unowned world] said, socket in
      SimulationTests.answer(said, socket) { stream, payload in
        let (after, status) = replies[number]
        number += 1
        world.after(after * second) {
          socket.answer(
            Frame.head(stream, [("x-a", "1"), ("x-b-bin", "AAE"), ("x-a", "2"), ("cookie", "c")]).encoded
              + (status == "0" ? Frame.data(stream, payload).encoded : [])
              + Frame.trailers(stream, status, [("grpc-message", status == "0" ? "" : "no")]).encoded)
        }
        return []
      }
    }
  }

  // MARK: - Metrics

  @Test func metricsOfCallsByTheWorldsClock() throws {
    var options = Metrics.Options()
    options.buckets = [second, 2 * second]
    let metrics = Metrics(options)
    let setting = try Setting(MetricsInterceptor(metrics, hear: { _, _ in }))
    serve(setting, [(1, "0"), (2, "0"), (3, "0"), (0, "10")])
    for code in [.ok, .ok, .ok, .aborted] as [StatusCode] { #expect(setting.call() == code) }
    let target = "ipv4:10.0.0.1:80"
    func buckets(_ counts: [Int]) -> String {
      let bounds = ["1000", "2000", "null"]
      let all = zip(bounds, counts).map { #"{"le_ms":\#($0),"count":\#($1)}"# }
      return "\"buckets\":[\(all.joined(separator: ","))]"
    }
    let ok = #"{"code":0,"name":"OK","count":3,"seconds":6,\#(buckets([1, 2, 3]))}"#
    let aborted = #"{"code":10,"name":"ABORTED","count":1,"seconds":0,\#(buckets([1, 1, 1]))}"#
    #expect(
      text(metrics.json())
        == #"{"methods":[{"method":"/a.B/C","target":"\#(target)","kind":"unary","started":4,"in_flight":0,"#
        + #""sent":{"messages":4,"bytes":4},"received":{"messages":3,"bytes":3},"codes":[\#(ok),\#(aborted)]}],"#
        + #""peers":[{"target":"\#(target)","peer":"10.0.0.1:80","codes":[{"code":0,"name":"OK","count":3},"#
        + #"{"code":10,"name":"ABORTED","count":1}],"connections":{"opened":0,"lost":0,"failed":0}}]}"# + "\0"
    )
    let labels = #"grpc_type="unary",grpc_service="a.B",grpc_method="C",grpc_target="\#(target)""#
    let samples =
      text(metrics.prometheusText())?.split(separator: "\n").filter { $0.first != "#" }.map { String($0) }
    #expect(
      samples == [
        "grpc_client_started_total{\(labels)} 4", "grpc_client_in_flight{\(labels)} 0",
        #"grpc_client_handled_total{\#(labels),grpc_code="OK"} 3"#,
        #"grpc_client_handled_total{\#(labels),grpc_code="ABORTED"} 1"#,
        "grpc_client_msg_sent_total{\(labels)} 4", "grpc_client_msg_received_total{\(labels)} 3",
        #"grpc_client_handling_seconds_bucket{\#(labels),grpc_code="OK",le="1"} 1"#,
        #"grpc_client_handling_seconds_bucket{\#(labels),grpc_code="OK",le="2"} 2"#,
        #"grpc_client_handling_seconds_bucket{\#(labels),grpc_code="OK",le="+Inf"} 3"#,
        #"grpc_client_handling_seconds_sum{\#(labels),grpc_code="OK"} 6"#,
        #"grpc_client_handling_seconds_count{\#(labels),grpc_code="OK"} 3"#,
        #"grpc_client_handling_seconds_bucket{\#(labels),grpc_code="ABORTED",le="1"} 1"#,
        #"grpc_client_handling_seconds_bucket{\#(labels),grpc_code="ABORTED",le="2"} 1"#,
        #"grpc_client_handling_seconds_bucket{\#(labels),grpc_code="ABORTED",le="+Inf"} 1"#,
        #"grpc_client_handling_seconds_sum{\#(labels),grpc_code="ABORTED"} 0"#,
        #"grpc_client_handling_seconds_count{\#(labels),grpc_code="ABORTED"} 1"#,
        #"grpc_client_peer_handled_total{grpc_target="\#(target)",grpc_peer="10.0.0.1:80",grpc_code="OK"} 3"#,
        #"grpc_client_peer_handled_total{grpc_target="\#(target)",grpc_peer="10.0.0.1:80",grpc_code="ABORTED"} 1"#,
        #"grpc_client_connections_opened_total{grpc_target="\#(target)",grpc_peer="10.0.0.1:80"} 0"#,
        #"grpc_client_connections_lost_total{grpc_target="\#(target)",grpc_peer="10.0.0.1:80"} 0"#,
        #"grpc_client_connect_failures_total{grpc_target="\#(target)",grpc_peer="10.0.0.1:80"} 0"#, "\0",
      ])
  }

  // MARK: - Log lines

  private final class Lines {
    var all: [String] = []
  }

  /// The lines about two calls, without the number of the call.
  private func lines(_ change: (inout LogLines.Options) -> Void) throws -> [String] {
    let lines = Lines()
    var options = LogLines.Options()
    change(&options)
    let data = UserData(Unmanaged.passUnretained(lines).toOpaque(), nil)
    let log = LogLines(
      options,
      { line, length, pointer in
        let text = String(decoding: UnsafeRawBufferPointer(start: line!, count: length), as: UTF8.self)
        Unmanaged<Lines>.fromOpaque(pointer!).takeUnretainedValue().all.append(text)
      }, data, hear: { _, _ in })
    let setting = try Setting(log)
    serve(setting, [(1, "0"), (2, "10")])
    for code in [.ok, .aborted] as [StatusCode] {
      let answer = setting.client.unary("/a.B/C", [1, 2]) { options in
        options.deadline = SimulatedReadyTests.hour
        for (name, value) in [("authorization", "a"), ("x-key", "k"), ("x-c-bin", "\u{1}")] {
          let (name, value) = (bytes(name), bytes(value))
          #expect(options.metadata.add(name.view, value.view) == .ok)
        }
      }
      #expect(answer.code == code)
    }
    return lines.all.map { line in
      let parts = line.split(separator: ",", maxSplits: 2, omittingEmptySubsequences: false)
      #expect(parts.count == 3 && parts[1].hasPrefix("\"call\":"))
      return "\(parts[0]),\(parts[2])"
    }
  }

  private static let waits = #""waited_us":{"name":0,"connection":0,"slot":0},"peer":"10.0.0.1:80""#
  private static let start = #""method":"/a.B/C","kind":"unary","target":"ipv4:10.0.0.1:80""#

  @Test func logLinesOfEachEvent() throws {
    let all = try lines { options in
      options.events = [
        .init(.start), .init(.send), .init(.halfClose), .init(.headers), .init(.receive), .init(.status),
        .init(.cancel),
      ]
    }
    let request = #""metadata":{"authorization":["redacted"],"x-key":["k"],"x-c-bin":["AQ=="]}"#
    let response = #""metadata":{"x-a":["1","2"],"x-b-bin":["AAE="],"cookie":["redacted"]}"#
    #expect(
      all == [
        #"{"time_ms":1000000001000,"event":"start",\#(Self.start),\#(request)}"#,
        #"{"time_ms":1000000001000,"event":"send","method":"/a.B/C","bytes":2}"#,
        #"{"time_ms":1000000001000,"event":"half_close","method":"/a.B/C"}"#,
        #"{"time_ms":1000000002000,"event":"headers","method":"/a.B/C","peer":"10.0.0.1:80",\#(response)}"#,
        #"{"time_ms":1000000002000,"event":"receive","method":"/a.B/C","bytes":2}"#,
        #"{"time_ms":1000000002000,"event":"status","method":"/a.B/C","code":0,"name":"OK","message":"","#
          + #""elapsed_us":1000000,"attempts":1,\#(Self.waits),"metadata":{}}"#,
        #"{"time_ms":1000000002000,"event":"start",\#(Self.start),\#(request)}"#,
        #"{"time_ms":1000000002000,"event":"send","method":"/a.B/C","bytes":2}"#,
        #"{"time_ms":1000000002000,"event":"half_close","method":"/a.B/C"}"#,
        #"{"time_ms":1000000004000,"event":"headers","method":"/a.B/C","peer":"10.0.0.1:80",\#(response)}"#,
        #"{"time_ms":1000000004000,"event":"status","method":"/a.B/C","code":10,"name":"ABORTED","message":"no","#
          + #""elapsed_us":2000000,"attempts":1,\#(Self.waits),"metadata":{}}"#,
      ])
  }

  @Test func logLinesThatShowLess() throws {
    let all = try lines { options in
      options.showsMetadata = false
      options.showsSizes = false
      options.events = [.init(.start), .init(.send)]
    }
    #expect(all.count == 4)
    #expect(all.first == #"{"time_ms":1000000001000,"event":"start",\#(Self.start)}"#)
    #expect(all.last == #"{"time_ms":1000000002000,"event":"send","method":"/a.B/C"}"#)
  }

  @Test func logLinesThatHideChosenHeaders() throws {
    let all = try lines { options in
      options.redacted = [bytes("x-key")]
      options.redactsBinary = true
      options.events = [.init(.start)]
    }
    let shown = #""metadata":{"authorization":["a"],"x-key":["redacted"],"x-c-bin":["redacted"]}"#
    #expect(all.first == #"{"time_ms":1000000001000,"event":"start",\#(Self.start),\#(shown)}"#)
  }

  // MARK: - Spans

  /// An interceptor that shows each call's hop at its start.
  private final class Shower: ReadyInterceptor {
    private let show: (Hop) -> Void

    init(_ show: @escaping (Hop) -> Void) {
      self.show = show
      var callbacks = Registration.Callbacks()
      callbacks.onStart = { handle, state in
        let (hop, this) = behind(handle, state, Shower.self)
        this.show(hop)
        return next
      }
      super.init("shower", callbacks)
    }
  }

  /// The JSON of a span of a call in the simulated world. `body` changes the span, and returns the JSON.
  private func span(parent: UInt64? = nil, _ body: @escaping (Span) -> ByteBuffer?) throws -> String {
    var made: ByteBuffer?
    let setting = try Setting(
      Shower { hop in
        let place = TraceParent(high: 1, low: 0xabc, span: 0xdef0, isSampled: true)
        made = body(Span(place, parent: parent, began: 5, of: hop))
      })
    #expect(setting.call() == .ok)
    let json = JSONText()
    let encoded = try #require(made)
    json.otlp(encoded.view, .span)
    withExtendedLifetime(encoded) {}
    return text(json.buffer)!
  }

  private static func attribute(_ key: String, _ value: String) -> String {
    #"{"key":"\#(key)","value":{\#(value)}}"#
  }
  private static let method = [
    attribute("rpc.system", #""stringValue":"grpc""#), attribute("rpc.service", #""stringValue":"a.B""#),
    attribute("rpc.method", #""stringValue":"C""#), attribute("server.address", #""stringValue":"10.0.0.1""#),
    attribute("server.port", #""intValue":"80""#),
  ].joined(separator: ",")
  private static let ids = #""traceId":"00000000000000010000000000000abc","spanId":"000000000000def0""#

  @Test func theSpanOfACall() throws {
    let ok = try span { $0.encoded(Status(.ok), 7, isAttempt: false) }
    let code = Self.attribute("rpc.grpc.status_code", #""intValue":"0""#)
    #expect(
      ok == #"{\#(Self.ids),"name":"Sent.a.B/C","kind":3,"startTimeUnixNano":"5","endTimeUnixNano":"12","#
        + #""attributes":[\#(Self.method),\#(code)],"status":{"code":1},"flags":1}"#)
    let failed = try span(parent: 0x12) { $0.encoded(Status(.aborted, "no"), 0, isAttempt: false) }
    let aborted = Self.attribute("rpc.grpc.status_code", #""intValue":"10""#)
    #expect(
      failed == #"{\#(Self.ids),"parentSpanId":"0000000000000012","name":"Sent.a.B/C","kind":3,"#
        + #""startTimeUnixNano":"5","endTimeUnixNano":"5","attributes":[\#(Self.method),\#(aborted)],"#
        + #""status":{"message":"ABORTED: no","code":2},"flags":1}"#)
    #expect(
      try span { $0.encoded(nil, 0, isAttempt: false) }.contains(
        #""status":{"message":"CANCELLED","code":2}"#))
    #expect(
      try span { $0.encoded(Status(.dataLoss), 0, isAttempt: false) }
        .contains(#""status":{"message":"DATA_LOSS","code":2}"#))
  }

  @Test func theSpanOfAnAttempt() throws {
    let found = try span { span in
      span.traceState = bytes("a=b")
      span.peer = bytes("[::1]:443\0")
      span.previousAttempts = 2
      span.isTransparentRetry = true
      span.noteMessage(1, 10, isSent: true)
      span.noteMessage(2, 20, isSent: false)
      span.noteMessage(3, 30, isSent: true)
      return span.encoded(Status(.ok), 7, isAttempt: true)
    }
    let more = [
      Self.attribute("network.peer.address", #""stringValue":"::1""#),
      Self.attribute("network.peer.port", #""intValue":"443""#),
      Self.attribute("previous-rpc-attempts", #""intValue":"2""#),
      Self.attribute("transparent-retry", #""boolValue":true"#),
      Self.attribute("rpc.grpc.status_code", #""intValue":"0""#),
    ].joined(separator: ",")
    func event(_ time: Int, _ name: String, _ number: Int, _ size: Int) -> String {
      let number = Self.attribute("sequence-number", #""intValue":"\#(number)""#)
      let size = Self.attribute("message-size", #""intValue":"\#(size)""#)
      return #"{"timeUnixNano":"\#(time)","name":"\#(name) message","attributes":[\#(number),\#(size)]}"#
    }
    let events = [event(6, "Outbound", 0, 10), event(7, "Inbound", 0, 20), event(8, "Outbound", 1, 30)]
      .joined(separator: ",")
    #expect(
      found == #"{\#(Self.ids),"traceState":"a=b","name":"Attempt.a.B/C","kind":3,"startTimeUnixNano":"5","#
        + #""endTimeUnixNano":"12","attributes":[\#(Self.method),\#(more)],"events":[\#(events)],"#
        + #""status":{"code":1},"flags":1}"#)
  }

  @Test func aSpanHas128EventsAtMost() throws {
    for (count, dropped) in [(127, 0), (128, 0), (129, 1), (140, 12)] {
      let found = try span { span in
        for _ in 0..<count { span.noteMessage(0, 0, isSent: true) }
        return span.encoded(Status(.ok), 0, isAttempt: true)
      }
      #expect(found.split(separator: "Outbound message").count == min(count, 128) + 1)
      #expect(found.contains("\"droppedEventsCount\":\(dropped)") == (dropped > 0))
      #expect(found.contains("droppedEventsCount") == (dropped > 0))
    }
  }

  // MARK: - Telemetry

  @Test func telemetryInPrometheusFormat() throws {
    let telemetry = Telemetry(Telemetry.Options())
    let (path, target) = (bytes("/a.B/C"), bytes("ipv4:10.0.0.1:80"))
    let method = telemetry.method(path.view, target.view)
    for _ in 0..<3 { telemetry.attemptStarted(method) }
    telemetry.attemptEnded(method, .ok, 50_000, sent: 1024, received: 1025)
    telemetry.attemptEnded(method, .ok, 50_001, sent: 0, received: 5 << 32)
    telemetry.callEnded(method, .aborted, 200 * second)
    let all = text(telemetry.prometheusText())!.split(separator: "\n").map { String($0) }
    let labels = #"grpc_method="a.B/C",grpc_target="ipv4:10.0.0.1:80""#
    #expect(
      all.filter { $0.first == "#" } == [
        "# HELP grpc_client_attempt_started_total Attempts that were started.",
        "# TYPE grpc_client_attempt_started_total counter",
        "# HELP grpc_client_attempt_duration_seconds How long attempts took, from their start to their status.",
        "# TYPE grpc_client_attempt_duration_seconds histogram",
        "# HELP grpc_client_attempt_sent_total_compressed_message_size_bytes The bytes of an attempt's request messages, "
          + "after compression.",
        "# TYPE grpc_client_attempt_sent_total_compressed_message_size_bytes histogram",
        "# HELP grpc_client_attempt_rcvd_total_compressed_message_size_bytes The bytes of an attempt's response messages, "
          + "before decompression.",
        "# TYPE grpc_client_attempt_rcvd_total_compressed_message_size_bytes histogram",
        "# HELP grpc_client_call_duration_seconds How long calls took, from their creation to their status.",
        "# TYPE grpc_client_call_duration_seconds histogram",
      ])
    func has(_ name: String, _ more: String, _ value: String) -> Bool {
      all.contains("grpc_client_\(name){\(labels)\(more)} \(value)")
    }
    #expect(has("attempt_started_total", "", "3"))
    for (name, code, rows) in [
      (
        "attempt_duration_seconds", "OK",
        [
          ("_bucket", "0.00001", "0"), ("_bucket", "0.00005", "1"), ("_bucket", "0.0001", "2"),
          ("_bucket", "+Inf", "2"),
          ("_sum", "", "0.000100001"), ("_count", "", "2"),
        ]
      ),
      (
        "attempt_sent_total_compressed_message_size_bytes", "OK",
        [
          ("_bucket", "0", "1"), ("_bucket", "1024", "2"), ("_bucket", "4294967296", "2"),
          ("_bucket", "+Inf", "2"),
          ("_sum", "", "1024"), ("_count", "", "2"),
        ]
      ),
      (
        "attempt_rcvd_total_compressed_message_size_bytes", "OK",
        [
          ("_bucket", "1024", "0"), ("_bucket", "2048", "1"), ("_bucket", "4294967296", "1"),
          ("_bucket", "+Inf", "2"),
          ("_sum", "", "21474837505"), ("_count", "", "2"),
        ]
      ),
      (
        "call_duration_seconds", "ABORTED",
        [("_bucket", "100", "0"), ("_bucket", "+Inf", "1"), ("_sum", "", "200"), ("_count", "", "1")]
      ),
    ] as [(String, String, [(String, String, String)])] {
      for (suffix, bound, value) in rows {
        let le = bound.isEmpty ? "" : #",le="\#(bound)""#
        #expect(has(name + suffix, #",grpc_status="\#(code)"\#(le)"#, value), "\(name) \(suffix) \(bound)")
      }
      #expect(all.filter { $0.hasPrefix("grpc_client_\(name)_count") }.count == 1)
    }
    withExtendedLifetime((path, target)) {}
  }

  @Test func telemetryInJSON() throws {
    var options = Telemetry.Options()
    options.version = ("9.8" as StaticString).bytes
    let telemetry = Telemetry(options)
    let (path, target) = (bytes("/a.B/C"), bytes("ipv4:10.0.0.1:80"))
    let method = telemetry.method(path.view, target.view)
    telemetry.attemptStarted(method)
    telemetry.callEnded(method, .aborted, 1_500_000_000)
    var found = text(telemetry.metricsJSON())!
    // The times are the machine's.
    for name in ["startTimeUnixNano", "timeUnixNano"] {
      let parts = found.split(separator: "\"\(name)\":\"", omittingEmptySubsequences: false)
      found = parts.dropFirst().reduce(String(parts[0])) { $0 + "\"\(name)\":\"" + $1.drop { $0.isNumber } }
    }
    let times = #""startTimeUnixNano":"","timeUnixNano":"""#
    let labels = [
      Self.attribute("grpc.method", #""stringValue":"a.B/C""#),
      Self.attribute("grpc.target", #""stringValue":"ipv4:10.0.0.1:80""#),
    ].joined(separator: ",")
    let bounds = telemetry.bounds.durations
    let counts = bounds.map { $0 == 2_000_000_000 ? "\"1\"" : "\"0\"" }.joined(separator: ",") + ",\"0\""
    let shown = bounds.map { bound in
      let buffer = ByteBuffer()
      #expect(appendSeconds(bound, to: buffer))
      return text(buffer)!
    }.joined(separator: ",")
    let status = Self.attribute("grpc.status", #""stringValue":"ABORTED""#)
    let resource = Self.attribute("service.name", #""stringValue":"unknown_service""#)
    func empty(_ name: String, _ meaning: String, _ unit: String) -> String {
      #"{"name":"grpc.client.\#(name)","description":"\#(meaning)","unit":"\#(unit)","#
        + #""histogram":{"aggregationTemporality":2}}"#
    }
    #expect(
      found == #"{"resourceMetrics":[{"resource":{"attributes":[\#(resource)]},"scopeMetrics":[{"scope":"#
        + #"{"name":"penstock","version":"9.8"},"metrics":["#
        + #"{"name":"grpc.client.attempt.started","description":"Attempts that were started.","unit":"{attempt}","#
        + #""sum":{"dataPoints":[{\#(times),"asInt":"1","attributes":[\#(labels)]}],"#
        + #""aggregationTemporality":2,"isMonotonic":true}},"#
        + empty("attempt.duration", "How long attempts took, from their start to their status.", "s") + ","
        + empty(
          "attempt.sent_total_compressed_message_size",
          "The bytes of an attempt's request messages, after compression.", "By") + ","
        + empty(
          "attempt.rcvd_total_compressed_message_size",
          "The bytes of an attempt's response messages, before decompression.", "By") + ","
        + #"{"name":"grpc.client.call.duration","description":"How long calls took, from their creation to their status.","#
        + #""unit":"s","histogram":{"dataPoints":[{"count":"1","sum":1.5,"bucketCounts":[\#(counts)],"#
        + #""explicitBounds":[\#(shown)],\#(times),"attributes":[\#(labels),\#(status)]}],"#
        + #""aggregationTemporality":2}}]}]}]}"# + "\0")
    withExtendedLifetime((path, target)) {}
  }
}
