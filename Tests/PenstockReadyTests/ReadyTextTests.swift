import PenstockCall
import PenstockTestSupport
import PenstockTransport
import PenstockWire
import Testing

@testable import PenstockReady

/// Tests of the texts that the ready-made interceptors write: JSON, and Prometheus' exposition format.
@Suite struct ReadyTextTests {
  private func json(_ fill: (JSONText) -> Void) -> String? {
    let json = JSONText()
    fill(json)
    return json.isComplete ? text(json.buffer) : nil
  }

  /// Each way to write a value, with its text.
  private static var values: [(write: (JSONText) -> Void, text: String)] {
    [
      ({ $0.number(0) }, "0"), ({ $0.number(10) }, "10"), ({ $0.number(.max) }, "18446744073709551615"),
      ({ $0.quoted(0) }, "\"0\""), ({ $0.quoted(1_234_567_890) }, "\"1234567890\""),
      ({ $0.bool(true) }, "true"), ({ $0.bool(false) }, "false"), ({ $0.null() }, "null"),
      ({ $0.seconds(1_500_000_000) }, "1.5"), ({ $0.array {} }, "[]"), ({ $0.object {} }, "{}"),
      ({ json in withView([0x00, 0x9f, 0xa0, 0xff, 0x0a]) { json.hex($0) } }, "\"009fa0ff0a\""),
      ({ json in withView([]) { json.hex($0) } }, "\"\""),
      ({ json in withView([0x61]) { json.string($0) } }, "\"a\""),
      ({ json in json.object { json.member("a", 1) } }, "{\"a\":1}"),
      ({ json in json.array { json.array { json.number(1) } } }, "[[1]]"),
    ]
  }

  @Test func valuesAreSeparatedByCommas() {
    for first in Self.values {
      for second in Self.values {
        let pair = json { json in
          json.array {
            first.write(json)
            second.write(json)
          }
        }
        #expect(pair == "[\(first.text),\(second.text)]")
        let members = json { json in
          json.object {
            json.key("x")
            first.write(json)
            json.key("y")
            second.write(json)
          }
        }
        #expect(members == "{\"x\":\(first.text),\"y\":\(second.text)}")
      }
    }
  }

  @Test func membersOfEachType() {
    let found = json { json in
      json.object {
        json.member("number", 7)
        json.member("text", "a" as StaticString)
        withView([0x62]) { json.member("bytes", $0) }
        json.member("last", 8)
      }
    }
    #expect(found == #"{"number":7,"text":"a","bytes":"b","last":8}"#)
  }

  @Test func charactersThatJSONEscapes() {
    for byte in 0..<0x20 as Range<UInt8> {
      let digits = String(byte, radix: 16)
      let code = "\\u00" + (digits.count == 1 ? "0" : "") + digits
      #expect(string([0x61, byte, byte, 0x62]) == "\"a\(code)\(code)b\"")
    }
    #expect(string([0x22]) == "\"\\\"\"")
    #expect(string([0x5c]) == "\"\\\\\"")
    #expect(string([0x20, 0x21, 0x23, 0x5b, 0x5d, 0x7f]) == "\" !#[]\u{7f}\"")
    #expect(string(Array("é\u{1f600}".utf8)) == "\"é\u{1f600}\"")
    #expect(string([0x61, 0xff, 0x0a]) == "\"a\u{fffd}\\u000a\"")
  }

  private func string(_ bytes: [UInt8]) -> String? {
    json { json in withView(bytes) { json.string($0) } }
  }

  @Test(arguments: [
    (0, "0"), (1, "0.000000001"), (10, "0.00000001"), (999_999_999, "0.999999999"), (1_000_000_000, "1"),
    (1_000_000_001, "1.000000001"), (1_050_000_000, "1.05"), (1_500_000_000, "1.5"),
    (12_000_000_120, "12.00000012"), (100_000_000, "0.1"), (UInt64.max, "18446744073.709551615"),
  ])
  func timesInSeconds(nanoseconds: UInt64, expected: String) {
    let buffer = ByteBuffer()
    #expect(appendSeconds(nanoseconds, to: buffer) && text(buffer) == expected)
  }

  // MARK: - Prometheus

  private func prometheus(_ fill: (PrometheusText) -> Void) -> String? {
    let made = PrometheusText()
    fill(made)
    return made.isComplete ? text(made.buffer) : nil
  }

  @Test func labelsAreEscaped() {
    for (given, shown) in [
      ([], ""), ([0x61], "a"), ([0x22], "\\\""), ([0x5c], "\\\\"), ([0x0a], "\\n"), ([0x6e, 0x0d], "n\r"),
      ([0x21, 0x23, 0x5b, 0x5d, 0x09, 0x0b], "!#[]\t\u{b}"), ([0x61, 0xff], "a\u{fffd}"),
    ] as [([UInt8], String)] {
      #expect(prometheus { made in withView(given) { made.label($0[...]) } } == shown)
    }
  }

  @Test func aFamilyHasItsHelpAndItsType() {
    #expect(
      prometheus { $0.family("name", "gauge", "Some help.") } == "# HELP name Some help.\n# TYPE name gauge\n"
    )
  }

  private func method(_ path: String?, _ target: String?, _ kind: CallKind) -> Metrics.Method {
    Metrics.Method(path: path.map { bytes($0) }, target: target.map { bytes($0) }, kind: kind)
  }

  @Test(
    arguments: [
      ("/a.B/C", "a.B", "C"), ("/a/b/c", "a/b", "c"), ("/a/", "a", ""), ("//a", "", "a"), ("/a", "", "a"),
      (nil, "other", "other"),
    ] as [(String?, String, String)])
  func samplesNameServiceAndMethod(path: String?, service: String, name: String) {
    let found = prometheus { $0.sample("m", method(path, "dns:x", .unary), nil, nil, 7) }
    #expect(
      found
        == "m{grpc_type=\"unary\",grpc_service=\"\(service)\",grpc_method=\"\(name)\",grpc_target=\"dns:x\"} 7\n"
    )
  }

  @Test(arguments: [
    (CallKind.unary, "unary"), (.clientStream, "client_stream"), (.serverStream, "server_stream"),
    (.bidi, "bidi_stream"),
  ])
  func samplesNameTheKindOfCall(kind: CallKind, name: String) {
    let begin = "m{grpc_type=\"\(name)\",grpc_service=\"s\",grpc_method=\"m\",grpc_target=\"other\""
    let it = method("/s/m", nil, kind)
    #expect(prometheus { $0.sample("m", it, .aborted, nil, 0) } == begin + ",grpc_code=\"ABORTED\"} 0\n")
    let bound = bytes("0.5")
    #expect(
      prometheus { $0.sample("m", it, .ok, bound.view, 12) } == begin
        + ",grpc_code=\"OK\",le=\"0.5\"} 12\n")
    #expect(prometheus { $0.sample("m", it, nil, nil, nil, seconds: 1_200_000_000) } == begin + "} 1.2\n")
    withExtendedLifetime(bound) {}
  }

  @Test func samplesOfPeers() {
    let peer = Metrics.Peer(target: bytes("dns:x"), address: bytes("10.0.0.1:80"))
    let other = Metrics.Peer(target: nil, address: nil)
    #expect(
      prometheus { $0.sample("p", peer, nil, 3) } == "p{grpc_target=\"dns:x\",grpc_peer=\"10.0.0.1:80\"} 3\n")
    #expect(
      prometheus { $0.sample("p", other, .internal, 4) }
        == "p{grpc_target=\"other\",grpc_peer=\"other\",grpc_code=\"INTERNAL\"} 4\n")
  }

  // MARK: - Counts of connections

  /// The peers in the metrics, and how many connections each has opened, lost, and failed to open.
  private func peers(_ metrics: Metrics) -> [String] {
    metrics.read { _, peers in
      peers.map { peer in
        "\(text(peer.target) ?? "-") \(text(peer.address) ?? "-") \(peer.opened) \(peer.lost) \(peer.failed)"
      }
    }
  }

  private func count(_ metrics: Metrics, _ kind: ConnectionNews.Kind, _ target: String, _ address: String) {
    let (target, address) = (bytes(target), bytes(address))
    metrics.count(kind, target.view, address.view)
    withExtendedLifetime((target, address)) {}
  }

  @Test func connectionsAreCountedByTargetAndAddress() {
    let metrics = Metrics(Metrics.Options())
    count(metrics, .ready, "a", "1")
    count(metrics, .lost, "a", "1")
    count(metrics, .backoff, "a", "1")
    count(metrics, .backoff, "a", "1")
    count(metrics, .ready, "a", "2")
    count(metrics, .ready, "b", "1")
    count(metrics, .lost, "b", "1")
    #expect(peers(metrics) == ["a 1 1 1 2", "a 2 1 0 0", "b 1 1 1 0"])
    for kind in [
      .resolving, .unresolved, .connecting, .secured, .draining, .silent, .ignored, .healthy, .unhealthy,
      .resolved,
      .idle, .unreachable, .policy, .retry, .throttled, .ejected, .restored, .slowCallback, .tlsReloaded,
      .tlsKept,
    ] as [ConnectionNews.Kind] {
      count(metrics, kind, "c", "3")
    }
    #expect(peers(metrics).count == 3)
  }

  @Test func furtherPeersAreCountedTogether() {
    var options = Metrics.Options()
    options.maxPeers = 2
    let metrics = Metrics(options)
    for address in ["1", "2", "3", "4", "2"] { count(metrics, .ready, "a", address) }
    #expect(peers(metrics) == ["a 1 1 0 0", "a 2 2 0 0", "- - 2 0 0"])
  }

  @Test func thePeersInBothFormats() {
    let metrics = Metrics(Metrics.Options())
    for kind in [.ready, .ready, .ready, .lost, .lost, .backoff] as [ConnectionNews.Kind] {
      count(metrics, kind, "a", "1")
    }
    let connections = #""codes":[],"connections":{"opened":3,"lost":2,"failed":1}"#
    #expect(
      text(metrics.json()) == #"{"methods":[],"peers":[{"target":"a","peer":"1",\#(connections)}]}"# + "\0")
    let labels = #"{grpc_target="a",grpc_peer="1"}"#
    let expected = """
      # HELP grpc_client_started_total Calls started.
      # TYPE grpc_client_started_total counter
      # HELP grpc_client_in_flight Calls that have not ended.
      # TYPE grpc_client_in_flight gauge
      # HELP grpc_client_handled_total Calls ended, by status code.
      # TYPE grpc_client_handled_total counter
      # HELP grpc_client_msg_sent_total Messages sent by calls that have ended.
      # TYPE grpc_client_msg_sent_total counter
      # HELP grpc_client_msg_received_total Messages received by calls that have ended.
      # TYPE grpc_client_msg_received_total counter
      # HELP grpc_client_handling_seconds How long calls took.
      # TYPE grpc_client_handling_seconds histogram
      # HELP grpc_client_peer_handled_total Calls ended, by server and status code.
      # TYPE grpc_client_peer_handled_total counter
      # HELP grpc_client_connections_opened_total Connections that became ready.
      # TYPE grpc_client_connections_opened_total counter
      grpc_client_connections_opened_total\(labels) 3
      # HELP grpc_client_connections_lost_total Connections that have ended.
      # TYPE grpc_client_connections_lost_total counter
      grpc_client_connections_lost_total\(labels) 2
      # HELP grpc_client_connect_failures_total Attempts to connect that have failed.
      # TYPE grpc_client_connect_failures_total counter
      grpc_client_connect_failures_total\(labels) 1

      """
    #expect(text(metrics.prometheusText()) == expected + "\0")
  }
}

/// Calls `body` with a view of the bytes.
func withView<Result>(_ bytes: [UInt8], _ body: (ByteView) -> Result) -> Result {
  bytes.withUnsafeBytes { body($0) }
}
